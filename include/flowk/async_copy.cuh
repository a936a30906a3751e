// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies of 16 bytes into shared memory: cp.async. All addresses are multiples of 16.
#pragma once

#include "flowk/target.cuh"

namespace flowk {

constexpr int chunk_bytes = 16;  // the widest access of one thread

// Starts copying 16 bytes to shared memory; the thread's async_copy_wait() ends it.
__device__ __forceinline__ void async_copy_chunk(void* shared_dst, const void* src) {
#ifdef FLOWK_SIMT
  simt::async_copy(shared_dst, src, chunk_bytes);
#else
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared_dst));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(src) : "memory");
#endif
}

// The same where only the first `valid_bytes` of the 16 may be read: the last chunk of a tensor byte by byte, at once.
// cp.async with a source size would do it too, but memcheck takes it for a read of all 16.
__device__ __forceinline__ void async_copy_chunk_head(void* shared_dst, const void* src, int64_t valid_bytes) {
  if (valid_bytes >= chunk_bytes) return async_copy_chunk(shared_dst, src);
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

}  // namespace flowk
