// SPDX-License-Identifier: Apache-2.0
// run_binary_tiles(): aligned tiles.
#include "elementwise/elementwise_binary.cuh"

namespace flowk {

Status run_binary_tiles(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_binary<LaunchTiles>(plan, stream);
}

}  // namespace flowk
