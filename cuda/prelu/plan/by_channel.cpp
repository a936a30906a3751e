// SPDX-License-Identifier: Apache-2.0
// by_channel: a block, or a cluster of blocks, takes all elements of its channels.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

// The least part of the multiprocessors that must have work, over all waves. Below it other mechanisms are faster.
constexpr double min_busy_for(int64_t num_bytes) {
  return num_bytes <= busy_few_bytes ? min_busy_of_few_bytes : min_busy;
}

// The largest number of vectors that a tile of `tile_elements` elements of a row overlaps.
int64_t vectors_of_tile(int64_t tile_elements, int64_t V) {
  return tile_elements % V == 0 ? tile_elements / V : (tile_elements - 2) / V + 2;
}

}  // namespace

bool plan_by_channel(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  const auto [outer, channels, inner, element_bytes] = problem.shape;
  const int64_t V = problem.vector_elements, row_elements = channels * inner;
  const PreluBackwardChoice& choice = problem.choice;
  if (!problem.is_common() || !problem.wants_sums() || !problem.is_whole() || inner < V || row_elements % V != 0 ||
      row_elements >= int64_t{1} << 30 || outer >= int64_t{1} << 30)
    return false;
  // Two tiles that share a vector both read it. In place, one could read what the other has written, so there tiles are
  // whole vectors.
  const bool is_in_place = problem.request.dx != nullptr &&
                           (problem.request.dx == problem.request.x || problem.request.dx == problem.request.dy);
  const int64_t channel_unit = is_in_place ? V / std::gcd(inner, V) : 1;
  const int64_t multiprocessors = problem.device.num_multiprocessors;
  const auto channels_for = [&](int64_t tiles) {
    return std::min(round_up(ceil_div(channels, tiles), channel_unit), round_up(channels, channel_unit));
  };
  // One block per multiprocessor, with 4 rows per thread in flight; or two, with 3.
  const int64_t vectors_of_two = vectors_of_tile(channels_for(2 * multiprocessors) * inner, V);
  const bool is_one_pass = vectors_of_two * ceil_div(outer, 3) <= max_backward_threads;
  const bool are_two = (element_bytes >= 4 || is_one_pass) && vectors_of_two >= min_vectors_of_two_blocks;
  const int64_t wanted_blocks = are_two ? 2 * multiprocessors : multiprocessors;
  const int64_t tile_channels = choice.tile_vectors > 0
                                    ? round_up(std::max<int64_t>(1, choice.tile_vectors * V / inner), channel_unit)
                                    : channels_for(wanted_blocks);
  const int64_t max_threads = choice.max_threads > 0   ? choice.max_threads
                              : are_two && is_one_pass ? max_backward_threads
                                                       : channel_block_threads;
  const int64_t tile_vectors = vectors_of_tile(tile_channels * inner, V);
  const int64_t num_tiles = ceil_div(channels, tile_channels);
  if (tile_vectors > max_threads) return false;
  int64_t blocks = std::bit_floor(static_cast<uint32_t>(std::max(1, choice.cluster_blocks)));
  while (choice.cluster_blocks == 0 && problem.device.capability >= 90 && blocks < max_cluster_blocks &&
         2 * blocks * num_tiles <= wanted_blocks && tile_vectors * ceil_div(outer, 2 * blocks) >= max_threads)
    blocks *= 2;
  while (blocks > 1 && blocks > outer) blocks /= 2;
  if (blocks > 1 && problem.device.capability < 90) return false;
  const int64_t rows_per_block = ceil_div(outer, blocks);
  const int64_t rows_in_flight = blocks > 1                     ? by_channel_rows_of_cluster(element_bytes)
                                 : choice.vectors_in_flight > 0 ? choice.vectors_in_flight
                                 : are_two                      ? 3
                                                                : 4;
  // All passes over the rows take about the same number of rows.
  const int64_t num_passes = ceil_div(rows_per_block, max_threads / tile_vectors * rows_in_flight);
  const int64_t tile_rows = ceil_div(rows_per_block, num_passes * rows_in_flight);
  const int64_t threads = std::max(round_up(tile_rows * tile_vectors, warp_lanes), warp_lanes * tile_channels);
  if (threads > max_backward_threads) return false;
  const int64_t num_bytes = problem.num_bytes();
  const double busy = static_cast<double>(channels * blocks) /
                      static_cast<double>(tile_channels * round_up(num_tiles * blocks, multiprocessors));
  if (!problem.is_forced() && num_bytes > latency_bytes &&
      (busy < min_busy_for(num_bytes) || ceil_div(rows_per_block, tile_rows) > max_channel_rows_of_thread ||
       num_bytes > max_channel_bytes || (blocks > 1 && tile_vectors < min_cluster_tile_vectors)))
    return false;

  ByChannelParams params;
  params.tensors = problem.tensors;
  params.tensors.dalpha = problem.request.dalpha;
  params.outer = static_cast<int32_t>(outer);
  params.channels = static_cast<int32_t>(channels);
  params.inner = static_cast<int32_t>(inner);
  params.row_vectors = static_cast<int32_t>(row_elements / V);
  params.tile_channels = static_cast<int32_t>(tile_channels);
  params.tile_rows = static_cast<int32_t>(tile_rows);
  params.rows_per_block = static_cast<int32_t>(rows_per_block);
  params.log2_cluster_blocks = std::countr_zero(static_cast<uint64_t>(blocks));
  params.step_vectors = tile_rows * params.row_vectors;
  params.tile_vectors = Divider(static_cast<uint32_t>(tile_vectors));
  params.by_inner = Divider(static_cast<uint32_t>(inner));
  const int64_t vectors_of_channel = (inner - 2) / V + 2;
  params.log2_vectors_at_once =
      std::min(5, static_cast<int>(std::bit_width(static_cast<uint64_t>(vectors_of_channel - 1))));
  params.num_sums = static_cast<int32_t>(tile_channels == 1 ? threads : 2 * threads);
  plan->gradient = ByChannel{static_cast<int32_t>(rows_in_flight), params};
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * blocks;
  plan->launch.shared_bytes = static_cast<int32_t>(params.num_sums * problem.sum_bytes);
  if (blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(blocks);
    plan->launch.shared_bytes +=
        static_cast<int32_t>(cluster_exchange_bytes(blocks * tile_channels, problem.sum_bytes));
  }
  return true;
}

}  // namespace flowk::prelu
