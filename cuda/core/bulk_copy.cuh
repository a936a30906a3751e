// SPDX-License-Identifier: Apache-2.0
// Bulk copies: a run of 16-byte chunks from global to shared memory, started by one thread (sm_90); elsewhere the
// block's threads copy a chunk each in turn.
#pragma once

#include "core/pack.cuh"

namespace flowk {

#if !defined(FLOWK_SIMT) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define FLOWK_HAS_BULK_COPY 1
#else
#define FLOWK_HAS_BULK_COPY 0
#endif

// The copies of a block into its shared memory: begin(), by its first warp; copy(), by all threads, or by the first
// warp where FLOWK_HAS_BULK_COPY, any number of times, less than 1 MB in all; wait(), by all threads, which is a
// barrier too. `barrier` is 8 bytes of shared memory.
struct BulkCopies {
  uint64_t* barrier;

#if FLOWK_HAS_BULK_COPY
  static __device__ __forceinline__ uint32_t address(const void* shared) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  }
#endif

  __device__ __forceinline__ void begin() const {
#if FLOWK_HAS_BULK_COPY
    if (threadIdx.x != 0) return;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }

  // Both addresses and `num_bytes` are multiples of 16.
  __device__ __forceinline__ void copy(unsigned char* shared_dst, const unsigned char* src, int num_bytes) const {
#if FLOWK_HAS_BULK_COPY
    if (threadIdx.x != 0 || num_bytes <= 0) return;
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(num_bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address(shared_dst)),
                 "l"(src), "r"(num_bytes), "r"(address(barrier))
                 : "memory");
#else
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) * chunk_bytes; i < num_bytes;
         i += static_cast<int>(blockDim.x) * chunk_bytes)
      async_copy_chunk(shared_dst + i, src + i);
#endif
  }

  __device__ __forceinline__ void wait() const {
#if FLOWK_HAS_BULK_COPY
    __syncthreads();  // begin() is done
    if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
    asm volatile(
        "{\n.reg .pred done;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra WAIT;\n}" ::
            "r"(address(barrier))
        : "memory");
#else
    async_copy_wait();
    __syncthreads();
#endif
  }
};

}  // namespace flowk
