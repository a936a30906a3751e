// SPDX-License-Identifier: Apache-2.0
// run_bias_gradient(): from the plan's type to a launch, then the sums of its chunks.
#include "core/launch.cuh"
#include "softmax/kernels/bias_gradient.cuh"
#include "softmax/kernels/bias_gradient_in_registers.cuh"

namespace flowk::softmax {

Status run_bias_gradient(const BiasGradientPlan& plan, flowk_stream stream) {
  const auto start = [&](auto kernel) { return launch(kernel, plan.launch, stream, plan.gradient, plan.params); };
  const auto start_of_type = [&](auto type) {
    using T = typename decltype(type)::type;
    return plan.gradient.in_registers ? start(bias_gradient_in_registers<T>) : start(bias_gradient<T>);
  };
  Status status;
  switch (plan.in_dtype) {
    case FLOWK_FLOAT16: status = start_of_type(std::type_identity<Float16>()); break;
    case FLOWK_BFLOAT16: status = start_of_type(std::type_identity<BFloat16>()); break;
    case FLOWK_FLOAT32: status = start_of_type(std::type_identity<float>()); break;
    default: status = start(bias_gradient<double>); break;
  }
  FLOWK_RETURN_IF_ERROR(status);
  return launch(plan.in_dtype == FLOWK_FLOAT64 ? bias_gradient_of_chunks<double> : bias_gradient_of_chunks<float>,
                plan.sum_launch, stream, plan.gradient, plan.params);
}

}  // namespace flowk::softmax
