// SPDX-License-Identifier: Apache-2.0
// run_strided_ternary(): strided packs and tiles.
#include "elementwise/elementwise_ternary.cuh"

namespace flowk::elementwise {

Status run_strided_ternary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_ternary<LaunchStrided>(plan, stream);
}

}  // namespace flowk::elementwise
