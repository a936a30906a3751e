// SPDX-License-Identifier: Apache-2.0
// run_prelu_backward(): one switch from plan.kernel to a launch, then the sums of its partials.
#include "core/launch.cuh"
#include "prelu/prelu_channel_planes.cuh"
#include "prelu/prelu_columns.cuh"
#include "prelu/prelu_partial_sums.cuh"
#include "prelu/prelu_planes.cuh"
#include "prelu/prelu_spans.cuh"
#include "prelu/prelu_warp_columns.cuh"

namespace flowk::prelu {
namespace {

Status no_kernel(const char* field, int value) {
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.%s = %d has no kernel of prelu_backward", field, value);
}

template <class T>
Status run_channel_planes(const PreluBackwardPlan& plan, flowk_stream stream) {
  switch (plan.packs_at_once) {
    case 3: return launch(prelu_planes_of_channels<T, 3>, plan.launch, stream, plan.channel_planes);
    case 4: return launch(prelu_planes_of_channels<T, 4>, plan.launch, stream, plan.channel_planes);
    default: return no_kernel("packs_at_once", plan.packs_at_once);
  }
}

template <class T>
Status run_spans(const PreluBackwardPlan& plan, flowk_stream stream) {
  if (!plan.span_is_in_one_plane) return launch(prelu_spans<T, false, 2>, plan.launch, stream, plan.spans);
  switch (plan.packs_at_once) {
    case 2: return launch(prelu_spans<T, true, 2>, plan.launch, stream, plan.spans);
    case 4: return launch(prelu_spans<T, true, 4>, plan.launch, stream, plan.spans);
    default: break;
  }
  if constexpr (sizeof(T) == 4)
    if (plan.packs_at_once == 8) return launch(prelu_spans<T, true, 8>, plan.launch, stream, plan.spans);
  return no_kernel("packs_at_once", plan.packs_at_once);
}

template <class T>
Status run_columns(const PreluBackwardPlan& plan, flowk_stream stream) {
  constexpr ColumnPacks whole = ColumnPacks::whole_channels, aligned = ColumnPacks::aligned;
  if (plan.column_packs == aligned) {
    if (plan.columns.tile_packs == wide_tile_packs)
      return launch(prelu_columns<T, aligned, wide_tile_packs, 4>, plan.launch, stream, plan.columns);
    return launch(prelu_columns<T, aligned, line_packs, 4>, plan.launch, stream, plan.columns);
  }
  switch (plan.packs_at_once) {
    case 2: return launch(prelu_columns<T, whole, line_packs, 2>, plan.launch, stream, plan.columns);
    case 4: return launch(prelu_columns<T, whole, line_packs, 4>, plan.launch, stream, plan.columns);
    default: return no_kernel("packs_at_once", plan.packs_at_once);
  }
}

// The kernels for any alignment, position and type of alpha.
template <class T>
Status run_general(const PreluBackwardPlan& plan, flowk_stream stream) {
  if (plan.kernel == PreluBackwardKernel::packs_of_planes)
    return launch(prelu_packs_of_planes<T, true>, plan.launch, stream, plan.planes);
  if (plan.kernel == PreluBackwardKernel::packs_of_columns)
    return launch(prelu_columns<T, ColumnPacks::general, line_packs, 1>, plan.launch, stream, plan.columns);
  return no_kernel("kernel", static_cast<int>(plan.kernel));
}

template <class T>
Status run(const PreluBackwardPlan& plan, flowk_stream stream) {
  switch (plan.kernel) {
    case PreluBackwardKernel::planes_of_channels: return run_channel_planes<T>(plan, stream);
    case PreluBackwardKernel::spans_of_planes: return run_spans<T>(plan, stream);
    case PreluBackwardKernel::packs_of_planes:
      if (plan.is_general) return run_general<T>(plan, stream);
      return launch(prelu_packs_of_planes<T, false>, plan.launch, stream, plan.planes);
    case PreluBackwardKernel::packs_of_columns:
      return plan.column_packs == ColumnPacks::general ? run_general<T>(plan, stream) : run_columns<T>(plan, stream);
    case PreluBackwardKernel::warp_columns: return launch(prelu_warp_columns<T>, plan.launch, stream, plan.columns);
    case PreluBackwardKernel::nothing: break;
  }
  return no_kernel("kernel", static_cast<int>(plan.kernel));
}

Status run_gradient(const PreluBackwardPlan& plan, flowk_stream stream) {
  if (plan.kernel == PreluBackwardKernel::nothing) return {};
  switch (plan.dtype) {
    case FLOWK_FLOAT16: return run<Float16>(plan, stream);
    case FLOWK_BFLOAT16: return run<BFloat16>(plan, stream);
    case FLOWK_FLOAT32: return run<float>(plan, stream);
    case FLOWK_FLOAT64: return run_general<double>(plan, stream);
    default: return no_kernel("dtype", plan.dtype);
  }
}

Status run_sum(const PreluBackwardPlan& plan, int index, flowk_stream stream) {
  constexpr SumKernel near_rows = SumKernel::near_rows, runs = SumKernel::runs, far_rows = SumKernel::far_rows;
  const LaunchConfig& config = plan.sum_launches[index];
  const PartialSumParams& params = plan.sums[index];
  const SumKernel kernel = plan.sum_kernels[index];
  const bool has_vectors = plan.sums_vectors[index];
  if (plan.dtype == FLOWK_FLOAT64) return launch(reduce_partials<double, runs, true>, config, stream, params);
  if (kernel == near_rows) return launch(reduce_partials<float, near_rows, false>, config, stream, params);
  if (kernel == runs)
    return has_vectors ? launch(reduce_partials<float, runs, true>, config, stream, params)
                       : launch(reduce_partials<float, runs, false>, config, stream, params);
  return has_vectors ? launch(reduce_partials<float, far_rows, true>, config, stream, params)
                     : launch(reduce_partials<float, far_rows, false>, config, stream, params);
}

}  // namespace

Status run_prelu_backward(const PreluBackwardPlan& plan, flowk_stream stream) {
  FLOWK_RETURN_IF_ERROR(run_gradient(plan, stream));
  for (int i = 0; i < plan.num_sums; ++i) FLOWK_RETURN_IF_ERROR(run_sum(plan, i, stream));
  return {};
}

}  // namespace flowk::prelu
