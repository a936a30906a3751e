// SPDX-License-Identifier: Apache-2.0
// run_prelu(): from the plan's type and form to a launch.
#include "core/launch.cuh"
#include "prelu/kernels/prelu_forward.cuh"
#include "prelu/prelu.h"

namespace flowk::prelu {
namespace {

template <class T>
Status run(const PreluPlan& plan, flowk_stream stream) {
  const auto run_as = [&](auto kernel) { return launch(kernel, plan.launch, stream, plan.params); };
  if (plan.is_general) return run_as(forward<T, any_access>);
  switch (plan.params.alpha_access) {
    case AlphaAccess::one_per_vector: return run_as(forward<T, static_cast<int>(AlphaAccess::one_per_vector)>);
    case AlphaAccess::two_per_vector: return run_as(forward<T, static_cast<int>(AlphaAccess::two_per_vector)>);
    case AlphaAccess::consecutive: return run_as(forward<T, static_cast<int>(AlphaAccess::consecutive)>);
    case AlphaAccess::one_per_element: return run_as(forward<T, static_cast<int>(AlphaAccess::one_per_element)>);
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
    case FLOWK_FLOAT64: return launch(forward<double, any_access>, plan.launch, stream, plan.params);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.dtype = %d is no type of prelu", plan.dtype);
}

}  // namespace flowk::prelu
