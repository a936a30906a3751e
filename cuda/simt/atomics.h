// SPDX-License-Identifier: Apache-2.0
// Atomics and fences by their CUDA names. Atomics are relaxed, as CUDA's are: the blocks of a grid run on several host
// threads, and a kernel that hands memory from one to another needs __threadfence() here too.
#pragma once

#include <atomic>

namespace flowk::simt::detail {

// Replaces *address by change(*address); returns the old value, as every CUDA atomic does.
template <class T, class Change>
T atomic_change(T* address, Change change) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_relaxed);
  while (!target.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}

template <class T>
T atomic_compare_exchange(T* address, T expected, T desired) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
  return expected;
}

}  // namespace flowk::simt::detail

#define FLOWK_SIMT_ATOMIC(name, type, result)                                      \
  inline type name(type* address, type value) {                                    \
    return flowk::simt::detail::atomic_change(address, [value](type old) -> type { \
      (void)old;                                                                   \
      return result;                                                               \
    });                                                                            \
  }
FLOWK_SIMT_ATOMIC(atomicAdd, unsigned, old + value)
FLOWK_SIMT_ATOMIC(atomicAdd, unsigned long long, old + value)
FLOWK_SIMT_ATOMIC(atomicAdd, float, old + value)
FLOWK_SIMT_ATOMIC(atomicAdd, double, old + value)
FLOWK_SIMT_ATOMIC(atomicAdd, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value)))
FLOWK_SIMT_ATOMIC(atomicMax, int, old > value ? old : value)
FLOWK_SIMT_ATOMIC(atomicMax, unsigned, old > value ? old : value)
FLOWK_SIMT_ATOMIC(atomicMin, int, old < value ? old : value)
FLOWK_SIMT_ATOMIC(atomicMin, unsigned, old < value ? old : value)
FLOWK_SIMT_ATOMIC(atomicExch, int, value)
FLOWK_SIMT_ATOMIC(atomicExch, unsigned, value)
FLOWK_SIMT_ATOMIC(atomicExch, unsigned long long, value)
FLOWK_SIMT_ATOMIC(atomicExch, float, value)
FLOWK_SIMT_ATOMIC(atomicOr, int, old | value)
FLOWK_SIMT_ATOMIC(atomicOr, unsigned, old | value)
FLOWK_SIMT_ATOMIC(atomicOr, unsigned long long, old | value)
FLOWK_SIMT_ATOMIC(atomicAnd, int, old& value)
FLOWK_SIMT_ATOMIC(atomicAnd, unsigned, old& value)
FLOWK_SIMT_ATOMIC(atomicAnd, unsigned long long, old& value)
#undef FLOWK_SIMT_ATOMIC

inline int atomicCAS(int* address, int expected, int desired) {
  return flowk::simt::detail::atomic_compare_exchange(address, expected, desired);
}
inline unsigned atomicCAS(unsigned* address, unsigned expected, unsigned desired) {
  return flowk::simt::detail::atomic_compare_exchange(address, expected, desired);
}
inline unsigned long long atomicCAS(unsigned long long* address, unsigned long long expected,
                                    unsigned long long desired) {
  return flowk::simt::detail::atomic_compare_exchange(address, expected, desired);
}

inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
