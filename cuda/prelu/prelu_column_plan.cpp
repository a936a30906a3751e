// SPDX-License-Identifier: Apache-2.0
// The plans of PReLU backward over columns of packs.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/prelu_backward_problem.h"

namespace flowk {

namespace {

// ---- packs_of_columns, cluster_of_columns ---------------------------------------------------------------------------

// A tile of columns: how many packs of a row, and how many rows the block takes at a time.
struct Tile {
  int64_t packs;
  int64_t rows;
  int64_t channels;  // whose columns it has all; 0: of none
};

// Rows whose packs a thread loads before it uses any, of those it steps over.
int32_t columns_at_once(const PreluBackwardProblem& problem, int64_t rows_of_thread) {
  if (!is_whole(problem)) return 2;
  if (problem.choice.packs_at_once > 0) return problem.choice.packs_at_once;
  // f16 14x14, 10 rows a thread: 0.84 with 4, 0.80 with 8; 7x7, 5 rows: 0.75, 0.77.
  if (rows_of_thread > 8) return problem.shape.element_bytes >= 4 || rows_of_thread % 8 == 0 ? 8 : 4;
  return rows_of_thread > 4 ? 8 : rows_of_thread > 2 ? 4 : 2;
}

void plan_tile(const PreluBackwardProblem& problem, const Tile& tile, int64_t rows_per_slab, int64_t cluster_blocks,
               PreluBackwardPlan* plan) {
  ColumnParams& params = plan->columns;
  params.tile_packs = Divider(static_cast<uint32_t>(tile.packs));
  params.tile_rows = static_cast<int32_t>(tile.rows);
  params.rows_per_slab = static_cast<int32_t>(rows_per_slab);
  params.tile_channels = static_cast<int32_t>(tile.channels);
  const int64_t num_tiles = ceil_div(params.row_packs, tile.packs);
  params.num_tiles = Divider(static_cast<uint32_t>(std::min(num_tiles, int64_t{1} << 31)));
  const int64_t threads = round_up(tile.packs * tile.rows, 32);
  const int64_t tile_elements = tile.packs * problem.pack_elements;
  const int64_t num_parts = std::clamp<int64_t>(threads / tile_elements, 1, tile.rows);
  params.num_parts = static_cast<int32_t>(num_parts);
  params.threads_per_channel = lanes_for(tile.channels, std::max(problem.shape.inner, num_parts), threads);
  const int64_t num_slabs = round_up(ceil_div(params.num_rows, rows_per_slab), cluster_blocks);
  plan->packs_at_once = columns_at_once(problem, std::min(ceil_div(rows_per_slab, tile.rows), params.num_rows));
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * num_slabs;
  plan->launch.shared_bytes = static_cast<int32_t>((tile.rows + num_parts) * tile_elements * problem.sum_bytes);
  if (cluster_blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(cluster_blocks);
    plan->launch.shared_bytes +=
        static_cast<int32_t>(cluster_area_bytes(cluster_blocks * tile.channels, problem.sum_bytes));
  }
  if (problem.request.dalpha == nullptr) return;
  const int64_t num_partials = num_slabs / cluster_blocks;
  if (num_partials == 1 && tile.channels > 0) {
    params.tensors.dalpha = problem.request.dalpha;
    return;
  }
  params.tensors.partials = problem.request.workspace;
  if (tile.channels > 0)
    plan_sums_of_rows(problem, num_partials, plan);
  else
    plan_sums(problem,
              {.num_rows = num_partials,
               .num_columns = params.row_packs * problem.pack_elements,
               .row_stride = params.row_packs * problem.pack_elements,
               .column_stride = 1,
               .inner = problem.shape.inner,
               .periods = params.row_periods,
               .lead = problem.tensors.grid.lead},
              plan);
}

// The fewest whole packs that are whole periods of channels * inner elements make a row; all packs do where the tensor
// has no more periods than that.
void place_rows(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  ColumnParams& params = plan->columns;
  params.tensors = problem.tensors;
  const int64_t V = problem.pack_elements, period = problem.shape.channels * problem.shape.inner;
  params.row_periods = static_cast<int32_t>(std::min(V / std::gcd(period, V), problem.shape.outer));
  params.row_packs = std::min(period / std::gcd(period, V), problem.num_packs);
  params.num_rows = ceil_div(problem.num_packs, params.row_packs);
  params.alpha_access = alpha_access(problem.tensors.grid, problem.request.alpha, V);
}

// The fewest packs of whole channels, where tiles may begin with any of them; 0 where only a whole row will do.
int64_t packs_of_whole_channels(const PreluBackwardProblem& problem, const ColumnParams& params) {
  const bool is_ragged = params.row_packs * problem.pack_elements != problem.shape.channels * problem.shape.inner;
  if (params.row_periods > 1 || problem.tensors.grid.lead != 0 || is_ragged) return 0;
  return problem.shape.inner / std::gcd(problem.shape.inner, problem.pack_elements);
}

// Rows at a time for tiles of `packs`, so that a block of at most `max_threads` has as equal passes as can be over
// `num_rows`.
int64_t tile_rows_for(int64_t packs, int64_t num_rows, int64_t max_threads) {
  const int64_t most = std::max<int64_t>(1, max_threads / packs);
  return ceil_div(num_rows, ceil_div(num_rows, most));
}

// Planes too short for spans, which planes_of_channels has not taken, go by blocks, or clusters of blocks, that hold
// all rows of their channels: a second kernel costs 1 us and more. H200, of the time to move 3N: f16 14x14 0.84 so,
// 0.78 with a second kernel; f32 256x512x7x7 0.90, with blocks of 512 threads 0.82.
constexpr int64_t max_bytes_of_whole_columns = int64_t{32} << 20;
constexpr int64_t whole_threads(int64_t element_bytes) { return element_bytes >= 4 ? 256 : 512; }
constexpr int64_t max_rows_of_thread = 26;
constexpr int64_t wanted_threads_per_multiprocessor = 448;
// Channels last only where a block has few rows.
constexpr int64_t max_rows_of_thread_channels_last = 4;
constexpr int64_t min_packs_channels_last(int64_t element_bytes) { return element_bytes >= 4 ? 8 : 2; }
constexpr int64_t multiprocessors_of_a_tile = 16;

}  // namespace

bool plan_whole_columns(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  ColumnParams& params = plan->columns;
  const bool forced_cluster = problem.choice.kernel == 1 + static_cast<int>(PreluBackwardKernel::cluster_of_columns);
  const bool is_large = problem.num_packs * pack_bytes > max_bytes_of_whole_columns;
  if (problem.request.dalpha == nullptr || (is_large && !forced_cluster)) return false;
  place_rows(problem, plan);
  const int64_t V = problem.pack_elements;
  const bool is_channels_last = problem.shape.inner == 1;
  const int64_t max_threads = problem.choice.max_threads > 0 ? problem.choice.max_threads
                              : is_channels_last             ? max_prelu_threads
                                                             : whole_threads(problem.shape.element_bytes);
  const int64_t unit = packs_of_whole_channels(problem, params);
  const int64_t least = unit > 0 ? unit : params.row_packs;
  if (least > max_threads) return false;
  const auto tile_of = [&](int64_t packs, int64_t rows_of_block) {
    const int64_t channels = packs == params.row_packs ? problem.shape.channels : packs * V / problem.shape.inner;
    return Tile{packs, tile_rows_for(packs, rows_of_block, max_threads), channels};
  };
  // At least a sector of 32 bytes of each row, and more where that leaves a block for every multiprocessor.
  const auto packs_for = [&](int64_t blocks_per_tile) {
    const int64_t fewest = is_channels_last ? min_packs_channels_last(problem.shape.element_bytes) : 2;
    int64_t packs = unit > 0 ? round_up(std::min(fewest, params.row_packs), unit) : least;
    while (unit > 0 && 2 * packs <= std::min<int64_t>(16, params.row_packs) && 2 * packs <= max_threads &&
           params.row_packs / (2 * packs) * blocks_per_tile >= 2 * problem.device.num_multiprocessors)
      packs *= 2;
    if (problem.choice.tile_packs > 0 && unit > 0)
      packs = std::clamp(problem.choice.tile_packs / unit * unit, unit,
                         std::min(params.row_packs, max_threads / unit * unit));
    return packs;
  };
  const int64_t most_rows = is_channels_last ? max_rows_of_thread_channels_last : max_rows_of_thread;
  const auto rows_fit = [&](int64_t packs, int64_t rows) {
    return rows <= most_rows * std::max<int64_t>(1, max_threads / packs);
  };
  const int64_t packs = packs_for(1);
  const int64_t num_tiles = ceil_div(params.row_packs, packs);
  // With fewer only what is small anyway.
  const int64_t multiprocessors = problem.device.num_multiprocessors;
  const auto has_threads = [&](int64_t blocks_per_tile) {
    return num_tiles * blocks_per_tile * max_threads >= wanted_threads_per_multiprocessor * multiprocessors;
  };
  const bool has_blocks = is_channels_last ? num_tiles * multiprocessors_of_a_tile >= multiprocessors : has_threads(1);
  if (!forced_cluster && rows_fit(packs, params.num_rows) &&
      (params.num_rows == 1 || has_blocks || problem.num_packs <= 4 * max_threads)) {
    plan->kernel = PreluBackwardKernel::packs_of_columns;
    plan_tile(problem, tile_of(packs, params.num_rows), params.num_rows, 1, plan);
    return true;
  }
  if (!is_whole(problem) || problem.device.capability < 90) return false;
  if (is_channels_last && !forced_cluster) return false;
  int64_t blocks = problem.choice.cluster_blocks > 0 ? problem.choice.cluster_blocks : 2;
  while (problem.choice.cluster_blocks == 0 && blocks < max_cluster_blocks &&
         (!rows_fit(packs, ceil_div(params.num_rows, blocks)) || !has_threads(blocks)))
    blocks *= 2;
  while (blocks > 1 && blocks > params.num_rows) blocks /= 2;
  if (blocks == 1) return false;
  const int64_t cluster_packs = packs_for(blocks);
  const int64_t rows_per_slab =
      problem.choice.rows_per_slab > 0 ? problem.choice.rows_per_slab : ceil_div(params.num_rows, blocks);
  if (!forced_cluster && !rows_fit(cluster_packs, rows_per_slab)) return false;
  plan->kernel = PreluBackwardKernel::cluster_of_columns;
  plan_tile(problem, tile_of(cluster_packs, rows_per_slab), rows_per_slab, blocks, plan);
  return true;
}

namespace {

// Slabs of rows, for what packs_of_channels does not take. H200, channels last, of the time to move 3N: tiles of 8
// packs (128 bytes of each row) and 8 rows a thread, all at once; 256 threads from 64 MB on, 128 below that. A cluster
// of 8 sums its slabs up first where they are many: f32 28x28 0.93, without 0.90.
constexpr int64_t slab_tile_packs = 8;
constexpr int64_t slab_rows_of_thread = 8;
constexpr int64_t slab_rows_of_thread_whole = 16;  // of tiles that are whole rows: 100 channels f16 0.82, with 4 0.66
constexpr int64_t min_bytes_of_large_blocks = int64_t{64} << 20;
constexpr int64_t min_slab_threads_per_multiprocessor = 512;
constexpr int64_t min_slabs_of_clusters = 512;

}  // namespace

void plan_slabs(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  ColumnParams& params = plan->columns;
  place_rows(problem, plan);
  plan->kernel = PreluBackwardKernel::packs_of_columns;
  const int64_t num_bytes = problem.num_packs * pack_bytes;
  const int64_t unit = packs_of_whole_channels(problem, params);
  // Rows of few packs stay whole where they are not whole tiles.
  const bool has_tiles =
      unit > 0 && (params.row_packs % slab_tile_packs == 0 || params.row_packs > 4 * slab_tile_packs);
  const int64_t max_threads = problem.choice.max_threads > 0                         ? problem.choice.max_threads
                              : !has_tiles || num_bytes >= min_bytes_of_large_blocks ? max_prelu_threads
                                                                                     : max_prelu_threads / 2;
  const int64_t wanted = problem.choice.tile_packs > 0 ? problem.choice.tile_packs
                         : has_tiles                   ? std::max(slab_tile_packs, unit)
                                                       : max_threads;
  const int64_t most = std::min(wanted, max_threads);
  int64_t packs = ceil_div(params.row_packs, ceil_div(params.row_packs, most));
  int64_t channels = 0;
  if (packs == params.row_packs) {
    channels = problem.shape.channels;
  } else if (unit > 0 && unit <= most) {
    packs = std::min(round_up(packs, unit), most / unit * unit);
    channels = packs * problem.pack_elements / problem.shape.inner;
  }
  const int64_t tile_rows = std::min(std::max<int64_t>(1, max_threads / packs), params.num_rows);
  const int64_t num_tiles = ceil_div(params.row_packs, packs);
  // PreluPartials of columns are many: they are of more rows.
  int64_t rows_per_slab = (channels == 0 ? 128
                           : has_tiles   ? slab_rows_of_thread
                                         : slab_rows_of_thread_whole) *
                          tile_rows;
  const int64_t wanted_blocks = min_slab_threads_per_multiprocessor / max_threads * problem.device.num_multiprocessors;
  while (rows_per_slab > 2 * tile_rows && num_tiles * ceil_div(params.num_rows, rows_per_slab) < wanted_blocks)
    rows_per_slab = std::max(2 * tile_rows, rows_per_slab / 2);
  if (problem.choice.rows_per_slab > 0) rows_per_slab = round_up(problem.choice.rows_per_slab, tile_rows);
  const bool clusters = problem.choice.kernel == 0 && channels > 0 && is_whole(problem) &&
                        problem.device.capability >= 90 &&
                        ceil_div(params.num_rows, rows_per_slab) >= min_slabs_of_clusters;
  if (clusters) plan->kernel = PreluBackwardKernel::cluster_of_columns;
  plan_tile(problem, {packs, tile_rows, channels}, rows_per_slab, clusters ? max_cluster_blocks : 1, plan);
}

}  // namespace flowk
