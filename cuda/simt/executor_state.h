// SPDX-License-Identifier: Apache-2.0
// The executor from inside: what executor.cpp (who runs when) and operations.cpp (what threads do together) share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "flowk/detail/sizes.h"
#include "simt/executor.h"
#include "simt/fiber.h"

namespace flowk::simt {

using flowk::detail::warp_lanes;
inline constexpr int max_threads = 1024, max_warps = max_threads / warp_lanes;

struct Thread {
  Fiber* fiber = nullptr;  // null before its first step and after its last
  Wait wait = Wait::none;
  bool exited = false;
  unsigned mask = 0;  // of the warp operation it waits for
  unsigned source_lane = 0;
  std::uint64_t value = 0;  // what it brings to the warp operation, then what it takes away
};

struct Warp {
  unsigned present = 0;  // one bit per lane
  unsigned ready = 0;    // can run: not yet started, or nothing to wait for
  unsigned waiting = 0;  // at a warp operation
};

// A launch, shared by the host threads that run its blocks. They take the blocks in order.
struct Grid {
  static constexpr std::size_t fault_bytes = 320;

  void (*kernel)(void*) = nullptr;
  void* kernel_context = nullptr;
  unsigned num_blocks = 0;
  int num_threads = 0;
  std::size_t shared_bytes = 0;
  bool reverse = false;
  std::atomic<unsigned> next_step = 0;
  std::atomic<bool> failed = false;
  std::mutex fault_mutex;
  unsigned fault_step = 0;
  char fault_text[fault_bytes] = "";

  // Every block before one that failed has been taken and runs to its end, so that the fault that is kept in the end is
  // the first block's, whichever threads ran them.
  void take_fault(unsigned step, const char* text);
};

// All that one host thread needs to run blocks, kept from launch to launch.
//
// A fiber runs one thread after another until one has to wait; that one keeps the fiber, and the next thread to run
// gets its own back or, when it has not started, a free one. So a kernel without barriers is a loop over the threads of
// a block, and a barrier costs one switch per thread.
struct Executor : Position {
  void (*kernel)(void*) = nullptr;
  void* kernel_context = nullptr;
  int num_threads = 0;
  bool reverse = false;
  unsigned char* shared_memory = nullptr;  // kept while launches need the same size
  std::size_t shared_bytes = 0;

  // No thread of the block has waited yet: those before the current one have exited, those after it have not started,
  // and nothing below is up to date but num_exited.
  bool is_sequential = false;
  unsigned ready_warps = 0;  // one bit per warp: some lane is ready
  int num_exited = 0;
  int num_at_barrier = 0;

  Context host;
  Fiber* current = nullptr;
  Context* switched_from = nullptr;
  Fiber* free_fibers = nullptr;
  Fiber* all_fibers = nullptr;
  unsigned num_fibers = 0;
  bool failed = false;
  char fault_text[Grid::fault_bytes] = "";

  Warp warps[max_warps];
  Thread threads[max_threads];

  ~Executor() {
    std::free(shared_memory);
    while (all_fibers != nullptr) {
      Fiber* next = all_fibers->next_made;
      free_fiber(all_fibers);
      all_fibers = next;
    }
  }

  Thread& self() { return threads[thread.x]; }
  int own_warp() const { return static_cast<int>(thread.x) / warp_lanes; }
  int own_lane() const { return static_cast<int>(thread.x) % warp_lanes; }
  void run_blocks(Grid& grid, int num_helpers);
  const char* set_up(const Grid& grid);
  void run_block(unsigned block_index);
  void run_thread_loop();
  int next_ready_thread() const;
  int first_thread() const { return reverse ? num_threads - 1 : 0; }
  void wait_for_turn(int next);
  void end_sequence();
  // Takes the current thread out of those that can run.
  void make_unready() {
    Warp& warp = warps[own_warp()];
    warp.ready &= ~(1u << own_lane());
    if (warp.ready == 0) ready_warps &= ~(1u << own_warp());
  }
  void make_ready(int warp_index, unsigned lanes) {
    warps[warp_index].ready |= lanes;
    warps[warp_index].waiting &= ~lanes;
    ready_warps |= 1u << warp_index;
  }
  void switch_to(Context& from, Context& to) {
    switched_from = &from;
    switch_context(from, to);
  }
  void switch_to_fiber(Context& from, Fiber* to) {
    current = to;
    switch_to(from, *to);
  }
  Fiber* take_fiber();
  void give_fiber(Fiber* fiber) {
    fiber->next_free = free_fibers;
    free_fibers = fiber;
  }
  void drop_waiting_threads();
  void describe(int thread_index, char* text, std::size_t text_bytes) const;
  [[noreturn]] void fault_deadlock();
};

// The executor whose kernel calls; asserts that there is one.
inline Executor& running_executor() {
  position();
  return *static_cast<Executor*>(detail::running);
}

const char* wait_name(Wait wait);

}  // namespace flowk::simt
