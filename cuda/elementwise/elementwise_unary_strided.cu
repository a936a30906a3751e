// SPDX-License-Identifier: Apache-2.0
// run_strided_unary(): strided packs and tiles.
#include "elementwise/elementwise_unary.cuh"

namespace flowk::elementwise {

Status run_strided_unary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_unary<LaunchStrided>(plan, stream);
}

}  // namespace flowk::elementwise
