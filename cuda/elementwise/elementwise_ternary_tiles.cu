// SPDX-License-Identifier: Apache-2.0
// run_ternary_tiles(): aligned tiles.
#include "elementwise/elementwise_ternary.cuh"

namespace flowk {

Status run_ternary_tiles(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_ternary<LaunchTiles>(plan, stream);
}

}  // namespace flowk
