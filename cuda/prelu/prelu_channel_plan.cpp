// SPDX-License-Identifier: Apache-2.0
// The plans of PReLU backward over packs of whole channels, channels last.
#include <algorithm>

#include "prelu/prelu_backward_problem.h"

namespace flowk {

namespace {

bool is_of_channels(const PreluBackwardProblem& problem) {
  return problem.shape.inner == 1 && is_whole(problem) &&
         alpha_access(problem.tensors.grid, problem.request.alpha, problem.pack_elements) ==
             AlphaAccess::vector_per_pack &&
         problem.shape.channels <= max_grid_blocks;
}

ChannelParams params_of(const PreluBackwardProblem& problem) {
  ChannelParams params;
  params.tensors = problem.tensors;
  params.sums = problem.request.dalpha;
  params.is_dalpha = true;
  params.num_rows = problem.shape.outer;
  params.num_channels = problem.shape.channels;
  params.row_packs = static_cast<int32_t>(problem.shape.channels / problem.pack_elements);
  return params;
}

// ---- warp_columns ---------------------------------------------------------------------------------------------------

// H200, 96x512: a warp a block, 64 blocks, f16 1.24 us; two warps a block 1.35; packs_of_channels 1.37.
constexpr int64_t max_bytes_of_warp_columns = int64_t{1} << 20;
constexpr int64_t max_rows_of_warp = 4 * 32;

}  // namespace

bool plan_warp_columns(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  if (!is_of_channels(problem) || problem.request.dalpha == nullptr || problem.shape.outer > max_rows_of_warp ||
      problem.num_packs * pack_bytes > max_bytes_of_warp_columns)
    return false;
  plan->kernel = PreluBackwardKernel::warp_columns;
  plan->packs_at_once = problem.shape.outer > 64 ? 4 : 2;
  plan->channels = params_of(problem);
  plan->channels.step_packs = int64_t{32} * plan->channels.row_packs;
  plan->launch.num_threads = 32;
  plan->launch.num_blocks = plan->channels.row_packs;
  return true;
}

namespace {

// ---- packs_of_channels ----------------------------------------------------------------------------------------------

// Rows of a slab: as many as leave blocks enough. H200, f16 96x512x7x7: 6.4 us with slabs of 128 rows, 6.5 with 64;
// f16 96x128x28x28: 17.0 with 256, 17.1 with 128. Where slabs are many, a cluster of 8 sums them up first: f16
// 96x256x14x14 10.0 us so, 10.2 without.
constexpr int64_t most_rows_of_slab = 256;
constexpr int64_t fewest_rows_of_slab = 64;
constexpr int64_t blocks_of_multiprocessor(int64_t rows_per_slab) { return rows_per_slab > 128 ? 4 : 2; }
constexpr int64_t min_slabs_of_clusters = 128;

}  // namespace

bool plan_channels(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  if (!is_of_channels(problem)) return false;
  ChannelParams params = params_of(problem);
  const int64_t num_tiles = ceil_div(params.row_packs, channel_tile_packs);
  // Not where a quarter of the lanes and more would have no channels.
  if (problem.choice.kernel == 0 && params.row_packs * 4 <= num_tiles * channel_tile_packs * 3) return false;
  const int64_t threads = problem.choice.max_threads > 0
                              ? std::clamp(problem.choice.max_threads / 64 * 64, 64, max_prelu_threads)
                              : max_prelu_threads;
  const int64_t tile_rows = threads / channel_tile_packs;
  int64_t rows_per_slab = problem.choice.rows_per_slab > 0 ? problem.choice.rows_per_slab : most_rows_of_slab;
  while (problem.choice.rows_per_slab == 0 && rows_per_slab > fewest_rows_of_slab &&
         num_tiles * ceil_div(params.num_rows, rows_per_slab) <
             blocks_of_multiprocessor(rows_per_slab) * problem.device.num_multiprocessors)
    rows_per_slab /= 2;
  const int64_t num_slabs = ceil_div(params.num_rows, rows_per_slab);
  const bool wants_dalpha = problem.request.dalpha != nullptr;
  int64_t blocks = 1;
  if (wants_dalpha && problem.device.capability >= 90)
    blocks = problem.choice.cluster_blocks > 0    ? problem.choice.cluster_blocks
             : num_slabs >= min_slabs_of_clusters ? max_cluster_blocks
                                                  : 1;
  const int64_t tile_channels = channel_tile_packs * problem.pack_elements;
  params.rows_per_slab = static_cast<int32_t>(rows_per_slab);
  params.step_packs = tile_rows * params.row_packs;
  params.num_tiles = Divider(static_cast<uint32_t>(num_tiles));
  plan->kernel = PreluBackwardKernel::packs_of_channels;
  plan->packs_at_once = problem.choice.packs_at_once > 0 ? problem.choice.packs_at_once
                        : rows_per_slab > 2 * tile_rows  ? 4
                                                         : 2;
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * round_up(num_slabs, blocks);
  plan->launch.shared_bytes = static_cast<int32_t>(threads / 32 * tile_channels * problem.sum_bytes);
  if (blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(blocks);
    plan->launch.shared_bytes += static_cast<int32_t>(cluster_area_bytes(blocks * tile_channels, problem.sum_bytes));
  }
  const int64_t num_partials = ceil_div(num_slabs, blocks);
  if (wants_dalpha && num_partials > 1) {
    params.is_dalpha = false;
    params.sums = problem.request.workspace;
    plan_sums_of_rows(problem, num_partials, plan);
  }
  plan->channels = params;
  return true;
}

}  // namespace flowk
