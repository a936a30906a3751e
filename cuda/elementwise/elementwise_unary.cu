// SPDX-License-Identifier: Apache-2.0
// run_linear_unary(): kernels of a linear output.
#include "elementwise/elementwise_unary.cuh"

namespace flowk::elementwise {

Status run_linear_unary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_unary<LaunchLinear>(plan, stream);
}

}  // namespace flowk::elementwise
