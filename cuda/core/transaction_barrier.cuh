// SPDX-License-Identifier: Apache-2.0
// An mbarrier in shared memory: a phase ends after its arrivals, and after the bytes that it expects have arrived by
// bulk copies or from other blocks of the cluster. sm_90 and newer; elsewhere no function does anything.
#pragma once

#include <cstdint>

#include "core/namespaces.h"
#include "flowk/detail/target.cuh"

namespace flowk::core {

// has_clusters: and bulk copies. is_below_sm_90: no plan has clusters there, and kernels that are for nothing else are
// empty; the executor runs them in clusters of one block.
#if defined(FLOWK_SIMT)
constexpr bool has_clusters = false, is_below_sm_90 = false;
#define FLOWK_SM90_ASM(...)
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool has_clusters = false, is_below_sm_90 = true;
#define FLOWK_SM90_ASM(...)
#else
constexpr bool has_clusters = true, is_below_sm_90 = false;
#define FLOWK_SM90_ASM(...) asm volatile(__VA_ARGS__)
#endif

// As instructions of sm_90 take it.
__device__ __forceinline__ uint32_t address_in_shared([[maybe_unused]] const void* shared) {
#ifdef FLOWK_SIMT
  return 0;
#else
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
#endif
}

struct TransactionBarrier {
  uint64_t* memory;

  // `num_arrivals` end a phase. By one thread, before a barrier of the block or the cluster.
  __device__ __forceinline__ void init([[maybe_unused]] int num_arrivals) const {
    FLOWK_SM90_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_in_shared(memory)),
                   "r"(num_arrivals) : "memory");
    FLOWK_SM90_ASM("fence.mbarrier_init.release.cluster;" :: : "memory");
  }
  // Before the thread's own arrival.
  __device__ __forceinline__ void expect([[maybe_unused]] int num_bytes) const {
    FLOWK_SM90_ASM("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address_in_shared(memory)),
                   "r"(num_bytes) : "memory");
  }
  __device__ __forceinline__ void arrive() const {
    FLOWK_SM90_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_in_shared(memory)) : "memory");
  }
  __device__ __forceinline__ void expect_and_arrive([[maybe_unused]] int num_bytes) const {
    FLOWK_SM90_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_in_shared(memory)),
                   "r"(num_bytes) : "memory");
  }
  // Waits for the phase of that parity; the first is 0.
  __device__ __forceinline__ void wait([[maybe_unused]] int parity = 0) const {
    uint32_t is_done = has_clusters ? 0 : 1;
    while (is_done == 0)
      FLOWK_SM90_ASM(
          "{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
          : "=r"(is_done) : "r"(address_in_shared(memory)), "r"(parity) : "memory");
  }
};

}  // namespace flowk::core
