// SPDX-License-Identifier: Apache-2.0
// run_linear_copy(): kernels of a linear output.
#include "elementwise/elementwise_copy.cuh"

namespace flowk::elementwise {

Status run_linear_copy(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_copy<LaunchLinear>(plan, stream);
}

}  // namespace flowk::elementwise
