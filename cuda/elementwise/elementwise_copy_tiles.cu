// SPDX-License-Identifier: Apache-2.0
// run_copy_tiles(): aligned tiles.
#include "elementwise/elementwise_copy.cuh"

namespace flowk {

Status run_copy_tiles(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_copy<LaunchTiles>(plan, stream);
}

}  // namespace flowk
