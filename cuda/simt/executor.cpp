// SPDX-License-Identifier: Apache-2.0
#include "simt/executor.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cstdarg>
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

// The bit of `bits` that comes next after `position`, in the order of the run and round to the start.
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

// This host thread's; nullptr when there is no memory.
Executor* own_executor() {
  if (owner.executor == nullptr) owner.executor = new (std::nothrow) Executor;
  return owner.executor;
}

}  // namespace

const char* wait_name(Wait wait) {
  switch (wait) {
    case Wait::none: return "nothing";
    case Wait::syncthreads: return "__syncthreads";
    case Wait::syncwarp: return "__syncwarp";
    case Wait::shuffle_4_bytes: return "a 4-byte __shfl_*_sync";
    case Wait::shuffle_8_bytes: return "an 8-byte __shfl_*_sync";
    case Wait::reduce_max: return "__reduce_max_sync";
  }
  return "?";
}

// Runs the current thread, then whichever can be run next, for ever: the fiber is left only by switching away.
void Executor::run_thread_loop() {
  Fiber* const fiber = current;
  for (;;) {
    fiber->first_copy = fiber->end_copy = fiber->copy_group = 0;
    kernel(kernel_context);
    ++num_exited;
    if (is_sequential && num_exited < num_threads) {
      thread.x += reverse ? -1u : 1u;
      continue;
    }
    if (num_exited == num_threads) {
      self().fiber = nullptr;
      give_fiber(fiber);
      switch_to(*fiber, host);
      continue;
    }
    self().exited = true;
    self().fiber = nullptr;
    make_unready();
    const int next = next_ready_thread();
    if (next < 0) {
      self().fiber = fiber;  // drop_waiting_threads() finds it there
      fault_deadlock();
    }
    thread.x = static_cast<unsigned>(next);
    if (self().fiber == nullptr) {
      self().fiber = fiber;
    } else {
      give_fiber(fiber);
      switch_to_fiber(*fiber, self().fiber);
    }
  }
}

// Brings the state of all threads up to date, before the current one waits as the first of its block.
void Executor::end_sequence() {
  is_sequential = false;
  const int own_index = static_cast<int>(thread.x);
  const auto has_exited = [&](int index) { return reverse ? index > own_index : index < own_index; };
  ready_warps = 0;
  for (int warp_index = 0; warp_index * warp_lanes < num_threads; ++warp_index) warps[warp_index].ready = 0;
  for (int index = 0; index < num_threads; ++index) {
    threads[index].exited = has_exited(index);
    threads[index].wait = Wait::none;
    if (!threads[index].exited) make_ready(index / warp_lanes, 1u << index % warp_lanes);
  }
  self().fiber = current;
}

// The lanes of the current warp take turns first, then the warps: -1 when every thread waits or has exited.
int Executor::next_ready_thread() const {
  if (ready_warps == 0) return -1;
  int warp_index = own_warp(), lane = own_lane();
  if (warps[warp_index].ready == 0) {
    warp_index = next_bit(ready_warps, warp_index, reverse);
    lane = reverse ? 0 : warp_lanes - 1;
  }
  return warp_index * warp_lanes + next_bit(warps[warp_index].ready, lane, reverse);
}

// Called by a thread that has said what it waits for: lets others run, thread `next` first, until it is ready and its
// turn has come. A thread whose arrival frees the others takes its turn as well, so that the order starts anew.
void Executor::wait_for_turn(int next) {
  if (next < 0) fault_deadlock();
  Fiber* fiber = self().fiber;
  const int own_index = static_cast<int>(thread.x);
  thread.x = static_cast<unsigned>(next);
  if (next == own_index) return;
  if (self().fiber == nullptr) {
    Fiber* taken = take_fiber();
    if (taken == nullptr) {
      thread.x = static_cast<unsigned>(own_index);
      fault("no memory for the stack of thread %d", next);
    }
    self().fiber = taken;
  }
  switch_to_fiber(*fiber, self().fiber);
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
  if (shared_bytes != grid.shared_bytes) {
    std::free(shared_memory);
    shared_memory = nullptr;
    shared_bytes = 0;
    void* memory = nullptr;
    if (grid.shared_bytes > 0 && posix_memalign(&memory, 128, grid.shared_bytes) != 0)
      return "simt: no memory for the block's shared memory";
    shared_memory = static_cast<unsigned char*>(memory);
    shared_bytes = grid.shared_bytes;
  }
  kernel = grid.kernel;
  kernel_context = grid.kernel_context;
  num_threads = grid.num_threads;
  reverse = grid.reverse;
  block_dim = dim3(static_cast<unsigned>(grid.num_threads));
  grid_dim = dim3(grid.num_blocks);
  failed = false;
  for (int warp_index = 0; warp_index * warp_lanes < num_threads; ++warp_index) {
    const int num_lanes = std::min(num_threads - warp_index * warp_lanes, warp_lanes);
    warps[warp_index] = {.present = 0xffffffffu >> (warp_lanes - num_lanes), .ready = 0, .waiting = 0};
  }
  return nullptr;
}

void Executor::run_block(unsigned block_index) {
  Fiber* fiber = take_fiber();
  if (fiber == nullptr) {
    failed = true;
    std::snprintf(fault_text, sizeof(fault_text), "simt: no memory for a fiber's stack");
    return;
  }
  block.x = block_index;
  thread.x = static_cast<unsigned>(first_thread());
  if (shared_bytes != 0) std::memset(shared_memory, 0xCD, shared_bytes);
  num_exited = num_at_barrier = 0;
  is_sequential = true;
  switch_to_fiber(host, fiber);
  if (failed) drop_waiting_threads();
}

// Runs blocks of the grid that set_up() was given, until none is left. Other host threads are called where that has
// taken a while: waking them takes about as long as a small launch.
void Executor::run_blocks(Grid& grid, int num_helpers) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds patience(50);
  const Clock::time_point start = num_helpers > 0 ? Clock::now() : Clock::time_point();
  bool has_helpers = false;
  detail::running = this;
  while (!grid.failed.load()) {
    const unsigned step = grid.next_step.fetch_add(1);
    if (step >= grid.num_blocks) break;
    run_block(reverse ? grid.num_blocks - 1 - step : step);
    if (failed) grid.take_fault(step, fault_text);
    const unsigned num_left = grid.num_blocks - 1 - step;
    if (num_helpers > 0 && num_left > 0 && Clock::now() - start > patience) {
      const auto help = [](void* helped) {
        Executor* helper = own_executor();
        if (helper == nullptr || helper->set_up(*static_cast<Grid*>(helped)) != nullptr) return;
        helper->run_blocks(*static_cast<Grid*>(helped), 0);
      };
      has_helpers = call_helpers(static_cast<int>(std::min<unsigned>(num_left, num_helpers)), help, &grid);
      num_helpers = 0;
    }
  }
  detail::running = nullptr;
  if (has_helpers) dismiss_helpers();
}

void Executor::drop_waiting_threads() {
  for (int index = 0; index < num_threads; ++index) {
    Fiber* fiber = threads[index].fiber;
    threads[index].fiber = nullptr;
    if (fiber == nullptr) continue;
    reset_fiber(fiber, fiber_entry);
    give_fiber(fiber);
  }
}

void Executor::describe(int thread_index, char* text, std::size_t text_bytes) const {
  const Thread& subject = threads[thread_index];
  if (subject.exited)
    std::snprintf(text, text_bytes, "thread %d has exited", thread_index);
  else if (subject.wait == Wait::syncthreads)
    std::snprintf(text, text_bytes, "thread %d waits at %s", thread_index, wait_name(subject.wait));
  else
    std::snprintf(text, text_bytes, "thread %d waits at %s with mask 0x%08x", thread_index, wait_name(subject.wait),
                  subject.mask);
}

// No thread can run and not all have exited. Names a waiting thread and one that keeps it waiting.
void Executor::fault_deadlock() {
  char waiter_text[96], culprit_text[96];
  int waiter = -1, culprit = -1;
  for (int index = 0; index < num_threads; ++index) {
    const bool at_barrier = !threads[index].exited && threads[index].wait == Wait::syncthreads;
    if (at_barrier && waiter < 0) waiter = index;
    if (!at_barrier && culprit < 0) culprit = index;
  }
  const bool divergent_barrier = waiter >= 0;
  for (int index = 0; index < num_threads && !divergent_barrier; ++index) {
    const Thread& subject = threads[index];
    if (subject.exited) continue;
    waiter = index;
    for (int lane = 0; lane < warp_lanes; ++lane) {
      if ((subject.mask >> lane & 1) == 0) continue;
      culprit = index / warp_lanes * warp_lanes + lane;
      const Thread& other = threads[culprit];
      if (other.exited || other.wait != subject.wait || other.mask != subject.mask) break;
    }
    break;
  }
  describe(waiter, waiter_text, sizeof(waiter_text));
  describe(culprit, culprit_text, sizeof(culprit_text));
  thread.x = static_cast<unsigned>(waiter);
  fault("divergent %s: %s, but %s", divergent_barrier ? "barrier" : "warp operation", waiter_text, culprit_text);
}

namespace {

// Puts the caller's floating-point environment aside for a launch: some frameworks' threads flush denormals to zero,
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

  Executor* executor = own_executor();
  if (executor == nullptr) return "simt: no memory for the executor";
  Grid grid;
  grid.kernel = kernel;
  grid.kernel_context = kernel_context;
  grid.num_blocks = static_cast<unsigned>(config.num_blocks);
  grid.num_threads = config.num_threads;
  grid.shared_bytes = static_cast<std::size_t>(config.shared_bytes);
  grid.reverse = settings.reverse;
  if (const char* missing = executor->set_up(grid)) return missing;
  {
    const DefaultFloatingPoint state;
    executor->run_blocks(grid, settings.num_host_threads - 1);
  }
  if (!grid.failed.load()) return nullptr;
  std::memcpy(executor->fault_text, grid.fault_text, sizeof(grid.fault_text));
  return executor->fault_text;
}

void fault(const char* format, ...) {
  Executor& executor = running_executor();
  if (executor.is_sequential) executor.end_sequence();
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
