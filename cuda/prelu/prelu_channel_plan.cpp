// SPDX-License-Identifier: Apache-2.0
// The plans of PReLU backward over packs of whole channels, channels last.
#include <algorithm>
#include <iterator>

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
  params.tensors.dalpha = params.sums = problem.request.dalpha;
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

// Rows of a slab, and packs that a thread loads before it uses any. H200, of the time to move 3N, slabs of 64 rows with
// 2 packs at once, 128 with 4, 256 with 4: f16 7x7 0.82, 0.81, 0.77; 14x14 0.89, 0.86, 0.85; 28x28 0.91, 0.91, 0.90;
// 56x56 0.93, 0.93, 0.94; f32 7x7 0.88, 0.85, -; 14x14 0.92, 0.91, 0.87. 256 with 8: f32 112x112 1.00, with 4 0.97.
struct Slab {
  int64_t min_bytes;  // of the tensor
  int64_t rows;
  int64_t packs_at_once;
};
constexpr Slab slabs[] = {{int64_t{64} << 20, 256, 8}, {int64_t{32} << 20, 256, 4}, {0, 64, 2}};
// Where slabs are many, a cluster of 8 sums them up first: f16 14x14 0.89 so, 0.87 by clusters of 4, 0.86 without.
constexpr int64_t min_slabs_of_clusters = 128;

}  // namespace

bool plan_channels(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  if (!is_of_channels(problem)) return false;
  ChannelParams params = params_of(problem);
  const int64_t num_tiles = ceil_div(params.row_packs, channel_tile_packs);
  // Not where more than an eighth of the lanes has no channels: f32 57x57 of 100 channels, 25 packs, 0.77, by
  // clusters of columns 0.90.
  if (problem.choice.kernel == 0 && params.row_packs * 8 < num_tiles * channel_tile_packs * 7) return false;
  const int64_t threads = problem.choice.max_threads > 0
                              ? std::clamp(problem.choice.max_threads / 64 * 64, 64, max_prelu_threads)
                              : max_prelu_threads;
  const int64_t tile_rows = threads / channel_tile_packs;
  const Slab& slab = *std::find_if(std::begin(slabs), std::end(slabs),
                                   [&](const Slab& row) { return problem.num_packs * pack_bytes >= row.min_bytes; });
  const int64_t rows_per_slab = problem.choice.rows_per_slab > 0 ? problem.choice.rows_per_slab : slab.rows;
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
  plan->packs_at_once =
      static_cast<int32_t>(problem.choice.packs_at_once > 0 ? problem.choice.packs_at_once : slab.packs_at_once);
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
    params.tensors.dalpha = nullptr;
    params.tensors.partials = params.sums = problem.request.workspace;
    plan_sums_of_rows(problem, num_partials, plan);
  }
  plan->channels = params;
  return true;
}

}  // namespace flowk
