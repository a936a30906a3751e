// SPDX-License-Identifier: Apache-2.0
// The blocks of a cluster send values to its first block: st.async writes them into that block's shared memory and
// counts their bytes on a barrier there. Only the first block waits, and only for the bytes: at a cluster barrier
// around the exchange all blocks would wait. sm_90 and newer.
#pragma once

#include <cstdint>

#include "core/namespaces.h"
#include "flowk/detail/target.cuh"

namespace flowk::core {

// The exchange area has the same offset in the shared memory of every block: the barrier, then the received values.
constexpr int cluster_barrier_bytes = 16;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define FLOWK_CLUSTER_ASM(...) asm volatile(__VA_ARGS__)
#else
#define FLOWK_CLUSTER_ASM(...)  // no plan has clusters there
#endif

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank = 0;
  FLOWK_CLUSTER_ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Initializes the barrier. Every thread of the cluster calls this first and wait_for_cluster_start() later.
template <class Value>
__device__ __forceinline__ void begin_cluster_exchange(Value* area) {
  [[maybe_unused]] const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(area));
  if (threadIdx.x == 0) {
    FLOWK_CLUSTER_ASM("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    FLOWK_CLUSTER_ASM("fence.mbarrier_init.release.cluster;" :: : "memory");
  }
  FLOWK_CLUSTER_ASM("barrier.cluster.arrive.relaxed;" :: : "memory");
}

// Waits until every block of the cluster has initialized its barrier.
__device__ __forceinline__ void wait_for_cluster_start() {
  FLOWK_CLUSTER_ASM("barrier.cluster.wait.acquire;" :: : "memory");
}

// Sends a value of 4 or 8 bytes to index `index` of the first block.
template <class Value>
__device__ __forceinline__ void send_to_first_block(Value* area, uint32_t index, Value value) {
  [[maybe_unused]] const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(area));
  [[maybe_unused]] const uint32_t address = barrier + cluster_barrier_bytes + index * uint32_t{sizeof(Value)};
  [[maybe_unused]] uint32_t remote_barrier = 0, remote_address = 0;
  FLOWK_CLUSTER_ASM("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(remote_barrier) : "r"(barrier));
  FLOWK_CLUSTER_ASM("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(remote_address) : "r"(address));
  if constexpr (sizeof(Value) == 4)
    FLOWK_CLUSTER_ASM(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(remote_address),
        "r"(__builtin_bit_cast(uint32_t, value)), "r"(remote_barrier) : "memory");
  else
    FLOWK_CLUSTER_ASM(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(remote_address),
        "l"(__builtin_bit_cast(uint64_t, value)), "r"(remote_barrier) : "memory");
}

// In the first block: waits for `num_values` values of the cluster and returns where they are.
template <class Value>
__device__ __forceinline__ const Value* receive_from_cluster(Value* area, uint32_t num_values) {
  [[maybe_unused]] const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(area));
  if (threadIdx.x == 0)
    FLOWK_CLUSTER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                      "r"(num_values * uint32_t{sizeof(Value)}) : "memory");
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  uint32_t is_done = 0;
  while (is_done == 0)
    FLOWK_CLUSTER_ASM(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], 0;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}" : "=r"(is_done) : "r"(barrier) : "memory");
#endif
  return reinterpret_cast<const Value*>(reinterpret_cast<const unsigned char*>(area) + cluster_barrier_bytes);
}

#undef FLOWK_CLUSTER_ASM

}  // namespace flowk::core
