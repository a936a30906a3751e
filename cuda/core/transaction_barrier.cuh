// SPDX-License-Identifier: Apache-2.0
// An mbarrier in shared memory: a phase ends after its arrivals, and after the bytes that it expects have arrived by
// bulk copies or from other blocks of the cluster. sm_90 and newer, and the executor; elsewhere no function does
// anything.
#pragma once

#include <cstdint>

#include "core/namespaces.h"
#include "flowk/detail/target.cuh"

namespace flowk::core {

// has_sm_90(): do clusters and bulk copies exist? On the executor they do if FLOWK_SIMT_CAPABILITY is 90.
// is_below_sm_90: code for GPUs without them, where kernels that need clusters are empty. FLOWK_SM90(call, asm...) is
// the instruction if it exists; on the executor it is the call, which may be empty.
#if defined(FLOWK_SIMT)
constexpr bool is_below_sm_90 = false;
inline bool has_sm_90() { return simt::position().has_sm_90; }
#define FLOWK_SM90(call, ...) \
  do {                        \
    if (has_sm_90()) {        \
      call;                   \
    }                         \
  } while (false)
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool is_below_sm_90 = true;
__device__ constexpr bool has_sm_90() { return false; }
#define FLOWK_SM90(call, ...)
#else
constexpr bool is_below_sm_90 = false;
__device__ constexpr bool has_sm_90() { return true; }
#define FLOWK_SM90(call, ...) asm volatile(__VA_ARGS__)
#endif

#ifndef FLOWK_SIMT
// The address of shared memory as instructions of sm_90 take it.
__device__ __forceinline__ uint32_t address_in_shared(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
#endif

struct TransactionBarrier {
  uint64_t* memory;

  // `num_arrivals` arrivals end a phase. One thread calls it, before a barrier of the block or the cluster.
  __device__ __forceinline__ void init([[maybe_unused]] int num_arrivals) const {
    FLOWK_SM90(simt::init_transactions(memory, num_arrivals),
               "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_in_shared(memory)),
               "r"(num_arrivals) : "memory");
    FLOWK_SM90(, "fence.mbarrier_init.release.cluster;" :: : "memory");
  }
  // The thread calls it before its own arrival.
  __device__ __forceinline__ void expect([[maybe_unused]] int num_bytes) const {
    FLOWK_SM90(simt::expect_transactions(memory, num_bytes),
               "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(address_in_shared(memory)),
               "r"(num_bytes) : "memory");
  }
  __device__ __forceinline__ void arrive() const {
    FLOWK_SM90(simt::arrive_at_transactions(memory),
               "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_in_shared(memory)) : "memory");
  }
  __device__ __forceinline__ void expect_and_arrive([[maybe_unused]] int num_bytes) const {
    FLOWK_SM90(simt::expect_and_arrive(memory, num_bytes),
               "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_in_shared(memory)),
               "r"(num_bytes) : "memory");
  }
  // Waits until the phase with parity `parity` ends; the first phase has parity 0.
  __device__ __forceinline__ void wait([[maybe_unused]] int parity = 0) const {
#ifdef FLOWK_SIMT
    if (has_sm_90()) simt::wait_for_transactions(memory, parity);
#else
    uint32_t is_done = has_sm_90() ? 0 : 1;
    while (is_done == 0)
      FLOWK_SM90(,
                 "{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, "
                 "done;\n}" : "=r"(is_done) : "r"(address_in_shared(memory)),
                 "r"(parity) : "memory");
#endif
  }
};

}  // namespace flowk::core
