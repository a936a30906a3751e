// SPDX-License-Identifier: Apache-2.0
// Bulk copies: consecutive vectors from global to shared memory or back. On sm_90 one thread starts the copy; elsewhere
// the block's threads copy one vector each in a loop.
#pragma once

#include "core/vector.cuh"

namespace flowk::core {

#if !defined(FLOWK_SIMT) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define FLOWK_HAS_BULK_COPY 1
#else
#define FLOWK_HAS_BULK_COPY 0
#endif

// Threads that start copies together: one of bulk copies, else those of the block.
struct CopyGroup {
  int lane;
  int lanes;
};

// The group of thread `first` of a block, or of all its threads.
__device__ __forceinline__ CopyGroup copy_group([[maybe_unused]] int first) {
#if FLOWK_HAS_BULK_COPY
  return {static_cast<int>(threadIdx.x) - first, 1};
#else
  return {static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x)};
#endif
}

// Copies into shared memory: begin(), copy() any number of times, less than 1 MB in all, and end(), by the threads of
// one group; then a __syncthreads(), and wait() by all threads. `barrier` is 8 bytes of shared memory.
struct BulkCopies {
  uint64_t* barrier;

#if FLOWK_HAS_BULK_COPY
  static __device__ __forceinline__ uint32_t address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
#endif

  __device__ __forceinline__ void begin() const {
#if FLOWK_HAS_BULK_COPY
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }

  // Both addresses and `num_bytes` are multiples of 16.
  __device__ __forceinline__ void copy([[maybe_unused]] const CopyGroup& group, unsigned char* shared_dst,
                                       const unsigned char* src, int num_bytes) const {
#if FLOWK_HAS_BULK_COPY
    if (num_bytes <= 0) return;
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(num_bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address(shared_dst)),
                 "l"(src), "r"(num_bytes), "r"(address(barrier))
                 : "memory");
#else
#pragma unroll 1
    for (int i = group.lane * vector_bytes; i < num_bytes; i += group.lanes * vector_bytes)
      async_copy_vector(shared_dst + i, src + i);
#endif
  }

  __device__ __forceinline__ void end() const {
#if FLOWK_HAS_BULK_COPY
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
#endif
  }

  __device__ __forceinline__ void wait() const {
#if FLOWK_HAS_BULK_COPY
    asm volatile(
        "{\n.reg .pred done;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra WAIT;\n}" ::
            "r"(address(barrier))
        : "memory");
#else
    async_copy_wait();
    __syncthreads();
#endif
  }

  // To global memory: publish() by all threads of a block that wrote to shared memory, a __syncthreads(), and store()
  // by all. Both addresses and `num_bytes` are multiples of 16; num_bytes may be less than 1.
  static __device__ __forceinline__ void publish() {
#if FLOWK_HAS_BULK_COPY
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }
  static __device__ __forceinline__ void store(unsigned char* dst, const unsigned char* shared_src, int num_bytes) {
#if FLOWK_HAS_BULK_COPY
    if (threadIdx.x != 0 || num_bytes <= 0) return;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(address(shared_src)),
                 "r"(num_bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // shared memory is the block's until then
#else
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) * vector_bytes; i < num_bytes;
         i += static_cast<int>(blockDim.x) * vector_bytes)
      *reinterpret_cast<uint4*>(dst + i) = *reinterpret_cast<const uint4*>(shared_src + i);
#endif
  }
};

}  // namespace flowk::core
