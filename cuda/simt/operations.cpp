// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstring>

#include "simt/executor_state.h"

namespace flowk::simt {
namespace {

// Called when every lane of `mask` has arrived: replaces each lane's operand by its result, and lets the lanes go on.
void finish_warp_operation(Block& block, int warp_index, Wait kind, unsigned mask) {
  Thread* lanes = block.threads + warp_index * warp_lanes;
  std::uint64_t results[warp_lanes] = {};
  std::int32_t largest = INT32_MIN;
  for (unsigned left = mask; left != 0; left &= left - 1)
    largest = std::max(largest, static_cast<std::int32_t>(lanes[std::countr_zero(left)].value));
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    results[lane] =
        kind == Wait::reduce_max ? static_cast<std::uint32_t>(largest) : lanes[lanes[lane].source_lane].value;
  }
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const int lane = std::countr_zero(left);
    lanes[lane].value = results[lane];
    lanes[lane].wait = Wait::none;
  }
  block.make_ready(warp_index, mask);
}

void do_oldest_copy(Fiber& fiber) {
  const AsyncCopy& copy = fiber.copies[fiber.first_copy++ % Fiber::max_copies];
  switch (copy.bytes) {  // each an instruction or two
    case 4: std::memcpy(copy.dst, copy.src, 4); break;
    case 8: std::memcpy(copy.dst, copy.src, 8); break;
    default: std::memcpy(copy.dst, copy.src, 16);
  }
}

}  // namespace

void block_barrier() {
  Executor& executor = running_executor();
  Block& block = *executor.current_block;
  if (block.state == Block::State::sequential && block.num_exited == 0) {
    executor.wait_in_sequence();
    return;
  }
  if (block.num_at_barrier + 1 < executor.num_threads) {
    Thread& self = executor.self();
    ++block.num_at_barrier;
    executor.wait(Wait::syncthreads, 0);
    self.wait = Wait::none;
    return;
  }
  block.num_at_barrier = 0;
  for (int warp_index = 0; warp_index * warp_lanes < executor.num_threads; ++warp_index)
    block.make_ready(warp_index, block.warps[warp_index].present);
  executor.let_others_run(true);
}

std::uint64_t warp_operation(Wait kind, unsigned mask, std::uint64_t value, unsigned source_lane) {
  Executor& executor = running_executor();
  Thread& self = executor.self();
  const int warp_index = executor.own_warp(), lane = executor.own_lane();
  Block& block = *executor.current_block;
  Warp& warp = block.warps[warp_index];
  if ((mask >> lane & 1) == 0)
    fault("%s with mask 0x%08x, which lacks the calling lane %d", wait_name(kind), mask, lane);
  if ((mask & ~warp.present) != 0)
    fault("%s with mask 0x%08x, but the warp's lanes are 0x%08x", wait_name(kind), mask, warp.present);
  const bool is_shuffle = kind == Wait::shuffle_4_bytes || kind == Wait::shuffle_8_bytes;
  if (is_shuffle && (mask >> source_lane & 1) == 0)
    fault("%s with mask 0x%08x reads lane %u, which is not in it", wait_name(kind), mask, source_lane);

  if (block.state == Block::State::sequential) executor.end_sequence();
  self.wait = kind;
  self.mask = mask;
  self.value = value;
  self.source_lane = source_lane;
  warp.waiting |= 1u << lane;
  executor.make_unready();
  bool all_arrived = (warp.waiting & mask) == mask;
  for (unsigned left = mask; all_arrived && left != 0; left &= left - 1) {
    const Thread& other = block.threads[warp_index * warp_lanes + std::countr_zero(left)];
    all_arrived = other.wait == kind && other.mask == mask;
  }
  if (all_arrived) finish_warp_operation(block, warp_index, kind, mask);
  executor.let_others_run(false);
  return self.value;
}

std::size_t offset_in_shared(const void* address, std::size_t bytes, const char* what) {
  const Executor& executor = running_executor();
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) -
                             reinterpret_cast<std::uintptr_t>(executor.current_block->shared_memory);
  if (offset >= executor.shared_bytes || executor.shared_bytes - offset < bytes)
    fault("%s to %p, which is outside the block's shared memory", what, address);
  return offset;
}

void* block_shared_memory(std::size_t needed_bytes) {
  Executor& executor = running_executor();
  if (needed_bytes > executor.shared_bytes)
    fault("it needs %zu bytes of shared memory, shared_bytes = %zu", needed_bytes, executor.shared_bytes);
  return executor.current_block->shared_memory;
}

void async_copy(void* dst, const void* src, std::size_t bytes) {
  Executor& executor = running_executor();
  if (bytes != 4 && bytes != 8 && bytes != 16) fault("async_copy of %zu bytes, must be 4, 8 or 16", bytes);
  if (reinterpret_cast<std::uintptr_t>(dst) % bytes != 0 || reinterpret_cast<std::uintptr_t>(src) % bytes != 0)
    fault("async_copy of %zu bytes from %p to %p: not aligned", bytes, src, dst);
  offset_in_shared(dst, bytes, "async_copy");
  Fiber& fiber = *executor.current;
  if (fiber.end_copy - fiber.first_copy == Fiber::max_copies) do_oldest_copy(fiber);
  fiber.copies[fiber.end_copy++ % Fiber::max_copies] = {dst, src, static_cast<std::uint32_t>(bytes), fiber.copy_group};
}

void async_copy_commit() { ++running_executor().current->copy_group; }

void async_copy_wait_groups(int num_pending_groups) {
  Fiber& fiber = *running_executor().current;
  const std::int64_t end_group = std::int64_t{fiber.copy_group} - num_pending_groups;
  while (fiber.first_copy != fiber.end_copy && fiber.copies[fiber.first_copy % Fiber::max_copies].group < end_group)
    do_oldest_copy(fiber);
}

void async_copy_wait() {
  Fiber& fiber = *running_executor().current;
  while (fiber.first_copy != fiber.end_copy) do_oldest_copy(fiber);
}

}  // namespace flowk::simt
