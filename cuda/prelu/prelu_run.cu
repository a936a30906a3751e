// SPDX-License-Identifier: Apache-2.0
// run_prelu(): from the plan's type and form to a launch.
#include "core/launch.cuh"
#include "prelu/kernels/prelu_forward.cuh"
#include "prelu/prelu.h"

namespace flowk::prelu {
namespace {

template <class T>
Status run(const PreluPlan& plan, flowk_stream stream) {
  return launch(plan.is_general ? forward<T, true> : forward<T, false>, plan.launch, stream, plan.params);
}

}  // namespace

Status run_prelu(const PreluPlan& plan, flowk_stream stream) {
  switch (plan.dtype) {
    case FLOWK_FLOAT16: return run<Float16>(plan, stream);
    case FLOWK_BFLOAT16: return run<BFloat16>(plan, stream);
    case FLOWK_FLOAT32: return run<float>(plan, stream);
    case FLOWK_FLOAT64: return launch(forward<double, true>, plan.launch, stream, plan.params);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.dtype = %d is no type of prelu", plan.dtype);
}

}  // namespace flowk::prelu
