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

template <class T, class A, bool kCluster>
Status run_channel_planes(const PreluBackwardPlan& plan, flowk_stream stream) {
  switch (plan.packs_at_once) {
    case 3: return launch(prelu_planes_of_channels<T, A, kCluster, 3>, plan.launch, stream, plan.channel_planes);
    case 4: return launch(prelu_planes_of_channels<T, A, kCluster, 4>, plan.launch, stream, plan.channel_planes);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.packs_at_once = %d, must be 3 or 4 of planes of channels",
                         plan.packs_at_once);
}

template <class T, class A, bool kWhole>
Status run_planes(const PreluBackwardPlan& plan, flowk_stream stream) {
  if (plan.wide_index) return launch(prelu_packs_of_planes<T, A, uint64_t, kWhole>, plan.launch, stream, plan.planes);
  return launch(prelu_packs_of_planes<T, A, uint32_t, kWhole>, plan.launch, stream, plan.planes);
}

template <class T, class A, int kPacks>
Status run_spans_of(const PreluBackwardPlan& plan, flowk_stream stream) {
  if (plan.span_is_in_one_plane) return launch(prelu_spans<T, A, true, true, kPacks>, plan.launch, stream, plan.spans);
  if constexpr (kPacks <= 4) {
    const bool is_aligned = plan.spans.tensors.x_shift == 0 && plan.spans.tensors.dy_shift == 0;
    if (is_aligned) return launch(prelu_spans<T, A, false, true, kPacks>, plan.launch, stream, plan.spans);
    return launch(prelu_spans<T, A, false, false, kPacks>, plan.launch, stream, plan.spans);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "no spans of %d packs a lane lie in two planes", kPacks);
}

template <class T, class A>
Status run_spans(const PreluBackwardPlan& plan, flowk_stream stream) {
  switch (plan.packs_at_once) {
    case 1: return run_spans_of<T, A, 1>(plan, stream);
    case 2: return run_spans_of<T, A, 2>(plan, stream);
    case 4: return run_spans_of<T, A, 4>(plan, stream);
    case 8: return run_spans_of<T, A, 8>(plan, stream);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.packs_at_once = %d, must be 1, 2, 4 or 8",
                         plan.packs_at_once);
}

template <class T, class A, bool kCluster, ColumnPacks kPacks>
Status run_lines_of_columns(const PreluBackwardPlan& plan, flowk_stream stream) {
  switch (plan.packs_at_once) {
    case 2: return launch(prelu_columns<T, A, kCluster, kPacks, line_packs, 2>, plan.launch, stream, plan.columns);
    case 4: return launch(prelu_columns<T, A, kCluster, kPacks, line_packs, 4>, plan.launch, stream, plan.columns);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.packs_at_once = %d, must be 2 or 4 of columns",
                         plan.packs_at_once);
}

template <class T, class A>
Status run_columns(const PreluBackwardPlan& plan, flowk_stream stream) {
  constexpr ColumnPacks whole = ColumnPacks::whole_channels, aligned = ColumnPacks::aligned;
  const bool is_wide = plan.columns.tile_packs == wide_tile_packs;
  switch (plan.column_packs) {
    case ColumnPacks::whole_channels:
#ifndef FLOWK_SIMT
      if (plan.launch.cluster_blocks > 1) return run_lines_of_columns<T, A, true, whole>(plan, stream);
#endif
      if (is_wide)
        return launch(prelu_columns<T, A, false, whole, wide_tile_packs, 4>, plan.launch, stream, plan.columns);
      return run_lines_of_columns<T, A, false, whole>(plan, stream);
    case ColumnPacks::aligned:
      if (is_wide)
        return launch(prelu_columns<T, A, false, aligned, wide_tile_packs, 4>, plan.launch, stream, plan.columns);
      return run_lines_of_columns<T, A, false, aligned>(plan, stream);
    case ColumnPacks::shifted: break;
  }
  return launch(prelu_columns<T, A, false, ColumnPacks::shifted, line_packs, 2>, plan.launch, stream, plan.columns);
}

template <class T, class A>
Status run_gradient(const PreluBackwardPlan& plan, flowk_stream stream) {
  switch (plan.kernel) {
    case PreluBackwardKernel::planes_of_channels:
      if (plan.launch.cluster_blocks == 1) return run_channel_planes<T, A, false>(plan, stream);
#ifndef FLOWK_SIMT
      return run_channel_planes<T, A, true>(plan, stream);
#else
      break;
#endif
    case PreluBackwardKernel::spans_of_planes: return run_spans<T, A>(plan, stream);
    case PreluBackwardKernel::packs_of_planes:
      return plan.is_whole ? run_planes<T, A, true>(plan, stream) : run_planes<T, A, false>(plan, stream);
    case PreluBackwardKernel::packs_of_columns: return run_columns<T, A>(plan, stream);
    case PreluBackwardKernel::warp_columns:
      if (plan.packs_at_once > 2) return launch(prelu_warp_columns<T, A, 4>, plan.launch, stream, plan.columns);
      return launch(prelu_warp_columns<T, A, 2>, plan.launch, stream, plan.columns);
    case PreluBackwardKernel::nothing: return {};
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.kernel = %d is no kernel of prelu_backward here",
                         static_cast<int>(plan.kernel));
}

template <class Sum, class Out, bool kVectors>
Status run_sum(const PreluBackwardPlan& plan, int index, flowk_stream stream) {
  const LaunchConfig& config = plan.sum_launches[index];
  const PartialSumParams& params = plan.sums[index];
  switch (plan.sum_kernels[index]) {
    case SumKernel::near_rows: return launch(sum_near_rows<Sum, Out, false, kVectors>, config, stream, params);
    case SumKernel::runs: return launch(sum_near_rows<Sum, Out, true, kVectors>, config, stream, params);
    case SumKernel::far_rows: return launch(sum_far_rows<Sum, Out, kVectors>, config, stream, params);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.sum_kernels[%d] = %d is no kernel", index,
                         static_cast<int>(plan.sum_kernels[index]));
}

template <class T, class A>
Status run(const PreluBackwardPlan& plan, flowk_stream stream) {
  using Sum = ComputeType<T>;
  FLOWK_RETURN_IF_ERROR((run_gradient<T, A>(plan, stream)));
  for (int i = 0; i + 1 < plan.num_sums; ++i) FLOWK_RETURN_IF_ERROR((run_sum<Sum, Sum, true>(plan, i, stream)));
  return plan.num_sums == 0 ? Status() : run_sum<Sum, A, false>(plan, plan.num_sums - 1, stream);
}

}  // namespace

Status run_prelu_backward(const PreluBackwardPlan& plan, flowk_stream stream) {
  const bool float_alpha = plan.alpha_dtype == FLOWK_FLOAT32;
  switch (plan.dtype) {
    case FLOWK_FLOAT16: return float_alpha ? run<Float16, float>(plan, stream) : run<Float16, Float16>(plan, stream);
    case FLOWK_BFLOAT16:
      return float_alpha ? run<BFloat16, float>(plan, stream) : run<BFloat16, BFloat16>(plan, stream);
    case FLOWK_FLOAT32: return run<float, float>(plan, stream);
    case FLOWK_FLOAT64: return run<double, double>(plan, stream);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.dtype = %d is no type of prelu_backward", plan.dtype);
}

}  // namespace flowk::prelu
