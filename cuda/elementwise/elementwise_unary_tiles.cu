// SPDX-License-Identifier: Apache-2.0
// run_unary_tiles(): aligned tiles.
#include "elementwise/elementwise_unary.cuh"

namespace flowk {

Status run_unary_tiles(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_unary<LaunchTiles>(plan, stream);
}

}  // namespace flowk
