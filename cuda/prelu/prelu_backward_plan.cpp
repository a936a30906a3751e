// SPDX-License-Identifier: Apache-2.0
// The plan of PReLU backward: which kernels, and the sums of their partials.
#include <algorithm>
#include <bit>

#include "prelu/prelu_backward_problem.h"

namespace flowk {

bool is_whole(const PreluBackwardProblem& problem) {
  const PreluBackwardTensors& tensors = problem.tensors;
  return tensors.grid.lead == 0 && tensors.x_shift == 0 && tensors.dy_shift == 0 &&
         tensors.grid.num_elements % problem.pack_elements == 0;
}

bool starts_early(const PreluBackwardProblem& problem) {
  return problem.choice.overlap != 1 && problem.device.capability >= 90;
}

PreluBackwardPlan start_plan(const PreluBackwardProblem& problem) {
  PreluBackwardPlan plan;
  plan.dtype = problem.request.dtype;
  plan.alpha_dtype = problem.request.alpha_dtype;
  plan.is_whole = is_whole(problem);
  plan.launch.overlaps_previous = starts_early(problem);
  return plan;
}

int32_t lanes_for(int64_t num_sums, int64_t num_terms, int64_t threads) {
  int32_t lanes = 32;
  while (lanes > 1 && (lanes * num_sums > threads || lanes >= 2 * num_terms)) lanes /= 2;
  return lanes;
}

namespace {

// ---- the sums of partials -------------------------------------------------------------------------------------------

// A thread has 8 partials under way, so that a block of 512 threads takes in 4096 partials in the time of one access to
// memory. More rows than these are summed up by two kernels, the first of them in chunks.
constexpr int64_t partials_at_once = 8 * max_sum_threads;
constexpr int64_t max_rows_of_one_kernel = 2 * partials_at_once;
constexpr int64_t min_rows_of_a_chunk = 1024;
constexpr int64_t min_row_sum_threads = 128;
constexpr int64_t max_terms_of_warp = 256;
// Rows that one block sums up where the channels are neighbours, 1024 at a time. H200, f16, channels last, blocks of 8
// channels and of 32: 14x14 of 256, 294 rows, 0.86, 0.82; 7x7 of 512, 74 rows, 0.78, 0.79.
constexpr int64_t max_far_rows = 2048;
constexpr int64_t max_rows_of_wide_blocks = 128;

// Where channels are neighbours, a kernel's blocks each sum up 8 of them (a sector of 32 bytes of a row of partials),
// or fewer where one access to memory would not take in all rows.
void plan_one_sum(const PreluBackwardProblem& problem, PartialSumParams params, PreluBackwardPlan* plan) {
  int64_t block_channels = params.column_stride == 1 ? 8 : 1;
  const int64_t rows = params.rows_per_chunk;
  while (block_channels > 1 && (block_channels / 2 >= params.channels || rows * block_channels > partials_at_once))
    block_channels /= 2;
  int32_t threads = 64;
  while (threads < max_sum_threads && threads / block_channels * 8 < rows) threads *= 2;
  const int64_t num_tiles = ceil_div(params.channels, block_channels);
  const int64_t num_chunks = std::max<int64_t>(1, ceil_div(params.num_rows, params.rows_per_chunk));
  params.log2_block_channels = std::countr_zero(static_cast<uint64_t>(block_channels));
  params.num_tiles = Divider(static_cast<uint32_t>(std::min(num_tiles, int64_t{1} << 31)));
  LaunchConfig& launch = plan->sum_launches[plan->num_sums];
  launch.num_blocks = num_tiles * num_chunks;
  launch.num_threads = threads;
  launch.shared_bytes = static_cast<int32_t>(threads / 32 * block_channels * problem.sum_bytes);
  launch.overlaps_previous = starts_early(problem);
  plan->sums[plan->num_sums++] = params;
}

}  // namespace

void plan_sums(const PreluBackwardProblem& problem, const PreluPartials& partials, PreluBackwardPlan* plan) {
  PartialSumParams params;
  unsigned char* workspace = static_cast<unsigned char*>(problem.request.workspace);
  params.partials = workspace;
  params.sums = problem.request.dalpha;
  params.num_rows = partials.num_rows;
  params.rows_per_chunk = std::max<int64_t>(1, partials.num_rows);
  params.num_columns = partials.num_columns;
  params.row_stride = partials.row_stride;
  params.column_stride = partials.column_stride;
  params.channels = problem.shape.channels;
  params.inner = partials.inner;
  plan->workspace_bytes = round_up(partials.num_rows * partials.num_columns * problem.sum_bytes, pack_bytes);
  const SumKernel kernel = params.row_stride == 1                              ? SumKernel::near_rows
                           : params.inner > 1 || params.channels < sector_sums ? SumKernel::runs
                                                                               : SumKernel::far_rows;
  const int64_t num_terms = partials.num_rows * partials.inner;  // of a channel
  if (params.channels <= max_grid_blocks &&
      num_terms <= (kernel == SumKernel::far_rows ? max_far_rows : max_near_rows)) {
    const bool is_far = kernel == SumKernel::far_rows;
    const int64_t block_channels = !is_far && num_terms > max_terms_of_warp ? 1
                                   : !is_far                                ? min_row_sum_threads / warp_lanes
                                   : num_terms > max_rows_of_wide_blocks    ? sector_sums
                                                                            : 32;
    int64_t threads = min_row_sum_threads;
    while ((is_far || block_channels == 1) && threads < max_row_sum_threads && threads * 8 < num_terms * block_channels)
      threads *= 2;
    params.run = Divider(static_cast<uint32_t>(params.inner));
    params.log2_block_channels = std::countr_zero(static_cast<uint64_t>(block_channels));
    plan->last_sum = kernel;
    plan->sum_launches[0] = {
        .num_blocks = ceil_div(params.channels, block_channels),
        .num_threads = static_cast<int32_t>(threads),
        .shared_bytes = static_cast<int32_t>((is_far ? threads : threads / warp_lanes) * problem.sum_bytes),
        .overlaps_previous = starts_early(problem)};
    plan->sums[plan->num_sums++] = params;
    return;
  }
  if (partials.num_rows <= max_rows_of_one_kernel) return plan_one_sum(problem, params, plan);
  params.rows_per_chunk = std::max(min_rows_of_a_chunk, ceil_div(partials.num_rows, max_rows_of_one_kernel));
  const int64_t num_chunks = ceil_div(partials.num_rows, params.rows_per_chunk);
  params.sums = workspace + plan->workspace_bytes;
  plan_one_sum(problem, params, plan);
  params.partials = params.sums;
  params.sums = problem.request.dalpha;
  params.num_rows = params.rows_per_chunk = num_chunks;
  params.num_columns = params.row_stride = problem.shape.channels;
  params.column_stride = 1;
  params.inner = 1;
  plan->workspace_bytes += round_up(num_chunks * params.num_columns * problem.sum_bytes, pack_bytes);
  plan_one_sum(problem, params, plan);
}

void plan_sums_of_rows(const PreluBackwardProblem& problem, int64_t num_rows, PreluBackwardPlan* plan) {
  const int64_t channels = problem.shape.channels;
  plan_sums(problem, {.num_rows = num_rows, .num_columns = channels, .row_stride = channels, .column_stride = 1}, plan);
}

namespace {

PreluBackwardProblem make_problem(const PreluBackwardRequest& request, const Device& device,
                                  const PreluBackwardChoice& choice) {
  PreluBackwardProblem problem = {
      request, device,
      choice,  {request.outer, request.channels, request.inner, element_bytes_of(request.dtype)},
      0,       request.dtype == FLOWK_FLOAT64 ? 8 : 4,
      {},      0};
  problem.pack_elements = pack_bytes / problem.shape.element_bytes;
  // Packs are aligned in dx; where it is not wanted, in x.
  const void* aligned = request.dx != nullptr ? request.dx : request.x;
  PreluBackwardTensors& tensors = problem.tensors;
  place_packs(problem.shape, aligned, &tensors.grid);
  tensors.dy = request.dy;
  tensors.x = request.x;
  tensors.alpha = request.alpha;
  tensors.dx = request.dx;
  tensors.dy_shift = shift_of(request.dy, aligned);
  tensors.x_shift = shift_of(request.x, aligned);
  if (tensors.grid.num_elements > 0)
    problem.num_packs = ceil_div(tensors.grid.num_elements + tensors.grid.lead, problem.pack_elements);
  return problem;
}

}  // namespace

bool plan_prelu_backward(const PreluBackwardRequest& request, const Device& device, const PreluBackwardChoice& choice,
                         PreluBackwardPlan* plan) {
  const PreluBackwardProblem problem = make_problem(request, device, choice);
  *plan = start_plan(problem);
  if (problem.num_packs == 0) {
    plan->kernel = PreluBackwardKernel::nothing;
    if (request.dalpha != nullptr) plan_sums_of_rows(problem, 0, plan);
    return true;
  }
  switch (choice.kernel - 1) {
    case static_cast<int>(PreluBackwardKernel::planes_of_channels): return plan_planes_of_channels(problem, plan);
    case static_cast<int>(PreluBackwardKernel::spans_of_planes): return plan_spans(problem, plan);
    case static_cast<int>(PreluBackwardKernel::warp_columns): return plan_warp_columns(problem, plan);
    case static_cast<int>(PreluBackwardKernel::packs_of_planes): return plan_planes(problem, plan);
    case static_cast<int>(PreluBackwardKernel::packs_of_columns): plan_columns(problem, plan); return true;
    default: break;
  }
  if (plan_planes_of_channels(problem, plan) || plan_spans(problem, plan) || plan_warp_columns(problem, plan))
    return true;
  *plan = start_plan(problem);
  if (plan_planes(problem, plan)) return true;
  plan_columns(problem, plan);
  return true;
}

int64_t prelu_backward_workspace_bytes(const PreluBackwardRequest& request, const Device& device) {
  int64_t most = 0;
  const int64_t element_bytes = element_bytes_of(request.dtype);
  for (int64_t lead = 0; lead < pack_bytes / element_bytes; ++lead)
    for (const int64_t x_distance : {int64_t{0}, element_bytes, int64_t{4096}}) {  // in place, misaligned, neither
      PreluBackwardRequest placed = request;                                       // its pointers are never followed
      placed.dx = reinterpret_cast<void*>(static_cast<uintptr_t>(4096 + lead * element_bytes));
      placed.x = static_cast<const unsigned char*>(placed.dx) + x_distance;
      placed.dy = reinterpret_cast<void*>(static_cast<uintptr_t>(lead * element_bytes));
      placed.dalpha = reinterpret_cast<void*>(uintptr_t{4096});
      PreluBackwardPlan plan;
      plan_prelu_backward(placed, device, {}, &plan);
      most = std::max(most, plan.workspace_bytes);
    }
  return most;
}

}  // namespace flowk
