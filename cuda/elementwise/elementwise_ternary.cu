// SPDX-License-Identifier: Apache-2.0
// run_linear_ternary(): kernels of a linear output.
#include "elementwise/elementwise_ternary.cuh"

namespace flowk::elementwise {

Status run_linear_ternary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_ternary<LaunchLinear>(plan, stream);
}

}  // namespace flowk::elementwise
