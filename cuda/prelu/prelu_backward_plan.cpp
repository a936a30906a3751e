// SPDX-License-Identifier: Apache-2.0
// The plan of PReLU backward: which kernels, and the sums of their partials.
#include <algorithm>
#include <bit>

#include "prelu/prelu_backward_problem.h"

namespace flowk::prelu {

bool is_whole(const PreluBackwardProblem& problem) {
  const PreluBackwardTensors& tensors = problem.tensors;
  return tensors.grid.lead == 0 && tensors.x_shift == 0 && tensors.dy_shift == 0 &&
         tensors.grid.num_elements % problem.pack_elements == 0;
}

bool has_kernels_of_its_own(const PreluBackwardProblem& problem) {
  return has_kernels_of_its_own(problem.request.dtype, problem.request.alpha_dtype);
}

bool starts_early(const PreluBackwardProblem& problem) {
  return problem.choice.overlap != 1 && problem.device.capability >= 90;
}

PreluBackwardPlan start_plan(const PreluBackwardProblem& problem) {
  PreluBackwardPlan plan;
  plan.dtype = problem.request.dtype;
  plan.alpha_dtype = problem.request.alpha_dtype;
  plan.launch.uses_pdl = starts_early(problem);
  return plan;
}

int32_t lanes_for(int64_t num_sums, int64_t num_terms, int64_t threads) {
  int32_t lanes = 32;
  while (lanes > 1 && (lanes * num_sums > threads || lanes >= 2 * num_terms)) lanes /= 2;
  return lanes;
}

namespace {

// ---- the sums of partials -------------------------------------------------------------------------------------------

// A thread has 8 partials under way. Terms of a channel that a warp sums up alone, by 4 warps a block; past these a
// block takes them, of up to 1024 threads.
constexpr int64_t partials_in_flight = 8;
constexpr int64_t max_terms_of_warp = partials_in_flight * warp_lanes;
constexpr int64_t min_sum_threads = 128;
// Where channels are neighbours a block takes 8 or, of so few rows, 32. H200, f16, channels last, blocks of 8 channels
// and of 32: 14x14 of 256, 294 rows, 0.86, 0.82; 7x7 of 512, 74 rows, 0.78, 0.79.
constexpr int64_t max_rows_of_wide_blocks = 128;
constexpr int64_t wide_block_channels = 32;
// Partials that a block takes in at one access to memory, and at all: more are summed up in vectors of one access. f16,
// 100 channels of 57x57 last, 1088 rows (of 8 channels a block) at once 0.89, in vectors 0.85; 64 of 56x56, one element
// off, 3136 rows, 0.87, 0.91.
constexpr int64_t block_terms = partials_in_flight * max_row_sum_threads;
constexpr int64_t max_block_terms = 2 * block_terms;
constexpr int64_t max_vectors = 4096;

// One kernel that sums up vectors of `rows_per_vector` rows.
void plan_sum(const PreluBackwardProblem& problem, SumKernel kernel, PartialSumParams params, PreluBackwardPlan* plan) {
  const bool is_far = kernel == SumKernel::far_rows;
  const int64_t rows = params.rows_per_vector, terms = rows * params.run.divisor;  // of a channel
  const int64_t num_vectors = std::max<int64_t>(1, ceil_div(params.num_rows, rows));
  const int64_t block_channels = is_far ? rows > max_rows_of_wide_blocks ? sector_sums : wide_block_channels
                                 : terms > max_terms_of_warp ? 1
                                                             : min_sum_threads / warp_lanes;
  const int64_t terms_of_block = is_far || block_channels == 1 ? terms * block_channels : 0;
  int64_t threads = min_sum_threads;
  while (threads < max_row_sum_threads && threads * partials_in_flight < terms_of_block) threads *= 2;
  params.log2_block_channels = std::countr_zero(static_cast<uint64_t>(block_channels));
  params.num_vectors = Divider(static_cast<uint32_t>(num_vectors));
  plan->sum_kernels[plan->num_sums] = kernel;
  plan->sums_vectors[plan->num_sums] = num_vectors > 1 || problem.sum_bytes == 8;
  plan->sum_launches[plan->num_sums] = {
      .num_blocks = ceil_div(params.channels, block_channels) * num_vectors,
      .num_threads = static_cast<int32_t>(threads),
      .shared_bytes = static_cast<int32_t>((is_far ? threads : threads / warp_lanes) * problem.sum_bytes),
      .uses_pdl = starts_early(problem)};
  plan->sums[plan->num_sums++] = params;
}

}  // namespace

void plan_sums(const PreluBackwardProblem& problem, const PreluPartials& partials, PreluBackwardPlan* plan) {
  const int64_t channels = problem.shape.channels, rows = partials.num_rows;
  unsigned char* workspace = static_cast<unsigned char*>(problem.request.workspace);
  const bool is_near = partials.row_stride == 1, is_double = problem.sum_bytes == 8;
  const SumKernel kernel = is_double                                      ? SumKernel::runs
                           : is_near                                      ? SumKernel::near_rows
                           : partials.inner > 1 || channels < sector_sums ? SumKernel::runs
                                                                          : SumKernel::far_rows;
  PartialSumParams params;
  params.partials = workspace;
  params.sums = problem.request.dalpha;
  params.sums_dtype = problem.request.alpha_dtype;
  params.num_rows = rows;
  params.rows_per_vector = std::max<int64_t>(1, rows);
  params.row_stride = partials.row_stride;
  params.column_stride = is_near ? rows : partials.inner;
  params.channels = channels;
  params.run = Divider(static_cast<uint32_t>(partials.inner));
  plan->workspace_bytes = round_up(rows * channels * partials.inner * problem.sum_bytes, pack_bytes);
  const int64_t terms_of_row = kernel == SumKernel::far_rows ? sector_sums : partials.inner;  // that a block takes
  if (rows * terms_of_row > max_block_terms) {
    params.rows_per_vector = std::max({int64_t{1}, block_terms / terms_of_row, ceil_div(rows, max_vectors)});
    params.sums = workspace + plan->workspace_bytes;
    params.sums_dtype = is_double ? FLOWK_FLOAT64 : FLOWK_FLOAT32;
    plan_sum(problem, is_near ? SumKernel::runs : kernel, params, plan);
    const int64_t num_vectors = ceil_div(rows, params.rows_per_vector);
    plan->workspace_bytes += round_up(num_vectors * channels * problem.sum_bytes, pack_bytes);
    params.partials = params.sums;
    params.sums = problem.request.dalpha;
    params.sums_dtype = problem.request.alpha_dtype;
    params.num_rows = params.rows_per_vector = params.column_stride = num_vectors;
    params.row_stride = 1;
    params.run = Divider();
    return plan_sum(problem, is_double ? SumKernel::runs : SumKernel::near_rows, params, plan);
  }
  plan_sum(problem, kernel, params, plan);
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
  tensors.has_float_alpha = request.alpha_dtype == FLOWK_FLOAT32;
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
    if (request.dalpha != nullptr) plan_sums(problem, {.num_rows = 0, .row_stride = request.channels}, plan);
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

}  // namespace flowk::prelu
