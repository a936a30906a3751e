// SPDX-License-Identifier: Apache-2.0
// by_column: a thread keeps its vector of columns and steps over rows.
#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

// How many periods of channels * inner elements a row has. A row begins as the fewest periods that are whole 128-byte
// lines. It is halved, at most down to whole vectors, until there are min_rows_of_lines rows, which keep min_busy_rows
// of the threads busy.
int64_t periods_of_row(const PreluBackwardProblem& problem) {
  const int64_t V = problem.vector_elements, period = problem.shape.channels * problem.shape.inner;
  const auto periods_for = [&](int64_t elements) { return elements / std::gcd(period, elements); };
  constexpr int64_t tile_rows = max_prelu_threads / line_vectors;
  int64_t periods = periods_for(line_vectors * V);
  for (; periods > periods_for(V); periods /= 2) {
    const int64_t rows = problem.shape.outer / periods;
    if (rows >= min_rows_of_lines && static_cast<double>(rows) >= min_busy_rows * round_up(rows, tile_rows)) break;
  }
  return periods;
}

// Are there so few channels that a block can add up its columns of each?
bool may_fold(const PreluBackwardProblem& problem) {
  return problem.shape.inner == 1 && 2 * problem.shape.channels <= line_vectors * problem.vector_elements &&
         problem.num_vectors > line_vectors;
}

// Finds the whole vectors. Only the general kernel takes the partial vectors at the tensor's ends among them; for the
// other one they are listed.
void place_vectors(const PreluBackwardProblem& problem, bool is_general, ByColumnParams* params) {
  const int64_t misalignment = problem.tensors.grid.misalignment;
  int64_t end = problem.num_vectors;
  if (!is_general) {
    const auto add_partial = [&](int64_t vector) {
      params->partial_vectors[params->num_partial_vectors++] = {vector / params->row_vectors,
                                                                vector % params->row_vectors};
    };
    end = (problem.tensors.grid.num_elements + misalignment) / problem.vector_elements;
    params->first_vector = misalignment > 0 ? 1 : 0;
    if (misalignment > 0) add_partial(0);
    if (end < problem.num_vectors && (end > 0 || misalignment == 0)) add_partial(end);
  }
  params->num_whole_rows = end / params->row_vectors;
  params->last_row_vectors = end % params->row_vectors;
}

int64_t rows_of_block(const PreluBackwardProblem& problem) {
  return std::find_if(std::begin(row_blocks), std::end(row_blocks),
                      [&](const RowBlock& entry) { return problem.num_bytes() < entry.max_bytes; })
      ->rows;
}

}  // namespace

bool has_rows_of_lines(const PreluBackwardProblem& problem) {
  const int64_t line = line_vectors * problem.vector_elements;
  const int64_t periods = line / std::gcd(problem.shape.channels * problem.shape.inner, line);
  return problem.shape.outer / periods >= min_rows_of_lines_of_planes;
}

bool plan_by_column(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  const int64_t V = problem.vector_elements, outer = problem.shape.outer;
  const int64_t period = problem.shape.channels * problem.shape.inner;
  const PreluBackwardChoice& choice = problem.choice;
  ByColumnParams params;
  params.tensors = problem.tensors;
  const int64_t periods = std::min(periods_of_row(problem), outer);
  params.num_columns = periods * period;
  params.row_vectors = params.num_columns / V;
  if (params.num_columns % V != 0 || params.row_vectors >= problem.num_vectors) {
    params.row_vectors = problem.num_vectors;
    params.num_columns = outer * period;
    params.first_column = problem.tensors.grid.misalignment;
  }
  params.num_rows = ceil_div(problem.num_vectors, params.row_vectors);
  params.has_wide_rows = (params.row_vectors + line_vectors) * V + problem.tensors.grid.phase >= int64_t{1} << 31;

  const bool is_folded = may_fold(problem);
  const bool is_general = !problem.is_common() || !problem.is_aligned_alike();
  place_vectors(problem, is_general, &params);
  const int64_t tile_columns = line_vectors * V, num_tiles = ceil_div(params.row_vectors, line_vectors);
  const int64_t min_threads = std::max<int64_t>(64, tile_columns);  // each sums one column in the end
  int64_t threads = choice.max_threads > 0
                        ? std::clamp<int64_t>(std::bit_floor(static_cast<uint32_t>(choice.max_threads)), min_threads,
                                              max_prelu_threads)
                        : max_prelu_threads;
  while (threads > min_threads && threads / 2 >= params.num_rows * line_vectors) threads /= 2;

  const int64_t rows_per_block = choice.rows_per_block > 0 ? choice.rows_per_block : rows_of_block(problem);
  const int64_t num_row_blocks = ceil_div(params.num_rows, rows_per_block);
  params.rows_per_block = static_cast<int32_t>(rows_per_block);
  params.step_vectors = threads / line_vectors * params.row_vectors;
  params.num_tiles = Divider(static_cast<uint32_t>(std::min(num_tiles, int64_t{1} << 31)));

  const int64_t alpha_bytes = is_general ? problem.sum_bytes : problem.shape.element_bytes;
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * num_row_blocks;
  plan->launch.shared_bytes =
      static_cast<int32_t>(tile_columns * (threads / warp_lanes * problem.sum_bytes + alpha_bytes));
  const int64_t num_partials = num_row_blocks * (params.num_columns / period);
  params.is_dalpha = problem.wants_sums() && num_partials == 1 && problem.shape.inner == 1;
  if (params.is_dalpha) {
    params.tensors.dalpha = params.sums = problem.request.dalpha;
  } else if (problem.wants_sums()) {
    params.tensors.partials = params.sums = problem.request.workspace;
    params.is_folded = is_folded;
    const Partials rows_last = {.num_rows = plan->launch.num_blocks, .row_stride = 1};
    const Partials columns = {.num_rows = num_partials, .row_stride = period, .inner = problem.shape.inner};
    plan_reductions(problem, is_folded ? rows_last : columns, plan);
  }
  plan->gradient = ByColumn{is_general, params};
  return true;
}

}  // namespace flowk::prelu
