// SPDX-License-Identifier: Apache-2.0
#include "simt/executor.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "simt/executor_state.h"
#include "simt/helper_threads.h"
#include "simt/settings.h"

namespace flowk::simt {
namespace {

// The index of the next set bit after bit `position`, in the order of the run. The first one follows the last one.
int next_bit(unsigned bits, int position, bool reverse) {
  if (reverse) {
    const unsigned before = bits & ((1u << position) - 1);
    return 31 - std::countl_zero(before != 0 ? before : bits);
  }
  const unsigned after = bits & ~((2u << position) - 1);
  return std::countr_zero(after != 0 ? after : bits);
}

void fiber_entry() {
  Executor& executor = running_executor();
  entered_from(*executor.switched_from);
  executor.run_thread_loop();
}

struct ExecutorOwner {
  Executor* executor = nullptr;
  ~ExecutorOwner() { delete executor; }
};
thread_local ExecutorOwner owner;

// This host thread's executor; nullptr if there is no memory.
Executor* own_executor() {
  if (owner.executor == nullptr) owner.executor = new (std::nothrow) Executor;
  return owner.executor;
}

}  // namespace

// Runs the current thread, then whichever can run next, for ever. A fiber leaves this loop only by a switch to another
// context.
void Executor::run_thread_loop() {
  Fiber* const fiber = current;
  for (;;) {
    fiber->first_copy = fiber->end_copy = fiber->copy_group = 0;
    kernel(kernel_context);
    Block& own = *current_block;
    if (own.state == Block::State::sequential && own.num_at_barrier > 0) end_sequence();
    ++own.num_exited;
    if (own.num_exited < num_threads && own.state == Block::State::sequential) {
      self().fiber = nullptr;
      thread.x += reverse ? -1u : 1u;
      if (Fiber* next = self().fiber; next != nullptr) {
        give_fiber(fiber);
        switch_to_fiber(*fiber, next);
      }
      continue;
    }
    if (own.num_exited < num_threads) {
      self().exited = true;
      make_unready();
    } else {
      if (!own.bulk_loads.empty()) fault("the block ends, and nothing has waited for one of its bulk copies");
      own.state = Block::State::done;
      ++num_done;
    }
    self().fiber = nullptr;
    if (num_done == cluster_blocks) {
      give_fiber(fiber);
      switch_to(*fiber, host);
      continue;
    }
    if (!enter_next_thread()) {
      self().fiber = fiber;  // drop_waiting_threads() finds it there
      fault_deadlock();
    }
    if (current_block->state == Block::State::sequential) continue;
    if (self().fiber == nullptr) {
      self().fiber = fiber;
    } else {
      give_fiber(fiber);
      switch_to_fiber(*fiber, self().fiber);
    }
  }
}

// Ends the sequential state: brings the state of all threads up to date, because the current one does something else
// than the threads before it.
void Executor::end_sequence() {
  Block& own = *current_block;
  own.state = Block::State::interleaved;
  const int own_index = static_cast<int>(thread.x);
  own.ready_warps = 0;
  for (int warp_index = 0; warp_index * warp_lanes < num_threads; ++warp_index) own.warps[warp_index].ready = 0;
  for (int index = 0; index < num_threads; ++index) {
    const bool is_before = reverse ? index > own_index : index < own_index;
    own.threads[index].exited = is_before && own.num_exited > 0;
    own.threads[index].wait = is_before && own.num_at_barrier > 0 ? Wait::syncthreads : Wait::none;
    if (!is_before) own.make_ready(index / warp_lanes, 1u << index % warp_lanes);
  }
  self().fiber = current;
}

void Executor::enter_block(int block_rank) {
  block.x += static_cast<unsigned>(block_rank - rank);
  rank = block_rank;
  current_block = blocks[rank].get();
}

// Chooses the thread that runs next: a lane of the current warp, else a lane of the block's next warp, else a thread of
// the next block. False if every thread waits or has exited.
bool Executor::enter_next_thread() {
  int warp_index = own_warp(), lane = own_lane();
  for (int step = 0; !current_block->has_ready_thread(); ++step) {
    if (step == cluster_blocks) return false;
    enter_block((rank + (reverse ? cluster_blocks - 1 : 1)) % cluster_blocks);
    if (current_block->state == Block::State::not_started) {
      current_block->state = Block::State::sequential;
      thread.x = static_cast<unsigned>(first_thread());
      return true;
    }
    warp_index = reverse ? 0 : max_warps - 1;
    lane = reverse ? 0 : warp_lanes - 1;
  }
  if ((current_block->ready_warps >> warp_index & 1) == 0) {  // warps of an earlier, larger block are not reset
    warp_index = next_bit(current_block->ready_warps, warp_index, reverse);
    lane = reverse ? 0 : warp_lanes - 1;
  }
  thread.x =
      static_cast<unsigned>(warp_index * warp_lanes + next_bit(current_block->warps[warp_index].ready, lane, reverse));
  return true;
}

// The block's barrier in the sequential state: lets the next thread run, and after the last one the first again.
void Executor::wait_in_sequence() {
  Block& own = *current_block;
  Fiber* const fiber = current;
  self().fiber = fiber;
  const bool is_last = ++own.num_at_barrier == num_threads;
  if (is_last) own.num_at_barrier = 0;
  thread.x = is_last ? static_cast<unsigned>(first_thread()) : thread.x + (reverse ? -1u : 1u);
  Fiber* next = self().fiber;
  if (next == nullptr && (next = take_fiber()) == nullptr) {
    const unsigned next_thread = thread.x;
    thread.x -= reverse ? -1u : 1u;
    fault("no memory for the stack of thread %u", next_thread);
  }
  if (next != fiber) switch_to_fiber(*fiber, next);
  self().wait = Wait::none;
}

// Called by a thread that has to wait. Returns when another thread has woken it and it is this thread's turn.
void Executor::wait(Wait kind, std::uint64_t value) {
  if (current_block->state == Block::State::sequential) end_sequence();
  self().wait = kind;
  self().value = value;
  make_unready();
  let_others_run(false);
}

// Wakes the threads of block `of` that wait for `kind` with this `value`.
void Executor::wake(Block& of, Wait kind, std::uint64_t value) {
  if (of.state != Block::State::interleaved) return;
  for (int index = 0; index < num_threads; ++index) {
    Thread& woken = of.threads[index];
    if (woken.exited || woken.wait != kind || woken.value != value) continue;
    woken.wait = Wait::none;
    of.make_ready(index / warp_lanes, 1u << index % warp_lanes);
  }
}

// Lets others run. The caller has set what it waits for, or has woken its whole block: then the first thread is next,
// so that the order starts anew.
void Executor::let_others_run(bool from_the_first_thread) {
  const int own_rank = rank;
  const unsigned own_thread = thread.x;
  Fiber* const fiber = self().fiber;
  if (from_the_first_thread)
    thread.x = static_cast<unsigned>(first_thread());
  else if (!enter_next_thread())
    fault_deadlock();
  Fiber* next = self().fiber;
  if (next == fiber) return;
  if (next == nullptr) {
    next = take_fiber();
    if (next == nullptr) {
      const unsigned next_thread = thread.x;
      enter_block(own_rank);
      thread.x = own_thread;
      fault("no memory for the stack of thread %u", next_thread);
    }
    if (current_block->state == Block::State::interleaved) self().fiber = next;
  }
  switch_to_fiber(*fiber, next);
}

Fiber* Executor::take_fiber() {
  Fiber* fiber = free_fibers;
  if (fiber != nullptr) {
    free_fibers = fiber->next_free;
    return fiber;
  }
  fiber = make_fiber(fiber_entry, num_fibers);
  if (fiber == nullptr) return nullptr;
  ++num_fibers;
  fiber->next_made = all_fibers;
  all_fibers = fiber;
  return fiber;
}

void Grid::take_fault(unsigned step, const char* text) {
  const std::lock_guard lock(fault_mutex);
  if (failed.load() && fault_step < step) return;
  fault_step = step;
  std::snprintf(fault_text, sizeof(fault_text), "%s", text);
  failed.store(true);
}

// Returns what is missing, or nullptr.
const char* Executor::set_up(const Grid& grid) {
  for (int block_rank = 0; block_rank < max_cluster_blocks; ++block_rank) {
    std::unique_ptr<Block>& of_rank = blocks[block_rank];
    if (of_rank != nullptr && shared_bytes != grid.shared_bytes) {
      std::free(of_rank->shared_memory);
      of_rank->shared_memory = nullptr;
    }
    if (block_rank >= grid.cluster_blocks) continue;
    if (of_rank == nullptr) of_rank.reset(new (std::nothrow) Block);
    if (of_rank == nullptr) return "simt: no memory for a block's threads";
    void* memory = of_rank->shared_memory;
    if (memory == nullptr && grid.shared_bytes > 0 && posix_memalign(&memory, 128, grid.shared_bytes) != 0)
      return "simt: no memory for the block's shared memory";
    of_rank->shared_memory = static_cast<unsigned char*>(memory);
    for (int warp_index = 0; warp_index * warp_lanes < grid.num_threads; ++warp_index) {
      const int num_lanes = std::min(grid.num_threads - warp_index * warp_lanes, warp_lanes);
      of_rank->warps[warp_index] = {.present = 0xffffffffu >> (warp_lanes - num_lanes), .ready = 0, .waiting = 0};
    }
  }
  static_cast<Launch&>(*this) = grid;
  has_sm_90 = grid.has_sm_90;
  block_dim = dim3(static_cast<unsigned>(grid.num_threads));
  grid_dim = dim3(grid.num_blocks);
  failed = false;
  return nullptr;
}

void Executor::run_cluster(unsigned cluster_index) {
  Fiber* fiber = take_fiber();
  if (fiber == nullptr) {
    failed = true;
    std::snprintf(fault_text, sizeof(fault_text), "simt: no memory for a fiber's stack");
    return;
  }
  for (int block_rank = 0; block_rank < cluster_blocks; ++block_rank) {
    Block& of_rank = *blocks[block_rank];
    of_rank.state = Block::State::not_started;
    of_rank.num_exited = of_rank.num_at_barrier = of_rank.num_at_named_barrier = 0;
    of_rank.bulk_loads.clear();
    if (shared_bytes != 0) std::memset(of_rank.shared_memory, 0xCD, shared_bytes);
    for (int index = 0; cluster_blocks > 1 && index < num_threads; ++index)
      of_rank.threads[index].is_at_cluster = false;
  }
  num_done = num_at_cluster = 0;
  cluster_phase = 0;
  rank = 0;
  block.x = cluster_index * static_cast<unsigned>(cluster_blocks);
  enter_block(reverse ? cluster_blocks - 1 : 0);
  current_block->state = Block::State::sequential;
  thread.x = static_cast<unsigned>(first_thread());
  switch_to_fiber(host, fiber);
  if (failed) drop_waiting_threads();
}

// Runs clusters of the grid that set_up() was given, until none is left. Calls other host threads if this has taken a
// while and the other clusters will take as long, because to wake threads takes about as long as a small launch.
void Executor::run_clusters(Grid& grid, int num_helpers) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds patience(50);
  const Clock::time_point start = num_helpers > 0 ? Clock::now() : Clock::time_point();
  const unsigned num_steps = grid.num_blocks / static_cast<unsigned>(cluster_blocks);
  bool has_helpers = false;
  detail::running = this;
  while (!grid.failed.load()) {
    const unsigned step = grid.next_step.fetch_add(1);
    if (step >= num_steps) break;
    run_cluster(reverse ? num_steps - 1 - step : step);
    if (failed) grid.take_fault(step, fault_text);
    const unsigned num_left = num_steps - 1 - step;
    if (num_helpers == 0 || num_left == 0) continue;
    const Clock::duration elapsed = Clock::now() - start;
    if (elapsed > patience && elapsed * num_left > patience * (step + 1)) {
      const auto help = [](void* helped) {
        Executor* helper = own_executor();
        if (helper == nullptr || helper->set_up(*static_cast<Grid*>(helped)) != nullptr) return;
        helper->run_clusters(*static_cast<Grid*>(helped), 0);
      };
      has_helpers = call_helpers(static_cast<int>(std::min<unsigned>(num_left, num_helpers)), help, &grid);
      num_helpers = 0;
    }
  }
  detail::running = nullptr;
  if (has_helpers) dismiss_helpers();
}

void Executor::drop_waiting_threads() {
  for (int block_rank = 0; block_rank < cluster_blocks; ++block_rank)
    for (int index = 0; index < num_threads; ++index) {
      Fiber* fiber = blocks[block_rank]->threads[index].fiber;
      blocks[block_rank]->threads[index].fiber = nullptr;
      if (fiber == nullptr) continue;
      reset_fiber(fiber, fiber_entry);
      give_fiber(fiber);
    }
}

namespace {

// Replaces the caller's floating-point environment during a launch. Some frameworks' threads flush denormals to zero,
// and a result must not depend on the host thread that computes it.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&callers_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;

 private:
  std::fenv_t callers_;
};

}  // namespace

const char* run_grid(const LaunchConfig& config, void (*kernel)(void*), void* kernel_context) {
  if (detail::running != nullptr) return "simt: a kernel launched a kernel";
  if (config.num_blocks < 0 || config.num_blocks > 2147483647) return "simt: num_blocks must be 0 ... 2^31 - 1";
  if (config.num_threads < 1 || config.num_threads > max_threads) return "simt: num_threads must be 1 ... 1024";
  if (config.shared_bytes < 0) return "simt: shared_bytes must be >= 0";
  Settings settings;
  if (const char* wrong = read_settings(&settings)) return wrong;
  const int cluster_blocks = config.cluster_blocks;
  if (cluster_blocks != 1 && settings.capability < 90) return "simt: clusters need FLOWK_SIMT_CAPABILITY=90";
  if (cluster_blocks < 1 || cluster_blocks > max_cluster_blocks || config.num_blocks % cluster_blocks != 0)
    return "simt: cluster_blocks must be 1 ... 16 and divide num_blocks";

  Executor* executor = own_executor();
  if (executor == nullptr) return "simt: no memory for the executor";
  Grid grid;
  static_cast<Launch&>(grid) = {.kernel = kernel,
                                .kernel_context = kernel_context,
                                .num_threads = config.num_threads,
                                .cluster_blocks = cluster_blocks,
                                .shared_bytes = static_cast<std::size_t>(config.shared_bytes),
                                .reverse = settings.reverse};
  grid.num_blocks = static_cast<unsigned>(config.num_blocks);
  grid.has_sm_90 = settings.capability >= 90;
  if (const char* missing = executor->set_up(grid)) return missing;
  {
    const DefaultFloatingPoint state;
    // The threads of a cluster may all need a stack: of several clusters there would be too many mappings for Linux.
    executor->run_clusters(grid, cluster_blocks > 1 ? 0 : settings.num_host_threads - 1);
  }
  if (!grid.failed.load()) return nullptr;
  std::memcpy(executor->fault_text, grid.fault_text, sizeof(grid.fault_text));
  return executor->fault_text;
}

}  // namespace flowk::simt
