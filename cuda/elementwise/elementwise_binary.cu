// SPDX-License-Identifier: Apache-2.0
// run_linear_binary(): kernels of a linear output.
#include "elementwise/elementwise_binary.cuh"

namespace flowk::elementwise {

Status run_linear_binary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_binary<LaunchLinear>(plan, stream);
}

}  // namespace flowk::elementwise
