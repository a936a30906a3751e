// SPDX-License-Identifier: Apache-2.0
#include "simt/clusters.h"

#include <cstring>

#include "simt/executor_state.h"

namespace flowk::simt {
namespace {

// The 8 bytes of an mbarrier.
struct TransactionState {
  std::int32_t missing_bytes;  // negative if more have arrived than are expected so far
  std::uint16_t missing_arrivals;
  std::uint16_t num_arrivals : 15;
  std::uint16_t phase : 1;
};
static_assert(sizeof(TransactionState) == 8);

Block& block_of(unsigned rank) { return *running_executor().blocks[rank]; }

std::uint64_t* barrier_of(unsigned rank, const std::uint64_t* own_barrier) {
  const std::size_t offset = offset_in_shared(own_barrier, sizeof(TransactionState), "an mbarrier");
  return reinterpret_cast<std::uint64_t*>(block_of(rank).shared_memory + offset);
}

// Changes the mbarrier of block `rank` that is at `own_barrier` in the calling block, and ends its phase if nothing is
// missing.
template <class Change>
void change_state(unsigned rank, const std::uint64_t* own_barrier, Change change) {
  std::uint64_t* const barrier = barrier_of(rank, own_barrier);
  if (*barrier == 0xCDCDCDCDCDCDCDCD) fault("the mbarrier at %p of block rank %u is not initialized", barrier, rank);
  TransactionState state;
  std::memcpy(&state, barrier, sizeof(state));
  change(state);
  if (state.missing_bytes >= 1 << 20 || state.missing_bytes <= -(1 << 20))
    fault("an mbarrier expects %d bytes, at most 2^20 - 1 can be missing", state.missing_bytes);
  const bool is_complete = state.missing_arrivals == 0 && state.missing_bytes == 0;
  if (is_complete) {
    state.phase ^= 1;
    state.missing_arrivals = state.num_arrivals;
  }
  std::memcpy(barrier, &state, sizeof(state));
  if (is_complete)
    running_executor().wake(block_of(rank), Wait::transactions, reinterpret_cast<std::uint64_t>(barrier));
}

// Does the bulk loads that `barrier` waits for.
void do_bulk_loads(std::uint64_t* barrier) {
  std::vector<BulkLoad>& loads = running_executor().current_block->bulk_loads;
  std::int32_t num_bytes = 0;
  std::erase_if(loads, [&](const BulkLoad& load) {
    if (load.barrier != barrier) return false;
    std::memcpy(load.dst, load.src, load.bytes);
    num_bytes += static_cast<std::int32_t>(load.bytes);
    return true;
  });
  if (num_bytes > 0)
    change_state(cluster_rank(), barrier, [&](TransactionState& state) { state.missing_bytes -= num_bytes; });
}

void check_bulk_copy(const void* dst, const void* src, int num_bytes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(dst) | reinterpret_cast<std::uintptr_t>(src);
  if (((bits | static_cast<unsigned>(num_bytes)) & 15) != 0 || num_bytes <= 0)
    fault("a bulk copy of %d bytes from %p to %p: not whole vectors of 16 bytes", num_bytes, src, dst);
}

// Counts the calling thread at the named barrier; returns whether it was the last.
bool is_last_at_named_barrier(int num_threads) {
  Executor& executor = running_executor();
  Block& block = *executor.current_block;
  if (++block.num_at_named_barrier < num_threads) return false;
  block.num_at_named_barrier = 0;
  executor.wake(block, Wait::named_barrier, 0);
  return true;
}

}  // namespace

unsigned cluster_rank() { return static_cast<unsigned>(running_executor().rank); }

void arrive_at_cluster() {
  Executor& executor = running_executor();
  Thread& self = executor.self();
  if (executor.cluster_blocks == 1) fault("it arrives at a cluster's barrier in a launch without clusters");
  if (self.is_at_cluster) fault("it arrives at the cluster's barrier twice before it waits");
  self.is_at_cluster = true;
  self.cluster_phase = executor.cluster_phase;
  if (++executor.num_at_cluster < executor.cluster_blocks * executor.num_threads) return;
  executor.num_at_cluster = 0;
  ++executor.cluster_phase;
  for (int rank = 0; rank < executor.cluster_blocks; ++rank) executor.wake(*executor.blocks[rank], Wait::cluster, 0);
}

void wait_for_cluster() {
  Executor& executor = running_executor();
  Thread& self = executor.self();
  if (executor.cluster_blocks == 1 || !self.is_at_cluster)
    fault("it waits at the cluster's barrier and has not arrived there");
  if (self.cluster_phase == executor.cluster_phase) executor.wait(Wait::cluster, 0);
  self.is_at_cluster = false;
}

void arrive_at_named_barrier(int num_threads) { is_last_at_named_barrier(num_threads); }
void wait_at_named_barrier(int num_threads) {
  if (!is_last_at_named_barrier(num_threads)) running_executor().wait(Wait::named_barrier, 0);
}

void init_transactions(std::uint64_t* barrier, int num_arrivals) {
  barrier_of(cluster_rank(), barrier);
  const auto arrivals = static_cast<std::uint16_t>(num_arrivals);
  const TransactionState state = {0, arrivals, static_cast<std::uint16_t>(arrivals & 0x7fff), 0};
  std::memcpy(barrier, &state, sizeof(state));
}

void expect_transactions(std::uint64_t* barrier, int num_bytes) {
  change_state(cluster_rank(), barrier, [&](TransactionState& state) { state.missing_bytes += num_bytes; });
}

void arrive_at_transactions(std::uint64_t* barrier) { expect_and_arrive(barrier, 0); }

void expect_and_arrive(std::uint64_t* barrier, int num_bytes) {
  change_state(cluster_rank(), barrier, [&](TransactionState& state) {
    if (state.missing_arrivals == 0) fault("more threads arrive at an mbarrier than its phase has arrivals");
    --state.missing_arrivals;
    state.missing_bytes += num_bytes;
  });
}

void wait_for_transactions(std::uint64_t* barrier, int parity) {
  do_bulk_loads(barrier);
  int phase = 0;
  for (;;) {
    change_state(cluster_rank(), barrier, [&](const TransactionState& state) { phase = state.phase; });
    if (phase != parity) return;
    running_executor().wait(Wait::transactions, reinterpret_cast<std::uint64_t>(barrier));
    do_bulk_loads(barrier);
  }
}

void send_to_block(unsigned rank, void* dst, const void* value, std::size_t bytes, std::uint64_t* barrier) {
  const Executor& executor = running_executor();
  if (rank >= static_cast<unsigned>(executor.cluster_blocks))
    fault("it sends to block rank %u, must be < %d, the blocks of its cluster", rank, executor.cluster_blocks);
  if (reinterpret_cast<std::uintptr_t>(dst) % bytes != 0) fault("it sends %zu bytes to %p: not aligned", bytes, dst);
  const std::size_t offset = offset_in_shared(dst, bytes, "a store to the cluster");
  if (block_of(rank).state == Block::State::done) fault("it sends to block rank %u, which has ended", rank);
  std::memcpy(block_of(rank).shared_memory + offset, value, bytes);
  change_state(rank, barrier,
               [&](TransactionState& state) { state.missing_bytes -= static_cast<std::int32_t>(bytes); });
}

void bulk_load(void* shared_dst, const void* src, int num_bytes, std::uint64_t* barrier) {
  check_bulk_copy(shared_dst, src, num_bytes);
  const auto bytes = static_cast<std::size_t>(num_bytes);
  offset_in_shared(shared_dst, bytes, "a bulk copy");
  barrier_of(cluster_rank(), barrier);
  running_executor().current_block->bulk_loads.push_back({shared_dst, src, bytes, barrier});
}

void bulk_store(void* dst, const void* shared_src, int num_bytes) {
  check_bulk_copy(dst, shared_src, num_bytes);
  offset_in_shared(shared_src, static_cast<std::size_t>(num_bytes), "a bulk copy");
  std::memcpy(dst, shared_src, static_cast<std::size_t>(num_bytes));
}

}  // namespace flowk::simt
