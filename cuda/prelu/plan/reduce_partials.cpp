// SPDX-License-Identifier: Apache-2.0
// The plan of the kernels that sum partials: reduce_partials.
#include <algorithm>
#include <bit>

#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

// If a channel has at most the terms that a warp loads at once, a warp sums it, in blocks of min_threads. Otherwise a
// block of up to max_row_sum_threads does. Not measured.
constexpr int64_t max_terms_of_warp = partials_in_flight * warp_lanes;
constexpr int64_t min_threads = 128;
// The partials that a block loads at once, and the most that it sums. If there are more, segments that a block loads at
// once are summed first.
constexpr int64_t block_terms = partials_in_flight * max_row_sum_threads;
constexpr int64_t max_block_terms = max_block_loads * block_terms;

// One kernel that sums segments of `rows_per_segment` rows.
void plan_reduction(const PreluBackwardProblem& problem, PartialLayout layout, ReducePartialsParams params,
                    PreluBackwardPlan* plan) {
  const bool is_channels_last = layout == PartialLayout::channels_last;
  const int64_t rows = params.rows_per_segment, terms = rows * params.run.divisor;  // per channel
  const int64_t num_segments = std::max<int64_t>(1, ceil_div(params.num_rows, rows));
  const int64_t block_channels = is_channels_last            ? sector_channels
                                 : terms > max_terms_of_warp ? 1
                                                             : min_threads / warp_lanes;
  const int64_t terms_of_block = is_channels_last || block_channels == 1 ? terms * block_channels : 0;
  int64_t threads = min_threads;
  while (threads < max_row_sum_threads && threads * partials_in_flight < terms_of_block) threads *= 2;
  params.log2_block_channels = std::countr_zero(static_cast<uint64_t>(block_channels));
  params.num_segments = Divider(static_cast<uint32_t>(num_segments));
  const int64_t num_shared_sums = is_channels_last ? threads : threads / warp_lanes;
  plan->reductions[plan->num_reductions++] = {
      .layout = layout,
      .launch = {.num_blocks = ceil_div(params.channels, block_channels) * num_segments,
                 .num_threads = static_cast<int32_t>(threads),
                 .shared_bytes = static_cast<int32_t>(num_shared_sums * problem.sum_bytes),
                 .uses_pdl = plan->launch.uses_pdl},
      .params = params};
}

}  // namespace

void plan_reductions(const PreluBackwardProblem& problem, const Partials& partials, PreluBackwardPlan* plan) {
  const int64_t channels = problem.shape.channels, rows = partials.num_rows;
  unsigned char* workspace = static_cast<unsigned char*>(problem.request.workspace);
  const bool is_rows_last = partials.row_stride == 1, is_double = problem.sum_bytes == 8;
  // Sums of float64 go by the strides of runs.
  const PartialLayout rows_last = is_double ? PartialLayout::runs : PartialLayout::rows_last;
  const PartialLayout layout = is_rows_last ? rows_last
                               : is_double || partials.inner > 1 || channels < sector_channels
                                   ? PartialLayout::runs
                                   : PartialLayout::channels_last;
  ReducePartialsParams params;
  params.partials = workspace;
  params.sums = problem.request.dalpha;
  params.sums_dtype = problem.request.alpha_dtype;
  params.num_rows = rows;
  params.rows_per_segment = std::max<int64_t>(1, rows);
  params.row_stride = partials.row_stride;
  params.column_stride = is_rows_last ? rows : partials.inner;
  params.channels = channels;
  params.run = Divider(static_cast<uint32_t>(partials.inner));
  plan->workspace_bytes = round_up(rows * channels * partials.inner * problem.sum_bytes, vector_bytes);
  const int64_t terms_of_row = layout == PartialLayout::channels_last ? sector_channels : partials.inner;  // per block
  if (rows * terms_of_row <= max_block_terms) return plan_reduction(problem, layout, params, plan);

  params.rows_per_segment = std::max({int64_t{1}, block_terms / terms_of_row, ceil_div(rows, max_segments)});
  params.sums = workspace + plan->workspace_bytes;
  params.sums_dtype = is_double ? FLOWK_FLOAT64 : FLOWK_FLOAT32;
  plan_reduction(problem, is_rows_last ? PartialLayout::runs : layout, params, plan);
  const int64_t num_segments = ceil_div(rows, params.rows_per_segment);
  plan->workspace_bytes += round_up(num_segments * channels * problem.sum_bytes, vector_bytes);
  params.partials = params.sums;
  params.sums = problem.request.dalpha;
  params.sums_dtype = problem.request.alpha_dtype;
  params.num_rows = params.rows_per_segment = params.column_stride = num_segments;
  params.row_stride = 1;
  params.run = Divider();
  plan_reduction(problem, rows_last, params, plan);
}

}  // namespace flowk::prelu
