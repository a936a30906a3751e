// SPDX-License-Identifier: Apache-2.0
// What ends a launch on the executor, in words: a kernel's fault, or threads that wait for each other.
#include <cstdarg>
#include <cstdio>

#include "simt/executor_state.h"

namespace flowk::simt {

const char* wait_name(Wait wait) {
  // In the order of the enumerators.
  constexpr const char* names[] = {
      "nothing",    "__syncthreads",          "a named barrier",         "the cluster's barrier", "an mbarrier",
      "__syncwarp", "a 4-byte __shfl_*_sync", "an 8-byte __shfl_*_sync", "__reduce_max_sync"};
  return names[static_cast<int>(wait)];
}

void Executor::describe(int block_rank, int thread_index, char* text, std::size_t text_bytes) const {
  const Block& of_rank = *blocks[block_rank];
  const Thread& subject = of_rank.threads[thread_index];
  char name[48], mask[32] = "";
  std::snprintf(name, sizeof(name), "thread %d", thread_index);
  if (block_rank != rank)
    std::snprintf(name, sizeof(name), "thread %d of block %u", thread_index,
                  block.x + static_cast<unsigned>(block_rank - rank));
  if (is_warp_operation(subject.wait)) std::snprintf(mask, sizeof(mask), " with mask 0x%08x", subject.mask);
  if (of_rank.state == Block::State::done || subject.exited)
    std::snprintf(text, text_bytes, "%s has exited", name);
  else
    std::snprintf(text, text_bytes, "%s waits at %s%s", name, wait_name(subject.wait), mask);
}

// Called when no thread can run and not all have exited. Names a thread that waits and, if the executor can tell, one
// that keeps it waiting: preferably a thread at __syncthreads, then one at a warp operation, then one at the cluster's
// barrier.
void Executor::fault_deadlock() {
  const auto waits = [&](int block_rank, int index) {
    const Block& of_rank = *blocks[block_rank];
    return of_rank.state == Block::State::interleaved && !of_rank.threads[index].exited ? of_rank.threads[index].wait
                                                                                        : Wait::none;
  };
  // The first thread of the cluster, or of one block, that is as asked; -1 if none is.
  const auto find = [&](int first_rank, int end_rank, auto is_asked) {
    for (int block_rank = first_rank; block_rank < end_rank; ++block_rank)
      for (int index = 0; index < num_threads; ++index)
        if (is_asked(block_rank, index)) return block_rank * max_threads + index;
    return -1;
  };
  const auto find_waiter = [&](auto is_kind) {
    return find(0, cluster_blocks, [&](int block_rank, int index) { return is_kind(waits(block_rank, index)); });
  };
  const auto fault_at = [&](const char* what, int waiter, int culprit) {
    char waiter_text[128], culprit_text[128];
    enter_block(waiter / max_threads);
    thread.x = static_cast<unsigned>(waiter % max_threads);
    describe(rank, waiter % max_threads, waiter_text, sizeof(waiter_text));
    if (culprit < 0) fault("%s: %s, and nothing ends that", what, waiter_text);
    describe(culprit / max_threads, culprit % max_threads, culprit_text, sizeof(culprit_text));
    fault("%s: %s, but %s", what, waiter_text, culprit_text);
  };
  if (const int waiter = find_waiter([](Wait kind) { return kind == Wait::syncthreads; }); waiter >= 0) {
    const int own_rank = waiter / max_threads;
    fault_at("divergent barrier", waiter, find(own_rank, own_rank + 1, [&](int block_rank, int index) {
               return waits(block_rank, index) != Wait::syncthreads;
             }));
  }
  if (const int waiter = find_waiter(is_warp_operation); waiter >= 0) {
    const int own_rank = waiter / max_threads;
    const Thread& subject = blocks[own_rank]->threads[waiter % max_threads];
    const int first_lane = waiter % max_threads / warp_lanes * warp_lanes;
    fault_at(
        "divergent warp operation", waiter, find(own_rank, own_rank + 1, [&](int block_rank, int index) {
          const int lane = index - first_lane;
          return lane >= 0 && lane < warp_lanes && (subject.mask >> lane & 1) != 0 &&
                 (waits(block_rank, index) != subject.wait || blocks[block_rank]->threads[index].mask != subject.mask);
        }));
  }
  if (const int waiter = find_waiter([](Wait kind) { return kind == Wait::cluster; }); waiter >= 0)
    fault_at("divergent barrier", waiter, find(0, cluster_blocks, [&](int block_rank, int index) {
               return !blocks[block_rank]->threads[index].is_at_cluster;
             }));
  fault_at("divergent barrier", find_waiter([](Wait kind) { return kind != Wait::none; }), -1);
  __builtin_unreachable();
}

void fault(const char* format, ...) {
  Executor& executor = running_executor();
  if (executor.current_block->state == Block::State::sequential) executor.end_sequence();
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  std::snprintf(executor.fault_text, sizeof(executor.fault_text), "simt: block %u, thread %u: %s", executor.block.x,
                executor.thread.x, text);
  executor.failed = true;
  Context abandoned;
  executor.switch_to(abandoned, executor.host);
  __builtin_unreachable();
}

}  // namespace flowk::simt
