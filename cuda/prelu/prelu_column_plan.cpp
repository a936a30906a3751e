// SPDX-License-Identifier: Apache-2.0
// The plans of PReLU backward over columns of packs.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/prelu_backward_problem.h"

namespace flowk::prelu {

namespace {

bool is_of_channels(const PreluBackwardProblem& problem) {
  return problem.shape.inner == 1 && is_whole(problem) &&
         alpha_access(problem.tensors.grid, problem.request.alpha, problem.pack_elements) ==
             AlphaAccess::vector_per_pack &&
         problem.shape.channels <= max_grid_blocks;
}

// ---- warp_columns ---------------------------------------------------------------------------------------------------

// H200, 96x512: a warp a block, 64 blocks, f16 1.24 us; two warps a block 1.35; packs_of_columns 1.37.
constexpr int64_t max_bytes_of_warp_columns = int64_t{1} << 20;
constexpr int64_t max_rows_of_warp = 4 * 32;

}  // namespace

bool plan_warp_columns(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  if (!has_kernels_of_its_own(problem) || !is_of_channels(problem) || problem.request.dalpha == nullptr ||
      problem.shape.outer > max_rows_of_warp || problem.num_packs * pack_bytes > max_bytes_of_warp_columns)
    return false;
  plan->kernel = PreluBackwardKernel::warp_columns;
  plan->packs_at_once = 4;
  ColumnParams& params = plan->columns;
  params.tensors = problem.tensors;
  params.tensors.dalpha = params.sums = problem.request.dalpha;
  params.num_rows = problem.shape.outer;
  params.row_packs = problem.shape.channels / problem.pack_elements;
  params.step_packs = int64_t{32} * params.row_packs;
  plan->launch.num_threads = 32;
  plan->launch.num_blocks = plan->columns.row_packs;
  return true;
}

namespace {

// ---- packs_of_columns -----------------------------------------------------------------------------------------------

// Rows of a slab, and packs that a thread loads before it uses any. Tensors of so many bytes take the row after which
// there is none, or a larger one. H200, of the time to move 3N.
struct Slab {
  int64_t max_bytes;
  int64_t rows;
  int64_t packs_at_once;
};
constexpr int64_t any_bytes = int64_t{1} << 62;
// Slabs of 64 rows, 2 at once, of 96 rows, 4 at once, of 128, 4. f16: 1032x519, 1 MB, 0.60, 0.69, 0.69; 6031x127, 1.5
// MB, 0.61, 0.67, 0.68; 7987x153, 2.4 MB, 0.72, 0.67, 0.67; 21615x141, 6 MB, 0.82, 0.79, 0.75; 57x57 of 100 channels
// last, 21 MB, 0.885, 0.895, 0.90; 976800x55 0.88, 0.97, 0.975; 78802x813 0.95, 0.96, 0.95. f32: 21615x141 0.89, 0.88,
// 0.875; 976800x55 0.98, 0.99, 0.97; 78802x813 all 0.97.
constexpr Slab slabs_of_rows[] = {{int64_t{2} << 20, 96, 4}, {int64_t{12} << 20, 64, 2}, {any_bytes, 96, 4}};
// Whole channels, the same slabs. f16: 7x7 of 512, 5 MB, 0.85, 0.82, 0.80; 28x28 of 128, 19 MB, 0.90, 0.90, 0.92; 56x56
// of 64, 0.92, 0.94, 0.95; 112x112 0.99, 0.99, 0.995. f32: 28x28, 39 MB, 0.965, 0.96, 0.95; 56x56, 77 MB, 0.97, 0.99,
// 0.98; 112x112 1.00, 1.01, 1.00.
constexpr Slab slabs_of_channels_16_bit[] = {{int64_t{16} << 20, 64, 2}, {any_bytes, 128, 4}};
constexpr Slab slabs_of_channels[] = {{int64_t{64} << 20, 64, 2}, {any_bytes, 96, 4}};
// Where more whole slabs than these have partials of one channel, a cluster of 8 sums them up first. f16 14x14 of 256,
// 294 slabs, 0.88 so, 0.865 without; 7x7 of 512, 196, 0.88, 0.895; 56x56 of 64, 2352, 0.95, 0.89. f32 7x7, 196, 0.96,
// 0.93; 28x28 of 128, 1176, 0.96, 0.92; 56x56 of 64, 3136, 0.99, 0.93.
constexpr int64_t most_slabs(int64_t element_bytes) { return element_bytes == 2 ? 256 : 128; }
// Long rows go by tiles of 512 bytes of them, where neighbouring rows are so far apart that each is in a page of its
// own: f16, slabs of 96 rows and these: 4902x2633, 165 KB a row, 0.87, 0.90; 3969x2829 0.80, 0.90; 6549x2351 0.82,
// 0.92; 73620x877, 110 KB, 0.954, 0.946; 4096x1001, 8 MB, 0.84, 0.82.
constexpr int64_t min_packs_of_wide_tiles = 7500;
constexpr int64_t min_bytes_of_wide_tiles = int64_t{12} << 20;
constexpr Slab wide_slab = {any_bytes, 64, 4};

// Rows of as many periods as are whole lines of 128 bytes, where that many of those rows are left; fewer, where that
// keeps more of the threads busy: f16 4902x2633, 24 MB, 0.63 by 76 rows of lines.
constexpr int64_t min_rows_of_lines = 64;
constexpr double min_busy_rows = 0.9;
// Planes past 96 bytes go so too where there are many: f16 4279x205x8x8, 4279 rows, 0.95, by planes 0.89; 96x512x7x7
// one element off, 97 rows, 0.75, 0.71; 1000x301x11x11, 15 rows, 0.81 by shorter ones, 0.87. f32 54574x9x73, 1705 rows,
// 0.91, 0.85; 498597x2x5x5, 31162 rows, 0.94, 0.88; 35x607x8x8, 35 rows, 0.75, 0.84.
constexpr int64_t min_rows_of_lines_of_planes = 64;

// Periods of channels * inner elements that make a row.
int64_t periods_of_row(const PreluBackwardProblem& problem) {
  const int64_t V = problem.pack_elements, period = problem.shape.channels * problem.shape.inner;
  const auto periods_for = [&](int64_t elements) { return elements / std::gcd(period, elements); };
  constexpr int64_t tile_rows = max_prelu_threads / line_packs;
  int64_t periods = periods_for(line_packs * V);
  for (; periods > periods_for(V); periods /= 2) {
    const int64_t rows = problem.shape.outer / periods;
    if (rows >= min_rows_of_lines && static_cast<double>(rows) >= min_busy_rows * round_up(rows, tile_rows)) break;
  }
  return periods;
}

}  // namespace

bool has_rows_of_lines(const PreluBackwardProblem& problem) {
  const int64_t line = line_packs * problem.pack_elements;
  const int64_t periods = line / std::gcd(problem.shape.channels * problem.shape.inner, line);
  return problem.shape.outer / periods >= min_rows_of_lines_of_planes;
}

namespace {

// Few channels: a block sums up its columns of each.
bool may_fold(const PreluBackwardProblem& problem) {
  return problem.shape.inner == 1 && 2 * problem.shape.channels <= line_packs * problem.pack_elements &&
         problem.num_packs > line_packs;
}

ColumnPacks column_packs_of(const PreluBackwardProblem& problem, bool is_wide) {
  if (!has_kernels_of_its_own(problem) || problem.tensors.x_shift != 0 || problem.tensors.dy_shift != 0)
    return ColumnPacks::general;
  const bool is_folded = may_fold(problem);
  return is_of_channels(problem) && !is_folded && !is_wide ? ColumnPacks::whole_channels : ColumnPacks::aligned;
}

// Which packs exist, and as a whole.
void place_column_packs(const PreluBackwardProblem& problem, ColumnPacks column_packs, ColumnParams* params) {
  const int64_t V = problem.pack_elements, lead = problem.tensors.grid.lead;
  int64_t end = problem.num_packs;
  if (column_packs == ColumnPacks::aligned) {
    const auto add_edge = [&](int64_t pack) {
      params->edges[params->num_edges++] = {pack / params->row_packs, pack % params->row_packs};
    };
    end = (problem.tensors.grid.num_elements + lead) / V;
    params->first_pack = lead > 0 ? 1 : 0;
    if (lead > 0) add_edge(0);
    if (end < problem.num_packs && (end > 0 || lead == 0)) add_edge(end);
  }
  params->num_whole_rows = end / params->row_packs;
  params->last_row_packs = end % params->row_packs;
}

template <size_t kSlabs>
Slab slab_for(const Slab (&slabs)[kSlabs], int64_t num_bytes) {
  return *std::find_if(slabs, slabs + kSlabs, [&](const Slab& slab) { return num_bytes < slab.max_bytes; });
}

Slab slab_for(const PreluBackwardProblem& problem, ColumnPacks column_packs) {
  const int64_t num_bytes = problem.num_packs * pack_bytes;
  if (column_packs != ColumnPacks::whole_channels) return slab_for(slabs_of_rows, num_bytes);
  return problem.shape.element_bytes == 2 ? slab_for(slabs_of_channels_16_bit, num_bytes)
                                          : slab_for(slabs_of_channels, num_bytes);
}

}  // namespace

void plan_columns(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  const int64_t V = problem.pack_elements, period = problem.shape.channels * problem.shape.inner;
  const PreluBackwardChoice& choice = problem.choice;
  ColumnParams& params = plan->columns;
  params.tensors = problem.tensors;
  const int64_t periods = std::min(periods_of_row(problem), problem.shape.outer);
  params.num_columns = periods * period;
  params.row_packs = params.num_columns / V;
  if (params.num_columns % V != 0 || params.row_packs >= problem.num_packs) {
    params.row_packs = problem.num_packs;
    params.num_columns = problem.shape.outer * period;
    params.first_column = problem.tensors.grid.lead;
  }
  params.num_rows = ceil_div(problem.num_packs, params.row_packs);
  params.has_wide_rows = (params.row_packs + wide_tile_packs) * V + problem.tensors.grid.phase >= int64_t{1} << 31;
  const bool is_long = params.row_packs >= min_packs_of_wide_tiles &&
                       problem.num_packs * pack_bytes >= min_bytes_of_wide_tiles && choice.rows_per_slab == 0;
  plan->column_packs = column_packs_of(problem, choice.tile_packs >= wide_tile_packs || is_long);
  place_column_packs(problem, plan->column_packs, &params);
  const bool is_wide = plan->column_packs == ColumnPacks::aligned && (choice.tile_packs >= wide_tile_packs || is_long);
  const int64_t tile_packs = is_wide ? wide_tile_packs : line_packs, tile_columns = tile_packs * V;
  const int64_t num_tiles = ceil_div(params.row_packs, tile_packs);
  const int64_t min_threads = std::max<int64_t>(64, tile_columns);  // each sums up a column in the end
  int64_t threads = choice.max_threads > 0
                        ? std::clamp<int64_t>(std::bit_floor(static_cast<uint32_t>(choice.max_threads)), min_threads,
                                              max_prelu_threads)
                        : max_prelu_threads;
  while (threads > min_threads && threads / 2 >= params.num_rows * tile_packs) threads /= 2;
  const Slab slab = is_wide ? wide_slab : slab_for(problem, plan->column_packs);
  int64_t rows_per_slab = choice.rows_per_slab > 0 ? choice.rows_per_slab : slab.rows;
  int64_t num_slabs = ceil_div(params.num_rows, rows_per_slab);
  const bool may_cluster = plan->column_packs == ColumnPacks::whole_channels && !is_wide &&
                           problem.device.capability >= 90 && problem.request.dalpha != nullptr;
  const int64_t wanted_blocks = choice.cluster_blocks > 0 ? std::bit_floor(static_cast<uint32_t>(choice.cluster_blocks))
                                : num_slabs > most_slabs(problem.shape.element_bytes) ? max_cluster_blocks
                                                                                      : 1;
  int64_t blocks = may_cluster ? wanted_blocks : 1;
  while (blocks > num_slabs) blocks /= 2;
  if (blocks > 1) {  // so that all blocks of the last cluster have as many rows
    num_slabs = round_up(num_slabs, blocks);
    rows_per_slab = ceil_div(params.num_rows, num_slabs);
  }
  params.tile_packs = static_cast<int32_t>(tile_packs);
  params.rows_per_slab = static_cast<int32_t>(rows_per_slab);
  params.step_packs = threads / tile_packs * params.row_packs;
  params.num_tiles = Divider(static_cast<uint32_t>(std::min(num_tiles, int64_t{1} << 31)));
  plan->kernel = PreluBackwardKernel::packs_of_columns;
  const int64_t at_once = choice.packs_at_once > 0 ? choice.packs_at_once : slab.packs_at_once;
  plan->packs_at_once = plan->column_packs == ColumnPacks::general ? 1
                        : plan->column_packs == ColumnPacks::aligned
                            ? 4
                            : static_cast<int32_t>(std::clamp<int64_t>(at_once, 2, 4));
  const int64_t num_blocks = num_tiles * num_slabs;
  const int64_t kept_alpha_bytes =
      plan->column_packs == ColumnPacks::general ? problem.sum_bytes : problem.shape.element_bytes;
  const bool keeps_alphas = plan->column_packs != ColumnPacks::whole_channels;
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_blocks;
  plan->launch.shared_bytes = static_cast<int32_t>(
      tile_columns * (threads / warp_lanes * problem.sum_bytes + (keeps_alphas ? kept_alpha_bytes : 0)));
  params.log2_cluster_blocks = std::countr_zero(static_cast<uint64_t>(blocks));
  if (blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(blocks);
    plan->launch.shared_bytes += static_cast<int32_t>(cluster_area_bytes(blocks * tile_columns, problem.sum_bytes));
  }
  if (problem.request.dalpha == nullptr) return;
  const int64_t num_partials = num_slabs / blocks * (params.num_columns / period);
  params.is_dalpha = num_partials == 1 && problem.shape.inner == 1;
  if (params.is_dalpha) {
    params.tensors.dalpha = params.sums = problem.request.dalpha;
    return;
  }
  params.tensors.partials = params.sums = problem.request.workspace;
  params.is_folded = may_fold(problem);
  if (params.is_folded)
    plan_sums(problem, {.num_rows = num_blocks, .row_stride = 1}, plan);
  else
    plan_sums(problem, {.num_rows = num_partials, .row_stride = period, .inner = problem.shape.inner}, plan);
}

}  // namespace flowk::prelu
