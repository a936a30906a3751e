// SPDX-License-Identifier: Apache-2.0
// The executor from inside: what executor.cpp (who runs when), operations.cpp (what threads do together) and faults.cpp
// share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "flowk/detail/sizes.h"
#include "simt/executor.h"
#include "simt/fiber.h"

namespace flowk::simt {

using flowk::detail::warp_lanes;
inline constexpr int max_threads = 1024, max_warps = max_threads / warp_lanes, max_cluster_blocks = 16;

struct Thread {
  Fiber* fiber = nullptr;  // null before it starts and after it exits
  Wait wait = Wait::none;
  bool exited = false;
  bool is_at_cluster = false;  // has arrived at the cluster's barrier, and not yet waited
  unsigned cluster_phase = 0;  // the barrier's phase when it arrived
  unsigned mask = 0;           // of the warp operation that it waits for
  unsigned source_lane = 0;
  std::uint64_t value = 0;  // its operand of a warp operation, then the result; or the address of an mbarrier
};

struct Warp {
  unsigned present = 0;  // one bit per lane
  unsigned ready = 0;    // can run: not yet started, or nothing to wait for
  unsigned waiting = 0;  // at a warp operation
};

// A cp.async.bulk that is not yet done.
struct BulkLoad {
  void* dst;
  const void* src;
  std::size_t bytes;
  std::uint64_t* barrier;
};

// A block of the cluster that runs.
struct Block {
  enum class State : std::uint8_t { not_started, sequential, interleaved, done };

  // sequential: the threads run in their order, and all have done the same so far. The threads before the current one
  // have all exited, or all wait at __syncthreads. The threads after it have all not started, or have all left the last
  // __syncthreads. Only num_exited, num_at_barrier and the threads' fibers are up to date.
  State state = State::not_started;
  unsigned ready_warps = 0;  // one bit per warp: some lane is ready
  int num_exited = 0;
  int num_at_barrier = 0;
  int num_at_named_barrier = 0;
  unsigned char* shared_memory = nullptr;  // kept while launches need the same size
  std::vector<BulkLoad> bulk_loads;
  Warp warps[max_warps];
  Thread threads[max_threads];

  Block() = default;
  Block(const Block&) = delete;
  ~Block() { std::free(shared_memory); }
  bool has_ready_thread() const { return state == State::interleaved && ready_warps != 0; }
  void make_ready(int warp_index, unsigned lanes) {
    warps[warp_index].ready |= lanes;
    warps[warp_index].waiting &= ~lanes;
    ready_warps |= 1u << warp_index;
  }
};

// What every host thread that works on a launch has a copy of.
struct Launch {
  void (*kernel)(void*) = nullptr;
  void* kernel_context = nullptr;
  int num_threads = 0;
  int cluster_blocks = 1;
  std::size_t shared_bytes = 0;
  bool reverse = false;
};

// A launch, shared by the host threads that run its clusters. They take the clusters in order.
struct Grid : Launch {
  static constexpr std::size_t fault_bytes = 320;

  unsigned num_blocks = 0;
  bool has_sm_90 = false;
  std::atomic<unsigned> next_step = 0;
  std::atomic<bool> failed = false;
  std::mutex fault_mutex;
  unsigned fault_step = 0;
  char fault_text[fault_bytes] = "";

  // Keeps the fault of the first cluster in the order of the run. Every cluster before one with a fault has been taken
  // and runs to its end, so the result does not depend on the host threads.
  void take_fault(unsigned step, const char* text);
};

// All that one host thread needs to run clusters, kept from launch to launch.
//
// A fiber runs one thread after another until a thread has to wait. That thread keeps the fiber. The next thread goes
// on with the fiber that it kept, or starts on a free one. So a kernel without barriers is a loop over the threads of a
// block, and a barrier costs one switch per thread.
struct Executor : Position, Launch {
  unsigned cluster_phase = 0;
  int num_at_cluster = 0;
  int num_done = 0;  // blocks
  int rank = 0;      // of the current block
  Block* current_block = nullptr;
  std::unique_ptr<Block> blocks[max_cluster_blocks];

  Context host;
  Fiber* current = nullptr;
  Context* switched_from = nullptr;
  Fiber* free_fibers = nullptr;
  Fiber* all_fibers = nullptr;
  unsigned num_fibers = 0;
  bool failed = false;
  char fault_text[Grid::fault_bytes] = "";

  ~Executor() {
    while (all_fibers != nullptr) {
      Fiber* next = all_fibers->next_made;
      free_fiber(all_fibers);
      all_fibers = next;
    }
  }

  Thread& self() { return current_block->threads[thread.x]; }
  int own_warp() const { return static_cast<int>(thread.x) / warp_lanes; }
  int own_lane() const { return static_cast<int>(thread.x) % warp_lanes; }
  void run_clusters(Grid& grid, int num_helpers);
  const char* set_up(const Grid& grid);
  void run_cluster(unsigned cluster_index);
  void run_thread_loop();
  void enter_block(int block_rank);
  bool enter_next_thread();
  int first_thread() const { return reverse ? num_threads - 1 : 0; }
  void wait_in_sequence();
  void wait(Wait kind, std::uint64_t value);
  void let_others_run(bool from_the_first_thread);
  void wake(Block& block, Wait kind, std::uint64_t value);
  void end_sequence();
  // The current thread cannot run from now on.
  void make_unready() {
    Warp& warp = current_block->warps[own_warp()];
    warp.ready &= ~(1u << own_lane());
    if (warp.ready == 0) current_block->ready_warps &= ~(1u << own_warp());
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
  void describe(int block_rank, int thread_index, char* text, std::size_t text_bytes) const;
  [[noreturn]] void fault_deadlock();
};

// The executor of the calling kernel; asserts that there is one.
inline Executor& running_executor() {
  position();
  return *static_cast<Executor*>(detail::running);
}

// From the start of the block's shared memory; a fault if the bytes are not in it.
std::size_t offset_in_shared(const void* address, std::size_t bytes, const char* what);
const char* wait_name(Wait wait);
inline bool is_warp_operation(Wait wait) { return wait >= Wait::syncwarp; }

}  // namespace flowk::simt
