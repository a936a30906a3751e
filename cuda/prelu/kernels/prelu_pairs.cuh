// SPDX-License-Identifier: Apache-2.0
// Pairs of 16-bit elements in a word, compared and multiplied by one instruction.
#pragma once

#include <cstdint>

#include "core/values.cuh"

namespace flowk::prelu {

template <class T>
__device__ __forceinline__ uint32_t bits_of(T element) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return static_cast<__nv_bfloat16_raw>(element).x;
  else
    return static_cast<__half_raw>(element).x;
}

// For each element of the pair: 0xffff if it is > 0, otherwise 0, also for NaN.
template <class T>
__device__ __forceinline__ uint32_t mask_of_positive(uint32_t pair) {
#ifdef FLOWK_SIMT
  const float2 wide = widen_pair<T>(pair);
  return (wide.x > 0 ? 0xffffu : 0u) | (wide.y > 0 ? 0xffff0000u : 0u);
#else
  return __hgt2_mask(pair_of<T>(pair), pair_of<T>(0));
#endif
}

// a * b, each product rounded once.
template <class T>
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
#ifdef FLOWK_SIMT
  const float2 x = widen_pair<T>(a), y = widen_pair<T>(b);
  const auto product = [](float one, float other) { return bits_of(convert<T>(double{one} * double{other})); };
  return product(x.x, y.x) | product(x.y, y.y) << 16;
#else
  return word_of<T>(__hmul2(pair_of<T>(a), pair_of<T>(b)));
#endif
}

}  // namespace flowk::prelu
