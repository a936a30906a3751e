// SPDX-License-Identifier: Apache-2.0
// How the blocks of a cluster hand their sums to the first of them: by st.async into its shared memory, which counts
// the bytes on a barrier there. No block waits for another but the first, and that one for the bytes alone: a cluster
// barrier around the exchange costs a softmax 5-13% (H200). sm_90 and newer.
#pragma once

#include <cstdint>

#include "flowk/detail/target.cuh"

namespace flowk::prelu {

// At `area` in every block: the barrier, then what is received.
constexpr int cluster_barrier_bytes = 16;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define FLOWK_CLUSTER_ASM(...) asm volatile(__VA_ARGS__)
#else
#define FLOWK_CLUSTER_ASM(...)  // no plan runs a cluster there
#endif

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank = 0;
  FLOWK_CLUSTER_ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Readies the barrier; every thread of the cluster comes here, and later to wait_for_cluster_start().
template <class Sum>
__device__ __forceinline__ void begin_cluster_exchange(Sum* area) {
  [[maybe_unused]] const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(area));
  if (threadIdx.x == 0) {
    FLOWK_CLUSTER_ASM("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    FLOWK_CLUSTER_ASM("fence.mbarrier_init.release.cluster;" :: : "memory");
  }
  FLOWK_CLUSTER_ASM("barrier.cluster.arrive.relaxed;" :: : "memory");
}

// Waits until every block of the cluster has readied its barrier.
__device__ __forceinline__ void wait_for_cluster_start() {
  FLOWK_CLUSTER_ASM("barrier.cluster.wait.acquire;" :: : "memory");
}

// Sends `sum` to place `index` of the first block.
template <class Sum>
__device__ __forceinline__ void send_to_first_block(Sum* area, uint32_t index, Sum sum) {
  [[maybe_unused]] const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(area));
  [[maybe_unused]] const uint32_t place = barrier + cluster_barrier_bytes + index * static_cast<uint32_t>(sizeof(Sum));
  [[maybe_unused]] uint32_t remote_barrier = 0, remote_place = 0;
  FLOWK_CLUSTER_ASM("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(remote_barrier) : "r"(barrier));
  FLOWK_CLUSTER_ASM("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(remote_place) : "r"(place));
  if constexpr (sizeof(Sum) == 4)
    FLOWK_CLUSTER_ASM(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(remote_place),
        "r"(__float_as_uint(sum)), "r"(remote_barrier) : "memory");
  else
    FLOWK_CLUSTER_ASM(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(remote_place),
        "l"(__double_as_longlong(sum)), "r"(remote_barrier) : "memory");
}

// In the first block: waits for `num_sums` sums of the cluster.
template <class Sum>
__device__ __forceinline__ const Sum* receive_from_cluster(Sum* area, uint32_t num_sums) {
  [[maybe_unused]] const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(area));
  if (threadIdx.x == 0)
    FLOWK_CLUSTER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                      "r"(num_sums * static_cast<uint32_t>(sizeof(Sum))) : "memory");
  uint32_t is_done = 0;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  while (is_done == 0)
    FLOWK_CLUSTER_ASM(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], 0;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}" : "=r"(is_done) : "r"(barrier) : "memory");
#endif
  (void)is_done;
  return reinterpret_cast<const Sum*>(reinterpret_cast<const unsigned char*>(area) + cluster_barrier_bytes);
}

#undef FLOWK_CLUSTER_ASM

}  // namespace flowk::prelu
