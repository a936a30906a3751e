// SPDX-License-Identifier: Apache-2.0
// The plan of PReLU backward by whole channels: planes_of_channels.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/prelu_backward_problem.h"

namespace flowk {

namespace {

// Blocks of about this many threads, one for each multiprocessor. H200, f16 96x512x7x7: 5.9 us so, 6.1 with two blocks
// of half as many threads.
constexpr int64_t wanted_threads = 416;
constexpr int64_t warp_lanes = 32;
// Of the multiprocessors, that blocks keep busy: where channels divide badly among them, other kernels are faster.
constexpr double min_busy = 0.85;
// Tensors that are all latency, whatever is busy.
constexpr int64_t max_small_bytes = int64_t{1} << 20;
// Rows that a thread steps over: with more, spans of planes and a second kernel are faster.
constexpr int64_t max_rows_of_thread = 32;

// Rows at a time, and how many of them a thread loads before it uses any.
struct Pace {
  int64_t tile_rows;
  int64_t rows_at_once;
};

// So that the passes over `num_rows` are as equal as can be, with the most threads at work.
Pace pace_of(int64_t num_rows, int64_t tile_packs, int64_t max_threads, int64_t forced_rows_at_once) {
  Pace best = {0, 0};
  for (const int64_t at_once : {4, 3, 6}) {
    if (at_once == 6 && forced_rows_at_once != 6) continue;
    if (forced_rows_at_once > 0 && at_once != forced_rows_at_once) continue;
    const int64_t most = max_threads / tile_packs;
    const int64_t passes = ceil_div(num_rows, most * at_once);
    const int64_t tile_rows = ceil_div(num_rows, passes * at_once);
    if (tile_rows > best.tile_rows) best = {tile_rows, at_once};
  }
  return best;
}

}  // namespace

bool plan_planes_of_channels(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  const auto [outer, channels, inner, element_bytes] = problem.shape;
  const int64_t V = problem.pack_elements, row_elements = channels * inner;
  const bool is_forced = problem.choice.kernel != 0;
  if (problem.request.dalpha == nullptr || !is_whole(problem) || inner < V || row_elements % V != 0 ||
      row_elements >= int64_t{1} << 30 || outer >= int64_t{1} << 30)
    return false;
  // Tiles that share a pack both read it, which goes wrong where one has overwritten it.
  const bool is_in_place = problem.request.dx != nullptr &&
                           (problem.request.dx == problem.request.x || problem.request.dx == problem.request.dy);
  const int64_t unit = is_in_place ? V / std::gcd(inner, V) : 1;
  const int64_t multiprocessors = problem.device.num_multiprocessors;
  const int64_t wanted_channels = problem.choice.tile_packs > 0
                                      ? std::max<int64_t>(1, problem.choice.tile_packs * V / inner)
                                      : ceil_div(channels, multiprocessors);
  const int64_t tile_channels = std::min(round_up(wanted_channels, unit), round_up(channels, unit));
  const int64_t max_threads = problem.choice.max_threads > 0 ? problem.choice.max_threads : wanted_threads;
  const int64_t tile_elements = tile_channels * inner;
  const int64_t tile_packs = tile_elements % V == 0 ? tile_elements / V : (tile_elements - 2) / V + 2;
  const int64_t num_tiles = ceil_div(channels, tile_channels);
  if (tile_packs > max_threads) return false;
  int64_t blocks = problem.choice.cluster_blocks > 0 ? problem.choice.cluster_blocks : 1;
  while (problem.choice.cluster_blocks == 0 && problem.device.capability >= 90 && blocks < max_cluster_blocks &&
         2 * blocks * num_tiles <= multiprocessors && tile_packs * ceil_div(outer, 2 * blocks) >= max_threads)
    blocks *= 2;
  while (blocks > 1 && blocks > outer) blocks /= 2;
  if (blocks > 1 && problem.device.capability < 90) return false;
  const int64_t rows_per_slab = ceil_div(outer, blocks);
  const Pace pace = pace_of(rows_per_slab, tile_packs, max_threads, problem.choice.packs_at_once);
  const int64_t threads = std::max(round_up(pace.tile_rows * tile_packs, warp_lanes), warp_lanes * tile_channels);
  if (pace.tile_rows == 0 || threads > max_backward_threads) return false;
  const bool is_small = problem.num_packs * pack_bytes <= max_small_bytes;
  const double busy = static_cast<double>(channels * blocks) /
                      static_cast<double>(tile_channels * round_up(num_tiles * blocks, multiprocessors));
  if (!is_forced && !is_small && (busy < min_busy || ceil_div(rows_per_slab, pace.tile_rows) > max_rows_of_thread))
    return false;

  plan->kernel = PreluBackwardKernel::planes_of_channels;
  plan->packs_at_once = static_cast<int32_t>(pace.rows_at_once);
  ChannelPlaneParams& params = plan->channel_planes;
  params.tensors = problem.tensors;
  params.tensors.dalpha = problem.request.dalpha;
  params.outer = static_cast<int32_t>(outer);
  params.channels = static_cast<int32_t>(channels);
  params.inner = static_cast<int32_t>(inner);
  params.row_packs = static_cast<int32_t>(row_elements / V);
  params.tile_channels = static_cast<int32_t>(tile_channels);
  params.tile_rows = static_cast<int32_t>(pace.tile_rows);
  params.rows_per_slab = static_cast<int32_t>(rows_per_slab);
  params.step_packs = pace.tile_rows * params.row_packs;
  params.tile_packs = Divider(static_cast<uint32_t>(tile_packs));
  params.by_inner = Divider(static_cast<uint32_t>(inner));
  const int64_t packs_of_channel = (inner - 2) / V + 2;
  params.log2_packs_at_once =
      std::min(5, static_cast<int>(std::bit_width(static_cast<uint64_t>(packs_of_channel - 1))));
  params.num_sums = static_cast<int32_t>(tile_channels == 1 ? threads : 2 * threads);
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * blocks;
  plan->launch.shared_bytes = static_cast<int32_t>(params.num_sums * problem.sum_bytes);
  if (blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(blocks);
    plan->launch.shared_bytes += static_cast<int32_t>(cluster_area_bytes(blocks * tile_channels, problem.sum_bytes));
  }
  return true;
}

}  // namespace flowk
