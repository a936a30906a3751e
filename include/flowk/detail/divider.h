// SPDX-License-Identifier: Apache-2.0
// Divider: division by a number that is known at launch, as one multiply, one add and one shift.
#pragma once

#include "flowk/detail/integers.h"

#ifndef FLOWK_HOST_DEVICE
#ifdef __CUDACC__
#define FLOWK_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define FLOWK_HOST_DEVICE inline
#endif
#endif

namespace flowk::detail {

// quotient = (mulhi(n, multiplier) + n) >> shift, with shift = ceil(log2 d) and
// multiplier = floor(2^32 * (2^shift - d) / d) + 1: Granlund and Montgomery, "Division by invariant integers using
// multiplication" (PLDI 1994), figure 4.1. Exact for every n < 2^31 (the sum then fits 32 bits) and 1 <= d <= 2^31.
struct Divider {
  uint32_t divisor = 1;
  uint32_t multiplier = 1;
  uint32_t shift = 0;

#ifndef __CUDACC_RTC__
  friend bool operator==(const Divider&, const Divider&) = default;
  Divider() = default;
  // 0 counts as 1. It is 2^32 cut to 32 bits, given by a plan that will not divide by it.
  explicit Divider(uint32_t given) : divisor(given == 0 ? 1 : given) {
    const uint32_t d = divisor;
    shift = d <= 1 ? 0u : 32u - static_cast<uint32_t>(__builtin_clz(d - 1));
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
#endif

  FLOWK_HOST_DEVICE uint32_t divide(uint32_t n) const {
#ifdef __CUDA_ARCH__
    return (__umulhi(n, multiplier) + n) >> shift;
#else
    return (static_cast<uint32_t>((uint64_t{n} * multiplier) >> 32) + n) >> shift;
#endif
  }
};

// Takes the fastest index off a linear one: returns `*linear % divisor` and leaves the quotient in `*linear`.
FLOWK_HOST_DEVICE uint32_t take_index(uint32_t* linear, const Divider& divider) {
  const uint32_t quotient = divider.divide(*linear);
  const uint32_t index = *linear - quotient * divider.divisor;
  *linear = quotient;
  return index;
}

}  // namespace flowk::detail
