// SPDX-License-Identifier: Apache-2.0
// run_prelu_backward(): from the plan's type and mechanism to a launch, then the sums of its partials.
#include "core/launch.cuh"
#include "prelu/kernels/by_channel.cuh"
#include "prelu/kernels/by_column.cuh"
#include "prelu/kernels/by_plane.cuh"
#include "prelu/kernels/by_span.cuh"
#include "prelu/kernels/by_warp_column.cuh"
#include "prelu/kernels/reduce_partials.cuh"
#include "prelu/prelu.h"

namespace flowk::prelu {
namespace {

Status no_kernel(const char* field, int value) {
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "prelu_backward has no kernel for %s = %d", field, value);
}

// The kernels of one type, by mechanism; float64 has only the general forms.
template <class T>
struct RunGradient {
  const LaunchConfig& config;
  flowk_stream stream;

  Status operator()(const ByChannel& plan) const {
    if constexpr (!std::is_same_v<T, double>) {
      constexpr int rows_of_cluster = by_channel_rows_of_cluster(sizeof(T));
      if (config.cluster_blocks > 1) return launch(by_channel<T, rows_of_cluster, true>, config, stream, plan.params);
      if (plan.vectors_in_flight == 3) return launch(by_channel<T, 3, false>, config, stream, plan.params);
      if (plan.vectors_in_flight == 4) return launch(by_channel<T, 4, false>, config, stream, plan.params);
    }
    return no_kernel("by_channel: vectors_in_flight", plan.vectors_in_flight);
  }
  Status operator()(const BySpan& plan) const {
    if constexpr (!std::is_same_v<T, double>)
      return plan.is_in_one_plane ? launch(by_span<T, true>, config, stream, plan.params)
                                  : launch(by_span<T, false>, config, stream, plan.params);
    return no_kernel("by_span: dtype", FLOWK_FLOAT64);
  }
  Status operator()(const ByPlane& plan) const {
    if (plan.is_general) return launch(by_plane<T, true>, config, stream, plan.params);
    if constexpr (!std::is_same_v<T, double>) return launch(by_plane<T, false>, config, stream, plan.params);
    return no_kernel("by_plane: is_general", plan.is_general);
  }
  Status operator()(const ByColumn& plan) const {
    if (plan.is_general) return launch(by_column<T, true>, config, stream, plan.params);
    if constexpr (!std::is_same_v<T, double>) return launch(by_column<T, false>, config, stream, plan.params);
    return no_kernel("by_column: is_general", plan.is_general);
  }
  Status operator()(const ByWarpColumn& plan) const {
    if constexpr (!std::is_same_v<T, double>) return launch(by_warp_column<T>, config, stream, plan.params);
    return no_kernel("by_warp_column: dtype", FLOWK_FLOAT64);
  }
  Status operator()(const NoElements&) const { return {}; }
};

template <class T>
Status run(const PreluBackwardPlan& plan, flowk_stream stream) {
  return std::visit(RunGradient<T>{plan.launch, stream}, plan.gradient);
}

Status run_gradient(const PreluBackwardPlan& plan, flowk_stream stream) {
  switch (plan.dtype) {
    case FLOWK_FLOAT16: return run<Float16>(plan, stream);
    case FLOWK_BFLOAT16: return run<BFloat16>(plan, stream);
    case FLOWK_FLOAT32: return run<float>(plan, stream);
    case FLOWK_FLOAT64: return run<double>(plan, stream);
    default: return no_kernel("dtype", plan.dtype);
  }
}

Status run_reduction(const ReducePartials& plan, bool is_double, flowk_stream stream) {
  const auto run_as = [&](auto kernel) { return launch(kernel, plan.launch, stream, plan.params); };
  if (is_double) return run_as(reduce_partials<double, PartialLayout::runs>);
  switch (plan.layout) {
    case PartialLayout::rows_last: return run_as(reduce_partials<float, PartialLayout::rows_last>);
    case PartialLayout::runs: return run_as(reduce_partials<float, PartialLayout::runs>);
    case PartialLayout::channels_last: return run_as(reduce_partials<float, PartialLayout::channels_last>);
  }
  return no_kernel("layout", static_cast<int>(plan.layout));
}

}  // namespace

Status run_prelu_backward(const PreluBackwardPlan& plan, flowk_stream stream) {
  FLOWK_RETURN_IF_ERROR(run_gradient(plan, stream));
  for (int i = 0; i < plan.num_reductions; ++i)
    FLOWK_RETURN_IF_ERROR(run_reduction(plan.reductions[i], plan.dtype == FLOWK_FLOAT64, stream));
  return {};
}

}  // namespace flowk::prelu
