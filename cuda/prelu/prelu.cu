// SPDX-License-Identifier: Apache-2.0
// run_prelu(): one switch from the plan's types to a launch.
#include "core/launch.cuh"
#include "prelu/prelu_elements.cuh"

namespace flowk {
namespace {

template <class T, class A>
Status run(const PreluPlan& plan, flowk_stream stream) {
  if (plan.wide_index) return launch(prelu_elements<T, A, uint64_t>, plan.launch, stream, plan.params);
  return launch(prelu_elements<T, A, uint32_t>, plan.launch, stream, plan.params);
}

}  // namespace

Status run_prelu(const PreluPlan& plan, flowk_stream stream) {
  const bool float_alpha = plan.alpha_dtype == FLOWK_FLOAT32;
  switch (plan.dtype) {
    case FLOWK_FLOAT16: return float_alpha ? run<Float16, float>(plan, stream) : run<Float16, Float16>(plan, stream);
    case FLOWK_BFLOAT16:
      return float_alpha ? run<BFloat16, float>(plan, stream) : run<BFloat16, BFloat16>(plan, stream);
    case FLOWK_FLOAT32: return run<float, float>(plan, stream);
    case FLOWK_FLOAT64: return run<double, double>(plan, stream);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.dtype = %d is no type of prelu", plan.dtype);
}

}  // namespace flowk
