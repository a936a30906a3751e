// SPDX-License-Identifier: Apache-2.0
// run_prelu(): one switch from the plan's types to a launch.
#include "core/launch.cuh"
#include "prelu/prelu_elements.cuh"

namespace flowk::prelu {
namespace {

template <class T, int kAccess>
Status run_access(const PreluPlan& plan, flowk_stream stream) {
  return launch(prelu_elements<T, kAccess>, plan.launch, stream, plan.params);
}

template <class T>
Status run(const PreluPlan& plan, flowk_stream stream) {
  if (plan.is_general) return run_access<T, any_access>(plan, stream);
  switch (plan.params.alpha_access) {
    case AlphaAccess::one_per_pack: return run_access<T, static_cast<int>(AlphaAccess::one_per_pack)>(plan, stream);
    case AlphaAccess::two_per_pack: return run_access<T, static_cast<int>(AlphaAccess::two_per_pack)>(plan, stream);
    case AlphaAccess::vector_per_pack:
      return run_access<T, static_cast<int>(AlphaAccess::vector_per_pack)>(plan, stream);
    case AlphaAccess::one_per_element:
      return run_access<T, static_cast<int>(AlphaAccess::one_per_element)>(plan, stream);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.params.alpha_access = %d is unknown",
                         static_cast<int>(plan.params.alpha_access));
}

}  // namespace

Status run_prelu(const PreluPlan& plan, flowk_stream stream) {
  switch (plan.dtype) {
    case FLOWK_FLOAT16: return run<Float16>(plan, stream);
    case FLOWK_BFLOAT16: return run<BFloat16>(plan, stream);
    case FLOWK_FLOAT32: return run<float>(plan, stream);
    case FLOWK_FLOAT64: return run_access<double, any_access>(plan, stream);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.dtype = %d is no type of prelu", plan.dtype);
}

}  // namespace flowk::prelu
