// SPDX-License-Identifier: Apache-2.0
// Elements in 32-bit words: widened to the type that they are computed in, which is exact, and narrowed again, which
// rounds once to the nearest. 16-bit elements are taken in pairs, because the compiler would move single ones in
// halves.
#pragma once

#include <cstring>

#include "core/convert.cuh"
#include "core/vector.cuh"

namespace flowk::core {

// CUDA's type of two neighbouring 16-bit elements, and their word.
template <class T>
using Pair = std::conditional_t<std::is_same_v<T, BFloat16>, __nv_bfloat162, __half2>;

template <class T>
__device__ __forceinline__ Pair<T> pair_of(uint32_t word) {
  Pair<T> pair;
  memcpy(static_cast<void*>(&pair), &word, sizeof(pair));
  return pair;
}
template <class T>
__device__ __forceinline__ uint32_t word_of(const Pair<T>& pair) {
  uint32_t word;
  memcpy(&word, static_cast<const void*>(&pair), sizeof(word));
  return word;
}

// Two neighbouring elements as floats, and back. Elements of 8 bits are in the low half of the word.
template <class T>
__device__ __forceinline__ float2 widen_pair(uint32_t word) {
  if constexpr (is_float8<T>)
    return __half22float2(
        __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(word), float8_format<T>)));
  else if constexpr (std::is_same_v<T, BFloat16>)
    return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
  else
    return __half22float2(pair_of<T>(word));
}
template <class T>
__device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
  if constexpr (is_float8<T>)
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, float8_format<T>);
  else if constexpr (std::is_same_v<T, BFloat16>)
    return word_of<T>(__floats2bfloat162_rn(low, high));
  else
    return word_of<T>(to_float16(low, high));
}

// Elements per vector.
template <class T>
constexpr int vector_width = vector_bytes / static_cast<int>(sizeof(T));

// Widens and narrows the elements of kWords words: floats of 16 to 64 bits.
template <class T, int kWords>
__device__ __forceinline__ void widen_words(const uint32_t (&words)[kWords], ComputeType<T>* values) {
  if constexpr (is_float16<T>) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const float2 pair = widen_pair<T>(words[i]);
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) values[i] = __uint_as_float(words[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords / 2; ++i)
      values[i] =
          __longlong_as_double(static_cast<long long>(static_cast<uint64_t>(words[2 * i + 1]) << 32 | words[2 * i]));
  }
}
template <class T, int kWords>
__device__ __forceinline__ void narrow_words(const ComputeType<T>* values, uint32_t (&words)[kWords]) {
  if constexpr (is_float16<T>) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = narrow_pair<T>(values[2 * i], values[2 * i + 1]);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = __float_as_uint(values[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kWords / 2; ++i) {
      const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(values[i]));
      words[2 * i] = static_cast<uint32_t>(bits);
      words[2 * i + 1] = static_cast<uint32_t>(bits >> 32);
    }
  }
}

template <class T>
__device__ __forceinline__ void widen_vector(const uint4& vector, ComputeType<T>* values) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
  widen_words<T>(words, values);
}
template <class T>
__device__ __forceinline__ uint4 narrow_vector(const ComputeType<T>* values) {
  uint32_t words[4];
  narrow_words<T>(values, words);
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace flowk::core
