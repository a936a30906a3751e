// SPDX-License-Identifier: Apache-2.0
// Barriers, shuffles, votes and warp reductions by their CUDA names. A mask names exactly the lanes that take part.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "simt/executor.h"

namespace flowk::simt::detail {

inline unsigned own_lane() { return position().thread.x % 32; }

// `width` must be a power of two: the lanes of a warp fall into segments of that many.
inline unsigned segment_mask(int width) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0)
    fault("shuffle width = %d, must be 1, 2, 4, 8, 16 or 32", width);
  return static_cast<unsigned>(width) - 1;
}

template <class T>
T shuffle(unsigned mask, T value, unsigned source_lane) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "shuffles move 4 or 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_operation(sizeof(T) == 4 ? Wait::shuffle_4_bytes : Wait::shuffle_8_bytes, mask, bits, source_lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace flowk::simt::detail

inline void __syncthreads() { flowk::simt::block_barrier(flowk::simt::Wait::syncthreads, false); }
inline int __syncthreads_or(int p) { return flowk::simt::block_barrier(flowk::simt::Wait::syncthreads_or, p != 0); }
inline int __syncthreads_and(int p) { return flowk::simt::block_barrier(flowk::simt::Wait::syncthreads_and, p != 0); }
inline int __syncthreads_count(int p) {
  return flowk::simt::block_barrier(flowk::simt::Wait::syncthreads_count, p != 0);
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  flowk::simt::warp_operation(flowk::simt::Wait::syncwarp, mask, 0, 0);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source_lane, int width = 32) {
  const unsigned segment = flowk::simt::detail::segment_mask(width);
  return flowk::simt::detail::shuffle(
      mask, value, (flowk::simt::detail::own_lane() & ~segment) | (static_cast<unsigned>(source_lane) & segment));
}

// A lane whose source would lie before its segment keeps its own value.
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned segment = flowk::simt::detail::segment_mask(width), lane = flowk::simt::detail::own_lane();
  return flowk::simt::detail::shuffle(mask, value, (lane & segment) >= (delta & 31) ? lane - (delta & 31) : lane);
}

// A lane whose source would lie past its segment keeps its own value.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned segment = flowk::simt::detail::segment_mask(width), lane = flowk::simt::detail::own_lane();
  const bool within = (lane & segment) + (delta & 31) <= segment;
  return flowk::simt::detail::shuffle(mask, value, within ? lane + (delta & 31) : lane);
}

// A lane reads from its own and earlier segments; one whose source would lie in a later segment keeps its own value.
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const unsigned segment = flowk::simt::detail::segment_mask(width), lane = flowk::simt::detail::own_lane();
  const unsigned source = lane ^ (static_cast<unsigned>(lane_mask) & 31);
  return flowk::simt::detail::shuffle(mask, value, source <= (lane | segment) ? source : lane);
}

inline unsigned __ballot_sync(unsigned mask, int p) {
  return static_cast<unsigned>(flowk::simt::warp_operation(flowk::simt::Wait::ballot, mask, p != 0, 0));
}
inline int __any_sync(unsigned mask, int p) {
  return static_cast<int>(flowk::simt::warp_operation(flowk::simt::Wait::any, mask, p != 0, 0));
}
inline int __all_sync(unsigned mask, int p) {
  return static_cast<int>(flowk::simt::warp_operation(flowk::simt::Wait::all, mask, p != 0, 0));
}

#define FLOWK_SIMT_REDUCE(name, type, kind)                                                           \
  inline type name(unsigned mask, type value) {                                                       \
    return static_cast<type>(                                                                         \
        flowk::simt::warp_operation(flowk::simt::Wait::kind, mask, static_cast<unsigned>(value), 0)); \
  }
FLOWK_SIMT_REDUCE(__reduce_add_sync, unsigned, reduce_add)
FLOWK_SIMT_REDUCE(__reduce_add_sync, int, reduce_add)
FLOWK_SIMT_REDUCE(__reduce_min_sync, unsigned, reduce_min_unsigned)
FLOWK_SIMT_REDUCE(__reduce_min_sync, int, reduce_min_signed)
FLOWK_SIMT_REDUCE(__reduce_max_sync, unsigned, reduce_max_unsigned)
FLOWK_SIMT_REDUCE(__reduce_max_sync, int, reduce_max_signed)
FLOWK_SIMT_REDUCE(__reduce_and_sync, unsigned, reduce_and)
FLOWK_SIMT_REDUCE(__reduce_or_sync, unsigned, reduce_or)
FLOWK_SIMT_REDUCE(__reduce_xor_sync, unsigned, reduce_xor)
#undef FLOWK_SIMT_REDUCE
