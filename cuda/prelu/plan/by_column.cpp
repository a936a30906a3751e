// SPDX-License-Identifier: Apache-2.0
// by_column: a thread keeps its vector of columns and steps over rows.
#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

// Rows per block, and vectors that a thread loads before it uses any. A tensor takes the first entry whose max_bytes it
// does not reach.
struct RowBlock {
  int64_t max_bytes;
  int64_t rows;
  int64_t vectors_in_flight;
};
constexpr int64_t any_bytes = int64_t{1} << 62;
// H200, fraction of the time to move 3N. Columns: (rows, vectors in flight).
//                         64,2   96,4   128,4
//   f16 1032x519, 1 MB    0.60   0.69   0.69
//   f16 6031x127, 1.5 MB  0.61   0.67   0.68
//   f16 7987x153, 2.4 MB  0.72   0.67   0.67
//   f16 21615x141, 6 MB   0.82   0.79   0.75
//   f16 57x57x100, 21 MB  0.885  0.895  0.90
//   f16 976800x55         0.88   0.97   0.975
//   f16 78802x813         0.95   0.96   0.95
//   f32 21615x141         0.89   0.88   0.875
//   f32 976800x55         0.98   0.99   0.97
//   f32 78802x813         0.97   0.97   0.97
constexpr RowBlock row_blocks[] = {{int64_t{2} << 20, 96, 4}, {int64_t{12} << 20, 64, 2}, {any_bytes, 96, 4}};
// ColumnForm::whole_channels:
//                         64,2   96,4   128,4
//   f16 7x7x512, 5 MB     0.85   0.82   0.80
//   f16 28x28x128, 19 MB  0.90   0.90   0.92
//   f16 56x56x64          0.92   0.94   0.95
//   f16 112x112x64        0.99   0.99   0.995
//   f32 28x28x128, 39 MB  0.965  0.96   0.95
//   f32 56x56x64, 77 MB   0.97   0.99   0.98
//   f32 112x112x64        1.00   1.01   1.00
constexpr RowBlock row_blocks_of_channels_16_bit[] = {{int64_t{16} << 20, 64, 2}, {any_bytes, 128, 4}};
constexpr RowBlock row_blocks_of_channels[] = {{int64_t{64} << 20, 64, 2}, {any_bytes, 96, 4}};
// Past so many blocks per tile of whole_channels, clusters of 8 add their sums before they write partials:
//                     blocks  clusters  without
//   f16 14x14x256     294     0.88      0.865
//   f16 7x7x512       196     0.88      0.895
//   f16 56x56x64      2352    0.95      0.89
//   f32 7x7x512       196     0.96      0.93
//   f32 28x28x128     1176    0.96      0.92
//   f32 56x56x64      3136    0.99      0.93
constexpr int64_t max_lone_blocks(int64_t element_bytes) { return element_bytes == 2 ? 256 : 128; }
// Rows so long that each is in a page of its own go by tiles of 512 bytes. f16, the table above and these:
//   4902x2633, 165 KB per row   0.87   0.90
//   3969x2829                   0.80   0.90
//   6549x2351                   0.82   0.92
//   73620x877, 110 KB per row   0.954  0.946
//   4096x1001, 8 MB             0.84   0.82
constexpr int64_t min_vectors_of_wide_tiles = 7500;
constexpr int64_t min_bytes_of_wide_tiles = int64_t{12} << 20;
constexpr RowBlock wide_row_block = {any_bytes, 64, 4};

// A row has as many periods as make whole lines of 128 bytes, where at least this many rows are left; or half as many
// where that keeps more threads busy (f16 4902x2633, 24 MB: 0.63 by 76 rows of lines).
constexpr int64_t min_rows_of_lines = 64;
constexpr double min_busy_rows = 0.9;
// Planes of 96 bytes and more go by_column where there are so many rows of lines. H200, by_column and by_plane:
//   f16 4279x205x8x8, 4279 rows                0.95  0.89
//   f16 96x512x7x7, one element off, 97 rows   0.75  0.71
//   f16 1000x301x11x11, 15 rows                0.81  0.87
//   f32 54574x9x73, 1705 rows                  0.91  0.85
//   f32 498597x2x5x5, 31162 rows               0.94  0.88
//   f32 35x607x8x8, 35 rows                    0.75  0.84
constexpr int64_t min_rows_of_lines_of_planes = 64;

// Periods of channels * inner elements per row.
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

// Few channels: a block adds up its columns of each channel.
bool may_fold(const PreluBackwardProblem& problem) {
  return problem.shape.inner == 1 && 2 * problem.shape.channels <= line_vectors * problem.vector_elements &&
         problem.num_vectors > line_vectors;
}

// Finds the whole vectors, and the partial ones of ColumnForm::aligned.
void place_vectors(const PreluBackwardProblem& problem, ColumnForm form, ByColumnParams* params) {
  const int64_t lead = problem.tensors.grid.lead;
  int64_t end = problem.num_vectors;
  if (form == ColumnForm::aligned) {
    const auto add_partial = [&](int64_t vector) {
      params->partial_vectors[params->num_partial_vectors++] = {vector / params->row_vectors,
                                                                vector % params->row_vectors};
    };
    end = (problem.tensors.grid.num_elements + lead) / problem.vector_elements;
    params->first_vector = lead > 0 ? 1 : 0;
    if (lead > 0) add_partial(0);
    if (end < problem.num_vectors && (end > 0 || lead == 0)) add_partial(end);
  }
  params->num_whole_rows = end / params->row_vectors;
  params->last_row_vectors = end % params->row_vectors;
}

RowBlock row_block_for(const PreluBackwardProblem& problem, ColumnForm form) {
  const auto find = [&](const auto& table) {
    return *std::find_if(std::begin(table), std::end(table),
                         [&](const RowBlock& entry) { return problem.num_bytes() < entry.max_bytes; });
  };
  if (form != ColumnForm::whole_channels) return find(row_blocks);
  return problem.shape.element_bytes == 2 ? find(row_blocks_of_channels_16_bit) : find(row_blocks_of_channels);
}

}  // namespace

bool has_whole_channels(const PreluBackwardProblem& problem) {
  return problem.shape.inner == 1 && problem.is_whole() && problem.shape.channels <= max_grid_blocks &&
         alpha_access(problem.tensors.grid, problem.request.alpha, problem.vector_elements) == AlphaAccess::consecutive;
}

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
    params.first_column = problem.tensors.grid.lead;
  }
  params.num_rows = ceil_div(problem.num_vectors, params.row_vectors);
  params.has_wide_rows = (params.row_vectors + wide_tile_vectors) * V + problem.tensors.grid.phase >= int64_t{1} << 31;

  const bool is_long = params.row_vectors >= min_vectors_of_wide_tiles &&
                       problem.num_bytes() >= min_bytes_of_wide_tiles && choice.rows_per_block == 0;
  const bool wants_wide_tiles = choice.tile_vectors >= wide_tile_vectors || is_long;
  const bool is_folded = may_fold(problem);
  const ColumnForm form = !problem.is_common() || !problem.is_aligned_alike()              ? ColumnForm::general
                          : has_whole_channels(problem) && !is_folded && !wants_wide_tiles ? ColumnForm::whole_channels
                                                                                           : ColumnForm::aligned;
  place_vectors(problem, form, &params);
  const bool is_wide = form == ColumnForm::aligned && wants_wide_tiles;
  const int64_t tile_vectors = is_wide ? wide_tile_vectors : line_vectors, tile_columns = tile_vectors * V;
  const int64_t num_tiles = ceil_div(params.row_vectors, tile_vectors);
  const int64_t min_threads = std::max<int64_t>(64, tile_columns);  // each sums one column in the end
  int64_t threads = choice.max_threads > 0
                        ? std::clamp<int64_t>(std::bit_floor(static_cast<uint32_t>(choice.max_threads)), min_threads,
                                              max_prelu_threads)
                        : max_prelu_threads;
  while (threads > min_threads && threads / 2 >= params.num_rows * tile_vectors) threads /= 2;

  const RowBlock row_block = is_wide ? wide_row_block : row_block_for(problem, form);
  int64_t rows_per_block = choice.rows_per_block > 0 ? choice.rows_per_block : row_block.rows;
  int64_t num_row_blocks = ceil_div(params.num_rows, rows_per_block);
  int64_t blocks = 1;  // of a cluster
  if (form == ColumnForm::whole_channels && problem.device.capability >= 90 && problem.wants_sums()) {
    if (choice.cluster_blocks > 0)
      blocks = std::bit_floor(static_cast<uint32_t>(choice.cluster_blocks));
    else if (num_row_blocks > max_lone_blocks(problem.shape.element_bytes))
      blocks = max_cluster_blocks;
  }
  while (blocks > num_row_blocks) blocks /= 2;
  if (blocks > 1) {  // so that all blocks of the last cluster have as many rows
    num_row_blocks = round_up(num_row_blocks, blocks);
    rows_per_block = ceil_div(params.num_rows, num_row_blocks);
  }
  params.tile_vectors = static_cast<int32_t>(tile_vectors);
  params.rows_per_block = static_cast<int32_t>(rows_per_block);
  params.log2_cluster_blocks = std::countr_zero(static_cast<uint64_t>(blocks));
  params.step_vectors = threads / tile_vectors * params.row_vectors;
  params.num_tiles = Divider(static_cast<uint32_t>(std::min(num_tiles, int64_t{1} << 31)));

  const int64_t in_flight = choice.vectors_in_flight > 0 ? choice.vectors_in_flight : row_block.vectors_in_flight;
  const bool is_short_cluster = blocks > 1 && problem.shape.element_bytes < by_column_bytes_of_short_clusters;
  const int64_t vectors_in_flight = form == ColumnForm::general                    ? 1
                                    : is_wide || is_short_cluster || in_flight > 2 ? 4
                                                                                   : 2;
  const int64_t alpha_bytes = form == ColumnForm::whole_channels ? 0
                              : form == ColumnForm::aligned      ? problem.shape.element_bytes
                                                                 : problem.sum_bytes;
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * num_row_blocks;
  plan->launch.shared_bytes =
      static_cast<int32_t>(tile_columns * (threads / warp_lanes * problem.sum_bytes + alpha_bytes));
  if (blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(blocks);
    plan->launch.shared_bytes += static_cast<int32_t>(cluster_exchange_bytes(blocks * tile_columns, problem.sum_bytes));
  }
  const int64_t num_partials = num_row_blocks / blocks * (params.num_columns / period);
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
  plan->gradient = ByColumn{form, static_cast<int32_t>(vectors_in_flight), params};
  return true;
}

}  // namespace flowk::prelu
