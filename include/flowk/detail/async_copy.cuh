// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies of 16 bytes into shared memory: cp.async. All addresses are multiples of 16.
#pragma once

#include "flowk/detail/sizes.h"
#include "flowk/detail/target.cuh"

namespace flowk::detail {

// An address in shared memory, as asynchronous copies take it. If it is made before a loop, it stays in a register;
// otherwise the compiler would compute it from the window of shared memory at every copy.
#ifdef FLOWK_SIMT
using SharedAddress = unsigned char*;
inline SharedAddress shared_address(void* shared) { return static_cast<unsigned char*>(shared); }
#else
using SharedAddress = uint32_t;
__device__ __forceinline__ SharedAddress shared_address(void* shared) {
  uint32_t address;
  asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))));
  return address;
}
#endif

// Starts copying 16 bytes to shared memory; the thread's async_copy_wait() ends it. Both addresses are multiples of 16.
__device__ __forceinline__ void async_copy_vector(SharedAddress shared_dst, const void* src) {
#ifdef FLOWK_SIMT
  simt::async_copy(shared_dst, src, vector_bytes);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_dst), "l"(src) : "memory");
#endif
}
__device__ __forceinline__ void async_copy_vector(void* shared_dst, const void* src) {
#ifdef FLOWK_SIMT
  simt::async_copy(shared_dst, src, vector_bytes);
#else
  async_copy_vector(static_cast<SharedAddress>(__cvta_generic_to_shared(shared_dst)), src);
#endif
}

// The same if only the first `valid_bytes` of the 16 may be read. The last vector of a tensor is copied byte by byte,
// and at once. cp.async with a source size would do that too, but memcheck takes it for a read of all 16 bytes.
__device__ __forceinline__ void async_copy_vector_head(void* shared_dst, const void* src, int64_t valid_bytes) {
  if (valid_bytes >= vector_bytes) return async_copy_vector(shared_dst, src);
#pragma unroll 1
  for (int i = 0; i < static_cast<int>(valid_bytes); ++i)
    static_cast<unsigned char*>(shared_dst)[i] = static_cast<const unsigned char*>(src)[i];
}

// Waits for this thread's asynchronous copies; other threads see them after a barrier.
__device__ __forceinline__ void async_copy_wait() {
#ifdef FLOWK_SIMT
  simt::async_copy_wait();
#else
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// The first makes a group of the copies that this thread has started since the last group. The second waits for all
// groups but the latest kPending.
__device__ __forceinline__ void async_copy_commit() {
#ifdef FLOWK_SIMT
  simt::async_copy_commit();
#else
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int kPending>
__device__ __forceinline__ void async_copy_wait_groups() {
#ifdef FLOWK_SIMT
  simt::async_copy_wait_groups(kPending);
#else
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace flowk::detail
