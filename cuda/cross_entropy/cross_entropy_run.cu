// SPDX-License-Identifier: Apache-2.0
// run_cross_entropy*(): from the plan's type to a launch.
#include "core/launch.cuh"
#include "cross_entropy/cross_entropy.h"
#include "cross_entropy/kernels/logits_gradient.cuh"
#include "cross_entropy/kernels/loss_rows.cuh"
#include "cross_entropy/kernels/loss_slices.cuh"
#include "cross_entropy/kernels/merge_partials.cuh"

namespace flowk::cross_entropy {
namespace {

// run(std::type_identity<T>()) with the element type of `dtype`.
template <class Run>
Status run_as(flowk_dtype dtype, Run run) {
  switch (dtype) {
    case FLOWK_FLOAT16: return run(std::type_identity<Float16>());
    case FLOWK_BFLOAT16: return run(std::type_identity<BFloat16>());
    case FLOWK_FLOAT32: return run(std::type_identity<float>());
    case FLOWK_FLOAT64: return run(std::type_identity<double>());
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.dtype = %d is no type of cross_entropy", dtype);
}

}  // namespace

Status run_cross_entropy_merge(const MergePartialsPlan& plan, flowk_dtype dtype, flowk_stream stream) {
  return launch(dtype == FLOWK_FLOAT64 ? merge_partials<double> : merge_partials<float>, plan.launch, stream,
                plan.params);
}

Status run_cross_entropy(const CrossEntropyPlan& plan, flowk_stream stream) {
  FLOWK_RETURN_IF_ERROR(run_as(plan.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    const auto kernel = plan.params.rows_per_block > 1 ? loss_rows<T> : loss_slices<T>;
    return launch(kernel, plan.launch, stream, plan.params);
  }));
  return run_cross_entropy_merge(plan.merge, plan.dtype, stream);
}

Status run_cross_entropy_backward(const CrossEntropyBackwardPlan& plan, flowk_stream stream) {
  return run_as(plan.dtype, [&](auto type) {
    return launch(logits_gradient<typename decltype(type)::type>, plan.launch, stream, plan.params);
  });
}

}  // namespace flowk::cross_entropy
