// SPDX-License-Identifier: Apache-2.0
// The plans of PReLU backward over columns of packs.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/prelu_backward_problem.h"

namespace flowk {

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
  if (!is_of_channels(problem) || problem.request.dalpha == nullptr || problem.shape.outer > max_rows_of_warp ||
      problem.num_packs * pack_bytes > max_bytes_of_warp_columns)
    return false;
  plan->kernel = PreluBackwardKernel::warp_columns;
  plan->packs_at_once = problem.shape.outer > 64 ? 4 : 2;
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

// Rows of a slab, and packs that a thread loads before it uses any. H200, of the time to move 3N.
struct Slab {
  int64_t rows;
  int64_t packs_at_once;
};
// A block takes its rows in 2 passes, both under way at once, or in 4 while so many blocks a multiprocessor are left.
// f16, slabs of 64 rows and of 128: rows of channels, 21615x141 0.69, 0.73; 221734x499 0.93, 0.95. Whole channels take
// 2: 14x14 of 256 channels last 0.86, 0.85; 7x7 of 512 0.78, 0.74. Where not 2 passes but 3 or 1: 21615x141 0.65;
// 392x3123 0.50, with 2 0.68.
constexpr int64_t min_blocks_per_multiprocessor = 2;
// Large tensors of whole channels: f32 112x112 1.00, with 4 packs at once 0.97.
constexpr int64_t min_bytes_of_large_slabs = int64_t{64} << 20;
constexpr Slab large_slab = {256, 8};
// Where a channel had more partials than this, a cluster of 8 sums them up first: f16, whole channels, 294 of them,
// 14x14 0.84 so, 0.86 without; 4704, 56x56 of 64 channels 0.93 so, by slabs of 256 rows 0.91; f32, 196, 256x7x7 of 512
// channels 0.93 so, 0.89 without. Rows of others, 1792 of them, 221734x499 0.93 so, 0.95 without; of fewer channels
// than a sector holds, 3456, 234x234 of 3 channels last 0.69 so, 0.58 without; large ones by larger slabs, 224x224 of 3
// 0.84, 0.78 without clusters.
constexpr int64_t most_partials_of_large_slabs = 128;
constexpr int64_t most_partials_of_whole_channels(int64_t element_bytes) { return element_bytes >= 4 ? 128 : 512; }
constexpr int64_t most_partials_of_few_channels = 512;
constexpr int64_t most_partials_of_rows = 2048;
constexpr int64_t min_bytes_of_cluster_slabs = int64_t{16} << 20;
constexpr Slab cluster_slab = {256, 4};

// Rows of as many periods as are whole lines of 128 bytes, where that many of those rows are left; fewer, where that
// keeps more of the threads busy: f16 4902x2633, 24 MB, 0.63 by 76 rows of lines.
constexpr int64_t min_rows_of_lines = 64;
constexpr double min_busy_rows = 0.9;
// Planes past 96 bytes go so too where there are many: f16 4279x205x8x8, 4279 rows, 0.95, by planes 0.89; 54574x9x73,
// 852 rows, 0.81, 0.73; 1000x301x11x11, 15 rows, 0.81 by shorter ones, 0.87. f32 498597x2x5x5, 31162 rows, 0.94, 0.88.
constexpr int64_t min_rows_of_lines_of_planes = 256;

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

ColumnPacks column_packs_of(const PreluBackwardProblem& problem) {
  if (is_of_channels(problem)) return ColumnPacks::whole_channels;
  return problem.tensors.x_shift == 0 && problem.tensors.dy_shift == 0 ? ColumnPacks::aligned : ColumnPacks::shifted;
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

constexpr int64_t wide_tile_packs = 32;

struct Slabs {
  Slab slab;
  bool clusters;
};

Slabs slabs_for(const PreluBackwardProblem& problem, const ColumnParams& params, ColumnPacks column_packs,
                int64_t tile_packs, int64_t tile_rows) {
  const int64_t num_bytes = problem.num_packs * pack_bytes;
  const auto partials_of = [&](const Slab& slab) {  // of a channel
    return ceil_div(params.num_rows, slab.rows) * (params.num_columns / problem.shape.channels);
  };
  const Slab two_passes = {2 * tile_rows, 2}, four_passes = {4 * tile_rows, 2};
  if (column_packs == ColumnPacks::whole_channels) {
    if (num_bytes >= min_bytes_of_large_slabs)
      return {large_slab, !params.is_folded && partials_of(large_slab) >= most_partials_of_large_slabs};
    return {two_passes, !params.is_folded &&
                            partials_of(two_passes) > most_partials_of_whole_channels(problem.shape.element_bytes)};
  }
  const int64_t num_fours = ceil_div(params.num_rows, four_passes.rows) * ceil_div(params.row_packs, tile_packs);
  const bool are_many = num_fours >= min_blocks_per_multiprocessor * problem.device.num_multiprocessors;
  const Slab slab = are_many ? four_passes : two_passes;
  const int64_t most_partials = problem.shape.inner > 1                ? near_rows_at_once
                                : problem.shape.channels < sector_sums ? most_partials_of_few_channels
                                                                       : most_partials_of_rows;
  if (params.is_folded || partials_of(slab) <= most_partials) return {slab, false};
  return {num_bytes >= min_bytes_of_cluster_slabs ? cluster_slab : slab, true};
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
  plan->column_packs = column_packs_of(problem);
  place_column_packs(problem, plan->column_packs, &params);
  const bool wants_dalpha = problem.request.dalpha != nullptr, is_shifted = plan->column_packs == ColumnPacks::shifted;
  const int64_t tile_packs = choice.tile_packs >= wide_tile_packs && !is_shifted ? wide_tile_packs : line_packs;
  const int64_t num_tiles = ceil_div(params.row_packs, tile_packs), tile_columns = tile_packs * V;
  const int64_t min_threads = std::max<int64_t>(64, tile_columns);  // each sums up a column in the end
  int64_t threads = choice.max_threads > 0
                        ? std::clamp<int64_t>(std::bit_floor(static_cast<uint32_t>(choice.max_threads)), min_threads,
                                              max_prelu_threads)
                        : max_prelu_threads;
  while (threads > min_threads && threads / 2 >= params.num_rows * tile_packs) threads /= 2;
  const int64_t tile_rows = threads / tile_packs;
  const bool may_cluster = wants_dalpha && problem.device.capability >= 90 && !is_shifted && params.num_rows > 1 &&
                           tile_packs == line_packs && choice.cluster_blocks != 1;
  params.is_folded = wants_dalpha && problem.shape.inner == 1 && 2 * problem.shape.channels <= tile_columns &&
                     choice.cluster_blocks <= 1 && params.num_columns > period;
  const Slabs slabs = slabs_for(problem, params, plan->column_packs, tile_packs, tile_rows);
  int64_t rows_per_slab = choice.rows_per_slab > 0 ? choice.rows_per_slab : slabs.slab.rows;
  if (params.is_folded && choice.rows_per_slab == 0)
    while (num_tiles * ceil_div(params.num_rows, rows_per_slab) > near_rows_at_once) rows_per_slab *= 2;
  int64_t num_slabs = ceil_div(params.num_rows, rows_per_slab);
  int64_t blocks = !may_cluster                ? 1
                   : choice.cluster_blocks > 0 ? choice.cluster_blocks
                   : slabs.clusters            ? max_cluster_blocks
                                               : 1;
  while (blocks > num_slabs) blocks /= 2;
  if (blocks > 1) {  // so that all blocks of the last cluster have as many rows
    num_slabs = round_up(num_slabs, blocks);
    rows_per_slab = ceil_div(params.num_rows, num_slabs);
  }
  params.tile_packs = static_cast<int32_t>(tile_packs);
  params.rows_per_slab = static_cast<int32_t>(rows_per_slab);
  params.step_packs = tile_rows * params.row_packs;
  params.num_tiles = Divider(static_cast<uint32_t>(std::min(num_tiles, int64_t{1} << 31)));
  plan->kernel = PreluBackwardKernel::packs_of_columns;
  // What there are kernels for.
  const int64_t most_at_once = plan->column_packs == ColumnPacks::whole_channels ? 8 : is_shifted ? 2 : 4;
  plan->packs_at_once =
      tile_packs == wide_tile_packs
          ? 4
          : static_cast<int32_t>(
                std::min(choice.packs_at_once > 0 ? choice.packs_at_once : slabs.slab.packs_at_once, most_at_once));
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * num_slabs;
  plan->launch.shared_bytes = static_cast<int32_t>(threads / 32 * tile_columns * problem.sum_bytes);
  if (plan->column_packs != ColumnPacks::whole_channels)
    plan->launch.shared_bytes += static_cast<int32_t>(tile_columns * element_bytes_of(problem.request.alpha_dtype));
  if (blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(blocks);
    plan->launch.shared_bytes += static_cast<int32_t>(cluster_area_bytes(blocks * tile_columns, problem.sum_bytes));
  }
  if (!wants_dalpha) return;
  if (params.is_folded) {
    params.tensors.partials = params.sums = problem.request.workspace;
    const int64_t num_blocks = plan->launch.num_blocks;
    plan_sums(problem, {.num_rows = num_blocks, .num_columns = period, .row_stride = 1, .column_stride = num_blocks},
              plan);
    return;
  }
  const int64_t num_partials = num_slabs / blocks * (params.num_columns / period);
  params.is_dalpha = num_partials == 1 && problem.shape.inner == 1;
  if (params.is_dalpha) {
    params.tensors.dalpha = params.sums = problem.request.dalpha;
    return;
  }
  params.tensors.partials = params.sums = problem.request.workspace;
  plan_sums(problem,
            {.num_rows = num_partials,
             .num_columns = period,
             .row_stride = period,
             .column_stride = 1,
             .inner = problem.shape.inner},
            plan);
}

}  // namespace flowk
