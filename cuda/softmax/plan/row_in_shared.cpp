// SPDX-License-Identifier: Apache-2.0
// row_in_shared: chooses the threads and blocks of a row, and finds the bytes of shared memory that its vectors need.
#include <algorithm>
#include <cstdint>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {
namespace {

int64_t shared_vectors(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return std::max<int64_t>(vectors_from_line(call, config) - shared_row_register_vectors, 0);
}

int64_t offset_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return round_up(exchange_bytes(call, config), vector_bytes);
}

int64_t shared_memory_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return offset_bytes(call, config) +
         shared_vectors(call, config) * config.block_threads * call.num_inputs * vector_bytes;
}

}  // namespace

SoftmaxConfig choose_row_in_shared(const SoftmaxCall& call, const SoftmaxTuningRow& tuning) {
  SoftmaxConfig config;
  config.mechanism = RowInShared{};
  config.lanes_per_row = config.block_threads = tuning.shared_threads > 0 ? tuning.shared_threads : max_row_threads;
  config.cluster_blocks = cluster_blocks_for(call, tuning.cluster_blocks);
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const RowInShared&) {
  return call.is_one_type && call.vectors_agree && config.lanes_per_row == config.block_threads &&
         config.lanes_per_row >= warp_lanes && shared_memory_bytes(call, config) <= call.device.shared_bytes_per_block;
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const RowInShared&) {
  return find_kernel(query_of(call, SoftmaxKernel::row_in_shared, shared_row_register_vectors));
}

void fill(const SoftmaxCall& call, RowInShared& mechanism, SoftmaxPlan* plan) {
  plan->params.starts_on_lines =
      fits_from_line(call, plan->config, shared_row_register_vectors + shared_vectors(call, plan->config));
  mechanism.vectors_offset_bytes = static_cast<int32_t>(offset_bytes(call, plan->config));
  plan->launch.shared_bytes = static_cast<int32_t>(shared_memory_bytes(call, plan->config));
}

}  // namespace flowk::softmax
