// SPDX-License-Identifier: Apache-2.0
// persistent_rows: decides whether clusters take many long rows one after the other, and finds how much of a row their
// shared memory holds.
#include <algorithm>
#include <cstdint>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {
namespace {

// A ring of batches in a block's shared memory. A batch is `batch_vectors` vectors of each thread and input.
struct PersistentRing {
  int64_t row_batches = 0;
  int64_t held_batches = 0;  // of a row: read once; the others are read twice
  int64_t batches = 0;       // in the ring; 0: rows are too long
  int64_t batch_bytes = 0;
  int64_t offset_bytes = 0;  // of the ring, after the exchanges
};

int32_t batch_vectors_of(const SoftmaxCall& call) {
  return max_kernel_vectors(query_of(call, SoftmaxKernel::persistent_rows));
}

PersistentRing ring_of(const SoftmaxCall& call, const SoftmaxConfig& config) {
  PersistentRing ring;
  const int32_t batch_vectors = batch_vectors_of(call);
  const int64_t row_batches = ceil_div(vectors_from_line(call, config), batch_vectors);
  if (row_batches > max_persistent_batches) return ring;
  ring.offset_bytes = persistent_exchange_bytes(partial_result_bytes(call.in_bytes), config.cluster_blocks);
  ring.batch_bytes = batch_vectors * call.num_inputs * persistent_threads * vector_bytes;
  const int64_t fit = (call.device.shared_bytes_per_block - ring.offset_bytes) / ring.batch_bytes;
  // A row that does not fit leaves room for two batches on their way. At least half of it is held, so that the rest is
  // still in L2 when it is read again.
  const int64_t held = fit >= row_batches ? row_batches : fit - 2;
  if (row_batches > 2 * held) return ring;
  ring.row_batches = row_batches;
  ring.held_batches = held;
  ring.batches = std::min(fit, 2 * row_batches - 1);
  return ring;
}

}  // namespace

// As many clusters as multiprocessors can hold, if the last wave of rows is at least 90 % full. A cluster cannot span
// two GPCs, so one cluster less than that may be resident (H200: 15 of 8 blocks and 7 of 16 on 132 multiprocessors).
SoftmaxConfig choose_persistent_rows(const SoftmaxCall& call, const SoftmaxTuningRow& tuning) {
  SoftmaxConfig config;
  config.lanes_per_row = config.block_threads = persistent_threads;
  config.cluster_blocks = tuning.persistent_blocks;
  const int32_t max_clusters = call.device.num_multiprocessors / tuning.persistent_blocks;
  const int64_t resident = std::max(max_clusters - 1, 1), waves = ceil_div(call.rows.num_rows, resident);
  const bool is_full = waves > 1 && 10 * call.rows.num_rows >= 9 * waves * resident;
  config.mechanism = PersistentRows{.num_clusters = is_full ? max_clusters : 0};
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const PersistentRows& mechanism) {
  const int32_t capability = call.device.capability;  // of the executor: 0
  return (capability == 0 || capability >= 90) && mechanism.num_clusters > 0 && call.is_one_type &&
         call.vectors_agree && !call.has_interval && (call.request.backward || call.request.scale >= 0) &&
         config.lanes_per_row == persistent_threads && config.block_threads == persistent_threads &&
         ring_of(call, config).batches > 0;
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const PersistentRows&) {
  return find_kernel(query_of(call, SoftmaxKernel::persistent_rows, batch_vectors_of(call)));
}

void fill(const SoftmaxCall& call, PersistentRows& mechanism, SoftmaxPlan* plan) {
  const PersistentRing ring = ring_of(call, plan->config);
  plan->params.starts_on_lines = true;
  mechanism.row_batches = static_cast<int32_t>(ring.row_batches);
  mechanism.ring_batches = static_cast<int32_t>(ring.batches);
  mechanism.held_batches = static_cast<int32_t>(ring.held_batches);
  mechanism.ring_offset_bytes = static_cast<int32_t>(ring.offset_bytes);
  plan->launch.shared_bytes = static_cast<int32_t>(ring.offset_bytes + ring.batches * ring.batch_bytes);
  plan->launch.num_blocks = std::min<int64_t>(mechanism.num_clusters, call.rows.num_rows) * plan->config.cluster_blocks;
}

}  // namespace flowk::softmax
