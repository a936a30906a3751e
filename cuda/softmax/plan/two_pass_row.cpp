// SPDX-License-Identifier: Apache-2.0
// two_pass_row takes every call: chooses its threads and blocks.
#include <algorithm>
#include <cstdint>

#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {

// Blocks of a cluster have at least 32 KB of a row; the second pass then finds it in L2.
SoftmaxConfig choose_two_pass_row(const SoftmaxCall& call) {
  constexpr int32_t elements_per_lane = 8;
  constexpr int64_t min_block_bytes = 32768;
  SoftmaxConfig config;
  config.mechanism = TwoPassRow{};
  config.lanes_per_row = std::min(lanes_for(call.request.columns, elements_per_lane), max_row_threads);
  config.block_threads =
      block_threads_for(config.lanes_per_row, elements_per_lane * call.in_bytes, min_short_row_threads);
  if (config.lanes_per_row == max_row_threads) {
    int32_t blocks = 1;
    while (blocks < max_cluster_blocks && call.row_bytes / (2 * blocks) >= min_block_bytes) blocks *= 2;
    config.cluster_blocks = cluster_blocks_for(call, blocks);
  }
  return config;
}

bool fits(const SoftmaxCall&, const SoftmaxConfig& config, const TwoPassRow&) {
  return config.cluster_blocks == 1 || config.lanes_per_row >= warp_lanes;
}

void fill(const SoftmaxCall& call, TwoPassRow& mechanism, SoftmaxPlan* plan) {
  // Columns of tails have one thread each.
  mechanism.reads_vectors =
      call.vectors_agree && plan->config.lanes_per_row >= warp_lanes && !call.request.batch_invariant;
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const TwoPassRow&) {
  return find_kernel(query_of(call, SoftmaxKernel::two_pass_row));
}

}  // namespace flowk::softmax
