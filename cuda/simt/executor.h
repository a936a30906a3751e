// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's grid on the CPU. The threads of a block are a loop on one host thread. A thread that has to wait for
// others, at a barrier or a warp operation, keeps its stack, and the others go on with stacks of their own (fibers).
//
// Blocks run in their order: first on the calling host thread alone, then on one host thread per core, if the launch
// takes longer than waking them. The environment variable FLOWK_SIMT_THREADS (1 ... 256) says how many host threads a
// launch may have; with 1 the interleaving is the same in every run. FLOWK_SIMT_THREAD_ORDER (forward, the default, or
// reverse) says whether blocks, warps and lanes start from the first or from the last; a missing barrier shows in one
// of the two. A warp runs until all its lanes wait for the block, a block until all its threads wait for the cluster.
// Nothing is preempted: a kernel that spins on what another thread or a later block has yet to write may never end.
//
// FLOWK_SIMT_CAPABILITY (0, the default, or 90) says whether kernels use clusters and bulk copies (clusters.h), and
// whether plans may: it is Device::capability. A launch with clusters runs on the calling host thread alone.
//
// A fault (a divergent barrier, a warp operation that a named lane never reaches, ...) ends the launch, and run_grid()
// returns its text. If several blocks have a fault, it is the text of the first one in the order of the run, with any
// number of host threads. Threads that wait are dropped where they stand, without running destructors.
#pragma once

#include <vector_functions.h>
#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/namespaces.h"
#include "flowk/detail/launch_shape.h"

namespace flowk::simt {

// Runs `kernel` once for every thread of the grid. Returns nullptr, or the text of the fault: this host thread's, valid
// until its next run_grid(). Safe from several host threads at once; not from inside a kernel.
const char* run_grid(const LaunchConfig& config, void (*kernel)(void*), void* kernel_context);

template <class Kernel>
const char* run_grid(const LaunchConfig& config, Kernel&& kernel) {
  using Callable = std::remove_reference_t<Kernel>;
  return run_grid(
      config, [](void* callable) { (*static_cast<Callable*>(callable))(); },
      const_cast<void*>(static_cast<const void*>(std::addressof(kernel))));
}

// The functions below are for kernels. To call one elsewhere is an assertion failure.

// The block's LaunchConfig::shared_bytes, a heap block of exactly that size, aligned to 128 bytes and filled with 0xCD
// when the block starts. Needing more is a fault.
void* block_shared_memory(std::size_t needed_bytes);

// cp.async: copies `bytes` (4, 8 or 16; both pointers aligned to it, dst in shared memory) no earlier than the wait, so
// that a forgotten wait reads garbage. A commit closes a group; async_copy_wait_groups(n) waits for all groups but the
// latest n, async_copy_wait() for everything. A thread holds at most 64 copies back: then the oldest is done.
void async_copy(void* dst, const void* src, std::size_t bytes);
void async_copy_commit();
void async_copy_wait_groups(int num_pending_groups);
void async_copy_wait();

// What a thread can wait for. Threads meet only if they wait for the same kind.
enum class Wait : std::uint8_t {
  none,
  syncthreads,
  named_barrier,
  cluster,
  transactions,
  syncwarp,
  shuffle_4_bytes,
  shuffle_8_bytes,
  reduce_max,
};

// Waits for every thread of the block.
void block_barrier();
// Waits for every lane in `mask`; returns what the kind computes from their values. Only shuffles read `source_lane`.
std::uint64_t warp_operation(Wait kind, unsigned mask, std::uint64_t value, unsigned source_lane);
// Ends the launch; printf-style text.
[[noreturn, gnu::format(printf, 1, 2)]] void fault(const char* format, ...);

// Where the running thread stands in its grid, and what its kernel may use.
struct Position {
  uint3 thread{0, 0, 0};
  uint3 block{0, 0, 0};
  dim3 block_dim;
  dim3 grid_dim;
  bool has_sm_90 = false;
};
const Position& position();

namespace detail {
inline constinit thread_local Position* running = nullptr;  // null outside a kernel
}  // namespace detail

}  // namespace flowk::simt

#include <cassert>

inline const flowk::simt::Position& flowk::simt::position() {
  assert(detail::running != nullptr && "a device function was called outside a kernel");
  return *detail::running;
}
