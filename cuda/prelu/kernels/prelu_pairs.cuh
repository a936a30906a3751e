// SPDX-License-Identifier: Apache-2.0
// Pairs of 16-bit elements in a word, compared and multiplied by one instruction.
#pragma once

#include <cstdint>

#include "core/convert.cuh"

namespace flowk::prelu {

// CUDA's type of two elements, and its bits.
template <class T>
using Pair = std::conditional_t<std::is_same_v<T, BFloat16>, __nv_bfloat162, __half2>;
template <class T>
using RawPair = std::conditional_t<std::is_same_v<T, BFloat16>, __nv_bfloat162_raw, __half2_raw>;

template <class T>
__device__ __forceinline__ Pair<T> pair_of(uint32_t word) {
  return __builtin_bit_cast(RawPair<T>, word);
}
template <class T>
__device__ __forceinline__ uint32_t word_of(Pair<T> pair) {
  return __builtin_bit_cast(uint32_t, static_cast<RawPair<T>>(pair));
}

template <class T>
__device__ __forceinline__ uint32_t bits_of(T element) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return static_cast<__nv_bfloat16_raw>(element).x;
  else
    return static_cast<__half_raw>(element).x;
}

// The two as floats: exact.
template <class T>
__device__ __forceinline__ float2 widen_pair(uint32_t pair) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
  else
    return __half22float2(pair_of<T>(pair));
}

// The two floats, each rounded once.
template <class T>
__device__ __forceinline__ uint32_t narrow_pair(float first, float second) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return word_of<T>(__floats2bfloat162_rn(first, second));
  else
    return word_of<T>(to_float16(first, second));
}

// 0xffff where the element is > 0, else 0 (zeros and NaN, too).
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
