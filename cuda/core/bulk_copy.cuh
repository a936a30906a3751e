// SPDX-License-Identifier: Apache-2.0
// Bulk copies: consecutive vectors from global to shared memory or back. On sm_90 one thread starts the copy; elsewhere
// the block's threads copy one vector each in a loop.
#pragma once

#include "core/transaction_barrier.cuh"
#include "core/vector.cuh"

namespace flowk::core {

// The threads that start copies together: one thread for bulk copies, otherwise all threads of the block.
struct CopyGroup {
  int lane;
  int lanes;
};

// On sm_90 the group of thread `first` alone; elsewhere the group of all threads of the block.
__device__ __forceinline__ CopyGroup copy_group(int first) {
  const int thread = static_cast<int>(threadIdx.x);
  return has_sm_90() ? CopyGroup{thread - first, 1} : CopyGroup{thread, static_cast<int>(blockDim.x)};
}

// Copies into shared memory, of less than 1 MB in all. The threads of one group call begin(), copy() any number of
// times, and end(). Then all threads call __syncthreads() and wait(). `barrier` is 8 bytes of shared memory.
struct BulkCopies {
  TransactionBarrier barrier;

  __device__ __forceinline__ void begin() const { barrier.init(1); }

  // Both addresses and `num_bytes` are multiples of 16.
  __device__ __forceinline__ void copy(const CopyGroup& group, unsigned char* shared_dst, const unsigned char* src,
                                       int num_bytes) const {
    if (has_sm_90()) {
      if (num_bytes <= 0) return;
      barrier.expect(num_bytes);
      FLOWK_SM90(simt::bulk_load(shared_dst, src, num_bytes, barrier.memory),
                 "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     address_in_shared(shared_dst)),
                 "l"(src), "r"(num_bytes), "r"(address_in_shared(barrier.memory)) : "memory");
    } else {
#pragma unroll 1
      for (int i = group.lane * vector_bytes; i < num_bytes; i += group.lanes * vector_bytes)
        async_copy_vector(shared_dst + i, src + i);
    }
  }

  __device__ __forceinline__ void end() const { barrier.arrive(); }

  __device__ __forceinline__ void wait() const {
    if (has_sm_90()) {
      barrier.wait();
    } else {
      async_copy_wait();
      __syncthreads();
    }
  }

  // To global memory: all threads of a block that wrote to shared memory call publish(), __syncthreads() and store().
  // Both addresses and `num_bytes` are multiples of 16. If num_bytes < 1, nothing is stored.
  static __device__ __forceinline__ void publish() { FLOWK_SM90(, "fence.proxy.async.shared::cta;" :: : "memory"); }
  static __device__ __forceinline__ void store(unsigned char* dst, const unsigned char* shared_src, int num_bytes) {
    if (has_sm_90()) {
      if (threadIdx.x != 0 || num_bytes <= 0) return;
      FLOWK_SM90(simt::bulk_store(dst, shared_src, num_bytes),
                 "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst),
                 "r"(address_in_shared(shared_src)), "r"(num_bytes) : "memory");
      FLOWK_SM90(, "cp.async.bulk.commit_group;" :: : "memory");
      FLOWK_SM90(, "cp.async.bulk.wait_group.read 0;" :: : "memory");  // the copy reads shared memory until then
    } else {
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x) * vector_bytes; i < num_bytes;
           i += static_cast<int>(blockDim.x) * vector_bytes)
        *reinterpret_cast<uint4*>(dst + i) = *reinterpret_cast<const uint4*>(shared_src + i);
    }
  }
};

}  // namespace flowk::core
