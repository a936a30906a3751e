// SPDX-License-Identifier: Apache-2.0
// The plan of PReLU backward by whole channels: planes_of_channels.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/prelu_backward_problem.h"

namespace flowk::prelu {

namespace {

// Blocks of about this many threads, one for each multiprocessor or two. H200, of the time to move 3N, by one with 4
// rows a thread at once and by two with 3: f16 256x512x7x7 0.95 and 0.92, 14x14 0.98 and 0.94; f32 14x14 0.94 and 0.97,
// 256x512x7x7 0.92 and 0.96. Two are right as well where a block then has all its rows under way at once: f16
// 96x512x7x7 0.88 and 0.93.
constexpr int64_t wanted_threads = 416;
// And not where their tiles were less than 96 bytes of a row: f32 512x768x2x2 0.67, with twice as many 0.87.
constexpr int64_t min_packs_of_half = 6;
// Of the multiprocessors, that blocks keep busy: where channels divide badly among them, other kernels are faster.
// Less where a second kernel were a large part of the time: f16 35x607x8x8, 0.77 busy, 0.93; by planes 0.63.
constexpr int64_t max_bytes_of_few_busy = int64_t{4} << 20;
constexpr double min_busy(int64_t num_bytes) { return num_bytes <= max_bytes_of_few_busy ? 0.7 : 0.85; }
// Tensors that are all latency, whatever is busy.
constexpr int64_t max_small_bytes = int64_t{1} << 20;
// Rows that a thread steps over, and tensors: past these, spans of planes and a second kernel are faster. f32 28x28, 37
// MB: 30.4 us by spans, 31.0 so.
constexpr int64_t max_rows_of_thread = 32;
constexpr int64_t max_bytes_of_channel_planes = int64_t{32} << 20;

int64_t packs_of_tile(int64_t tile_elements, int64_t pack_elements) {
  return tile_elements % pack_elements == 0 ? tile_elements / pack_elements : (tile_elements - 2) / pack_elements + 2;
}

}  // namespace

bool plan_planes_of_channels(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  const auto [outer, channels, inner, element_bytes] = problem.shape;
  const int64_t V = problem.pack_elements, row_elements = channels * inner;
  const bool is_forced = problem.choice.kernel != 0;
  if (!has_kernels_of_its_own(problem) || problem.request.dalpha == nullptr || !is_whole(problem) || inner < V ||
      row_elements % V != 0 || row_elements >= int64_t{1} << 30 || outer >= int64_t{1} << 30)
    return false;
  // Tiles that share a pack both read it, which goes wrong where one has overwritten it.
  const bool is_in_place = problem.request.dx != nullptr &&
                           (problem.request.dx == problem.request.x || problem.request.dx == problem.request.dy);
  const int64_t unit = is_in_place ? V / std::gcd(inner, V) : 1;
  const int64_t multiprocessors = problem.device.num_multiprocessors;
  const auto channels_for = [&](int64_t tiles) {
    return std::min(round_up(ceil_div(channels, tiles), unit), round_up(channels, unit));
  };
  const int64_t packs_of_half = packs_of_tile(channels_for(2 * multiprocessors) * inner, V);
  const bool is_one_pass = packs_of_half * ceil_div(outer, 3) <= max_backward_threads;
  const bool are_two = (element_bytes >= 4 || is_one_pass) && packs_of_half >= min_packs_of_half;
  const int64_t slots = are_two ? 2 * multiprocessors : multiprocessors;
  const int64_t tile_channels = problem.choice.tile_packs > 0
                                    ? round_up(std::max<int64_t>(1, problem.choice.tile_packs * V / inner), unit)
                                    : channels_for(slots);
  const int64_t max_threads = problem.choice.max_threads > 0 ? problem.choice.max_threads
                              : are_two && is_one_pass       ? max_backward_threads
                                                             : wanted_threads;
  const int64_t tile_packs = packs_of_tile(tile_channels * inner, V);
  const int64_t num_tiles = ceil_div(channels, tile_channels);
  if (tile_packs > max_threads) return false;
  int64_t blocks = std::bit_floor(static_cast<uint32_t>(std::max(1, problem.choice.cluster_blocks)));
  while (problem.choice.cluster_blocks == 0 && problem.device.capability >= 90 && blocks < max_cluster_blocks &&
         2 * blocks * num_tiles <= slots && tile_packs * ceil_div(outer, 2 * blocks) >= max_threads)
    blocks *= 2;
  while (blocks > 1 && blocks > outer) blocks /= 2;
  if (blocks > 1 && problem.device.capability < 90) return false;
  const int64_t rows_per_slab = ceil_div(outer, blocks);
  const int64_t rows_at_once = problem.choice.packs_at_once > 0 ? problem.choice.packs_at_once : are_two ? 3 : 4;
  // So that the passes over the rows are as equal as can be.
  const int64_t num_passes = ceil_div(rows_per_slab, max_threads / tile_packs * rows_at_once);
  const int64_t tile_rows = ceil_div(rows_per_slab, num_passes * rows_at_once);
  const int64_t threads = std::max(round_up(tile_rows * tile_packs, warp_lanes), warp_lanes * tile_channels);
  if (threads > max_backward_threads) return false;
  const int64_t num_bytes = problem.num_packs * pack_bytes;
  const double busy = static_cast<double>(channels * blocks) /
                      static_cast<double>(tile_channels * round_up(num_tiles * blocks, multiprocessors));
  if (!is_forced && num_bytes > max_small_bytes &&
      (busy < min_busy(num_bytes) || ceil_div(rows_per_slab, tile_rows) > max_rows_of_thread ||
       num_bytes > max_bytes_of_channel_planes))
    return false;

  plan->kernel = PreluBackwardKernel::planes_of_channels;
  plan->packs_at_once = static_cast<int32_t>(rows_at_once);
  ChannelPlaneParams& params = plan->channel_planes;
  params.tensors = problem.tensors;
  params.tensors.dalpha = problem.request.dalpha;
  params.outer = static_cast<int32_t>(outer);
  params.channels = static_cast<int32_t>(channels);
  params.inner = static_cast<int32_t>(inner);
  params.row_packs = static_cast<int32_t>(row_elements / V);
  params.tile_channels = static_cast<int32_t>(tile_channels);
  params.tile_rows = static_cast<int32_t>(tile_rows);
  params.rows_per_slab = static_cast<int32_t>(rows_per_slab);
  params.step_packs = tile_rows * params.row_packs;
  params.tile_packs = Divider(static_cast<uint32_t>(tile_packs));
  params.by_inner = Divider(static_cast<uint32_t>(inner));
  const int64_t packs_of_channel = (inner - 2) / V + 2;
  params.log2_packs_at_once =
      std::min(5, static_cast<int>(std::bit_width(static_cast<uint64_t>(packs_of_channel - 1))));
  params.num_sums = static_cast<int32_t>(tile_channels == 1 ? threads : 2 * threads);
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * blocks;
  plan->launch.shared_bytes = static_cast<int32_t>(params.num_sums * problem.sum_bytes);
  params.log2_num_slabs = std::countr_zero(static_cast<uint64_t>(blocks));
  if (blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(blocks);
    plan->launch.shared_bytes += static_cast<int32_t>(cluster_area_bytes(blocks * tile_channels, problem.sum_bytes));
  }
  return true;
}

}  // namespace flowk::prelu
