// SPDX-License-Identifier: Apache-2.0
// Converts several values between two element types that are known only at run time: one switch for all values, uniform
// over the grid.
#pragma once

#include "core/conversion.h"
#include "core/values.cuh"
#include "flowk/flowk.h"

namespace flowk::core {

template <class T, int kBytes, class Compute, int kN>
__device__ __forceinline__ void widen_as(const Pack<kBytes> (&raw)[kN], Compute (&values)[kN]) {
  static_assert(sizeof(T) == kBytes);
  if constexpr (is_float8<T> && kN % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const float2 pair = widen_pair<T>(raw[i] | static_cast<uint32_t>(raw[i + 1]) << 8);
      values[i] = pair.x;
      values[i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      T element;
      __builtin_memcpy(static_cast<void*>(&element), &raw[i], sizeof(T));
      values[i] = static_cast<Compute>(widen(element));
    }
  }
}

// Elements of `dtype`, of kBytes bytes each, as values of a type that holds them all: exact.
template <int kBytes, class Compute, int kN>
__device__ __forceinline__ void widen_elements(int32_t dtype, const Pack<kBytes> (&raw)[kN], Compute (&values)[kN]) {
  if constexpr (kBytes == 1) {
    switch (dtype) {
      case FLOWK_INT8: return widen_as<int8_t, 1>(raw, values);
      case FLOWK_UINT8: return widen_as<uint8_t, 1>(raw, values);
      case FLOWK_FLOAT8_E4M3: return widen_as<Float8E4M3, 1>(raw, values);
      case FLOWK_FLOAT8_E5M2: return widen_as<Float8E5M2, 1>(raw, values);
    }
#pragma unroll
    for (int i = 0; i < kN; ++i) values[i] = raw[i] != 0 ? Compute{1} : Compute{0};  // FLOWK_BOOL
  } else if constexpr (kBytes == 2) {
    switch (dtype) {
      case FLOWK_INT16: return widen_as<int16_t, 2>(raw, values);
      case FLOWK_UINT16: return widen_as<uint16_t, 2>(raw, values);
      case FLOWK_FLOAT16: return widen_as<Float16, 2>(raw, values);
    }
    widen_as<BFloat16, 2>(raw, values);
  } else if constexpr (kBytes == 4) {
    if constexpr (std::is_same_v<Compute, double>) {
      switch (dtype) {
        case FLOWK_INT32: return widen_as<int32_t, 4>(raw, values);
        case FLOWK_UINT32: return widen_as<uint32_t, 4>(raw, values);
      }
    }
    widen_as<float, 4>(raw, values);
  } else {
    widen_as<double, 8>(raw, values);
  }
}

// Round to odd: `x` truncated to float, with the last bit set if bits were lost. Rounding the result to a narrower
// float gives the same as rounding `x`.
__device__ __forceinline__ float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x) return nearest;
  uint32_t bits = __float_as_uint(nearest);
  if (fabs(static_cast<double>(nearest)) > fabs(x)) --bits;
  return __uint_as_float(bits | 1);
}

template <class T, int kBytes, int kN>
__device__ __forceinline__ void narrow_as(const float (&values)[kN], Pack<kBytes> (&raw)[kN]) {
  static_assert(sizeof(T) == kBytes);
  if constexpr ((is_float8<T> || is_float16<T>) && kN % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const uint32_t pair = narrow_pair<T>(values[i], values[i + 1]);
      raw[i] = static_cast<Pack<kBytes>>(pair);
      raw[i + 1] = static_cast<Pack<kBytes>>(pair >> (8 * kBytes));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      const T element = convert<T>(values[i]);
      __builtin_memcpy(&raw[i], &element, sizeof(T));
    }
  }
}

template <class T, int kBytes, int kN>
__device__ __forceinline__ void narrow_as(const double (&values)[kN], Pack<kBytes> (&raw)[kN]) {
  if constexpr (is_float<T> && kBytes <= 2) {
    float odd[kN];
#pragma unroll
    for (int i = 0; i < kN; ++i) odd[i] = round_to_odd(values[i]);
    narrow_as<T, kBytes>(odd, raw);
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      const T element = convert<T>(values[i]);
      __builtin_memcpy(&raw[i], &element, sizeof(T));
    }
  }
}

// Values as elements of `dtype`, of kBytes bytes each, by the rules of convert<To>().
template <int kBytes, class Compute, int kN>
__device__ __forceinline__ void narrow_elements(int32_t dtype, bool wraps, const Compute (&values)[kN],
                                                Pack<kBytes> (&raw)[kN]) {
  if constexpr (kBytes <= 4) {
    if (wraps) {
      // The value is an integer that Compute holds exactly: of 16 bits in float, of 32 in double.
      using Integer = std::conditional_t<std::is_same_v<Compute, float>, int32_t, int64_t>;
#pragma unroll
      for (int i = 0; i < kN; ++i) raw[i] = static_cast<Pack<kBytes>>(static_cast<Integer>(values[i]));
      return;
    }
  }
  if constexpr (kBytes == 1) {
    switch (dtype) {
      case FLOWK_INT8: return narrow_as<int8_t, 1>(values, raw);
      case FLOWK_UINT8: return narrow_as<uint8_t, 1>(values, raw);
      case FLOWK_FLOAT8_E4M3: return narrow_as<Float8E4M3, 1>(values, raw);
      case FLOWK_FLOAT8_E5M2: return narrow_as<Float8E5M2, 1>(values, raw);
    }
    narrow_as<bool, 1>(values, raw);
  } else if constexpr (kBytes == 2) {
    switch (dtype) {
      case FLOWK_INT16: return narrow_as<int16_t, 2>(values, raw);
      case FLOWK_UINT16: return narrow_as<uint16_t, 2>(values, raw);
      case FLOWK_FLOAT16: return narrow_as<Float16, 2>(values, raw);
    }
    narrow_as<BFloat16, 2>(values, raw);
  } else if constexpr (kBytes == 4) {
    if constexpr (std::is_same_v<Compute, double>) {
      switch (dtype) {
        case FLOWK_INT32: return narrow_as<int32_t, 4>(values, raw);
        case FLOWK_UINT32: return narrow_as<uint32_t, 4>(values, raw);
      }
    }
    narrow_as<float, 4>(values, raw);
  } else {
    narrow_as<double, 8>(values, raw);
  }
}

// dst[i] = conversion of src[i].
template <int kSrcBytes, int kDstBytes, class Compute, int kN>
__device__ __forceinline__ void convert_elements(const Conversion& conversion, const Pack<kSrcBytes> (&src)[kN],
                                                 Pack<kDstBytes> (&dst)[kN]) {
  Compute values[kN];
  widen_elements<kSrcBytes>(conversion.src_dtype, src, values);
  const Compute scale = std::is_same_v<Compute, float> ? conversion.float_scale : conversion.double_scale;
#pragma unroll
  for (int i = 0; i < kN; ++i) values[i] *= scale;
  narrow_elements<kDstBytes>(conversion.dst_dtype, conversion.wraps, values, dst);
}

}  // namespace flowk::core
