// SPDX-License-Identifier: Apache-2.0
// Barriers, shuffles, warp reductions, atomics and fences by their CUDA names, as far as kernels use them. A mask names
// exactly the lanes that take part.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "simt/executor.h"

namespace flowk::simt::detail {

template <class T>
T shuffle(unsigned mask, T value, unsigned source_lane) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "shuffles move 4 or 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_operation(sizeof(T) == 4 ? Wait::shuffle_4_bytes : Wait::shuffle_8_bytes, mask, bits, source_lane % 32);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace flowk::simt::detail

inline void __syncthreads() { flowk::simt::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  flowk::simt::warp_operation(flowk::simt::Wait::syncwarp, mask, 0, 0);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source_lane) {
  return flowk::simt::detail::shuffle(mask, value, static_cast<unsigned>(source_lane));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
  return flowk::simt::detail::shuffle(mask, value, flowk::simt::position().thread.x ^ static_cast<unsigned>(lane_mask));
}

inline int __reduce_max_sync(unsigned mask, int value) {
  return static_cast<int>(
      flowk::simt::warp_operation(flowk::simt::Wait::reduce_max, mask, static_cast<unsigned>(value), 0));
}

// Relaxed, as CUDA's. Blocks of a grid run on several host threads, so a kernel that hands memory from one block to
// another needs __threadfence() here too.
inline unsigned atomicAdd(unsigned* address, unsigned value) {
  return std::atomic_ref<unsigned>(*address).fetch_add(value, std::memory_order_relaxed);
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
