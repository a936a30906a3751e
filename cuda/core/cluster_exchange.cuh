// SPDX-License-Identifier: Apache-2.0
// Blocks of a cluster send values to each other: st.async writes them into the other block's shared memory and counts
// their bytes on a barrier there. A block waits only for the bytes that are sent to it. A cluster barrier would make
// all blocks wait, and its release and acquire by every thread would take long.
#pragma once

#include "core/transaction_barrier.cuh"

namespace flowk::core {

// The block's index in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
#ifdef FLOWK_SIMT
  return simt::cluster_rank();
#else
  uint32_t rank = 0;
  FLOWK_SM90(, "mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
#endif
}

// Every thread of the cluster calls arrive_at_cluster() after the barriers of its block are initialized, and
// wait_for_cluster() before it sends.
__device__ __forceinline__ void arrive_at_cluster() {
  FLOWK_SM90(simt::arrive_at_cluster(), "barrier.cluster.arrive.relaxed.aligned;" :: : "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  FLOWK_SM90(simt::wait_for_cluster(), "barrier.cluster.wait.acquire.aligned;" :: : "memory");
}

// A barrier in 16 bytes, then the values that the block receives; at the same offset in the shared memory of all
// blocks. Values have 4, 8 or 16 bytes.
template <class Value>
struct ClusterExchange {
  unsigned char* memory;

  __device__ __forceinline__ TransactionBarrier barrier() const { return {reinterpret_cast<uint64_t*>(memory)}; }
  __device__ __forceinline__ Value* values() const { return reinterpret_cast<Value*>(memory + 16); }

  // Writes `value` to index `index` of block `block` of the cluster.
  __device__ __forceinline__ void send([[maybe_unused]] uint32_t block, [[maybe_unused]] uint32_t index,
                                       [[maybe_unused]] const Value& value) const {
#ifdef FLOWK_SIMT
    simt::send_to_block(block, values() + index, &value, sizeof(Value), barrier().memory);
#else
    [[maybe_unused]] uint32_t address = 0, barrier_address = 0;
    FLOWK_SM90(, "mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(address_in_shared(values() + index)),
               "r"(block));
    FLOWK_SM90(, "mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier_address) : "r"(address_in_shared(memory)),
               "r"(block));
#define FLOWK_SEND(type, ...)                                                                                          \
  FLOWK_SM90(, "st.async.shared::cluster.mbarrier::complete_tx::bytes." type ";" ::"r"(address), "r"(barrier_address), \
             __VA_ARGS__ : "memory")
    if constexpr (sizeof(Value) == 4)
      FLOWK_SEND("b32 [%0], %2, [%1]", "r"(__builtin_bit_cast(uint32_t, value)));
    else if constexpr (sizeof(Value) == 8)
      FLOWK_SEND("b64 [%0], %2, [%1]", "l"(__builtin_bit_cast(uint64_t, value)));
    else {
      [[maybe_unused]] const auto words = __builtin_bit_cast(ulonglong2, value);
      FLOWK_SEND("v2.b64 [%0], {%2, %3}, [%1]", "l"(words.x), "l"(words.y));
    }
#undef FLOWK_SEND
#endif
  }
};

}  // namespace flowk::core
