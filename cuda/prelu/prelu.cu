// SPDX-License-Identifier: Apache-2.0
// run_prelu(): one switch from the plan's types to a launch.
#include "core/launch.cuh"
#include "prelu/prelu_elements.cuh"

namespace flowk::prelu {
namespace {

template <class T, class A, class Index, bool kWhole, int kAccess>
Status run_access(const PreluPlan& plan, flowk_stream stream) {
  return launch(prelu_elements<T, A, Index, kWhole, kAccess>, plan.launch, stream, plan.params);
}

template <class T, class A, class Index>
Status run_index(const PreluPlan& plan, flowk_stream stream) {
  if (!plan.is_whole) return run_access<T, A, Index, false, any_access>(plan, stream);
  constexpr int one = static_cast<int>(AlphaAccess::one_per_pack), two = static_cast<int>(AlphaAccess::two_per_pack),
                vector = static_cast<int>(AlphaAccess::vector_per_pack);
  switch (static_cast<int>(plan.params.alpha_access)) {
    case one: return run_access<T, A, Index, true, one>(plan, stream);
    case two: return run_access<T, A, Index, true, two>(plan, stream);
    case vector: return run_access<T, A, Index, true, vector>(plan, stream);
    default: return run_access<T, A, Index, true, any_access>(plan, stream);
  }
}

template <class T, class A>
Status run(const PreluPlan& plan, flowk_stream stream) {
  return plan.wide_index ? run_index<T, A, uint64_t>(plan, stream) : run_index<T, A, uint32_t>(plan, stream);
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

}  // namespace flowk::prelu
