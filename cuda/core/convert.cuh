// SPDX-License-Identifier: Apache-2.0
// Element types as C++ types, the type that each is computed in, and convert<To>() for every pair of types, with the
// same results on the GPU and on the executor.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#ifdef FLOWK_SIMT
#include <bit>
#endif
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/namespaces.h"
#include "flowk/detail/target.cuh"

namespace flowk::core {

using Float16 = __half;
using BFloat16 = __nv_bfloat16;
using Float8E4M3 = __nv_fp8_e4m3;
using Float8E5M2 = __nv_fp8_e5m2;

template <class T>
constexpr bool is_float8 = std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
template <class T>
constexpr __nv_fp8_interpretation_t float8_format = std::is_same_v<T, Float8E4M3> ? __NV_E4M3 : __NV_E5M2;
template <class T>
constexpr bool is_float16 = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <class T>
constexpr bool is_short_integer = std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 2;
template <class T>
constexpr bool is_float = std::is_floating_point_v<T> || is_float16<T> || is_float8<T>;

// Constants, because device code may not call numeric_limits.
template <class T>
constexpr T largest_of = std::numeric_limits<T>::max();
template <class T>
constexpr T smallest_of = std::numeric_limits<T>::min();

// The type that a value of T is computed in: double for itself, float for every narrower float, and the integers
// themselves.
template <class T>
using ComputeType = std::conditional_t<is_float<T> && !std::is_same_v<T, double>, float, T>;

// `x` in the type it is computed in: exact.
template <class T>
__device__ __forceinline__ ComputeType<T> widen(T x) {
  if constexpr (std::is_same_v<T, Float16>)
    return __half2float(x);
  else if constexpr (std::is_same_v<T, BFloat16>)
    return __bfloat162float(x);
  else if constexpr (is_float8<T>)
    return static_cast<float>(x);
  else
    return x;
}

// x rounded to float16, to the nearest and ties to even.
__device__ __forceinline__ Float16 to_float16(float x) {
#ifdef FLOWK_SIMT
  // If the result is a normal number, its bits are rounded as an integer. cuda_fp16.h branches on the dropped bits, and
  // the CPU mispredicts every second branch.
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffff;
  constexpr uint32_t min_normal = 0x38800000, above_all_rounded = 0x477ff000, exponent_shift = 0x38000000;
  if (magnitude >= min_normal && magnitude < above_all_rounded) {
    const uint32_t rounded = (magnitude - exponent_shift + 0xfff + (magnitude >> 13 & 1)) >> 13;
    return std::bit_cast<Float16>(static_cast<uint16_t>((bits >> 16 & 0x8000) | rounded));
  }
#endif
  return __float2half_rn(x);
}
// Two numbers at once, which is one instruction.
__device__ __forceinline__ __half2 to_float16(float low, float high) {
#ifdef FLOWK_SIMT
  return __halves2half2(to_float16(low), to_float16(high));
#else
  return __floats2half2_rn(low, high);
#endif
}

// An integer of up to 16 bits as a float. This instruction converts 32 bits and is faster than those for 8 and 16 bits,
// which the compiler would choose.
__device__ __forceinline__ float from_integer(int32_t x) {
#ifdef FLOWK_SIMT
  return static_cast<float>(x);
#else
  float value;
  asm("cvt.rn.f32.s32 %0, %1;" : "=f"(value) : "r"(x));
  return value;
#endif
}

// x as an integer of 8 or 16 bits, or bool, by the rules of convert<To>(), in the low bits of a word. Without a branch:
// the instruction clamps to 32 bits and makes NaN 0.
template <class To>
__device__ __forceinline__ uint32_t to_bits(float x) {
  if constexpr (std::is_same_v<To, bool>)
    return x != 0;
  else if constexpr (std::is_signed_v<To>)
    return static_cast<uint32_t>(max(min(__float2int_rz(x), int32_t{largest_of<To>}), int32_t{smallest_of<To>}));
  else
    return min(__float2uint_rz(x), uint32_t{largest_of<To>});
}

// Two integers by the same rules: of 8 bits in the low half of a word, and the low half of `upper` in the high one, or
// of 16 bits in both halves. One instruction clamps and packs; with 8 bits the compiler makes it convert too.
template <class To>
__device__ __forceinline__ uint32_t to_bits(float low, float high, uint32_t upper = 0) {
#ifdef FLOWK_SIMT
  if constexpr (sizeof(To) == 2) return (to_bits<To>(low) & 0xffff) | to_bits<To>(high) << 16;
  return (to_bits<To>(low) & 0xff) | (to_bits<To>(high) & 0xff) << 8 | upper << 16;
#else
  const int32_t first = __float2int_rz(low), second = __float2int_rz(high);
  uint32_t word;
  if constexpr (std::is_same_v<To, uint8_t>)
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(second), "r"(first), "r"(upper));
  else if constexpr (std::is_same_v<To, int8_t>)
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(second), "r"(first), "r"(upper));
  else if constexpr (std::is_same_v<To, uint16_t>)
    asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(word) : "r"(second), "r"(first));
  else
    asm("cvt.pack.sat.s16.s32 %0, %1, %2;" : "=r"(word) : "r"(second), "r"(first));
  return word;
#endif
}

// `x` as a To:
//   float to float    rounded to the nearest, ties to even; past the largest value infinity, and in float8 the largest
//                     finite value (NaN stays NaN)
//   float to integer  rounded toward zero; past either bound that bound, NaN 0
//   integer to float  rounded to the nearest, ties to even
//   integer to integer  modulo 2^bits, as C does
//   to bool           x != 0 (NaN is true); from bool 0 or 1
template <class To, class From>
__device__ __forceinline__ To convert(From x) {
  using Wide = ComputeType<From>;
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return widen(x) != Wide{0};
  } else if constexpr (!is_float<From> && is_float<To> && sizeof(To) <= 2) {
    // By way of a float type that holds the integer, so that it is rounded once. An integer of more than 52 bits keeps
    // its upper bits, and its lowest 12 are joined to one sticky bit.
    if constexpr (sizeof(From) <= 2) {
      return convert<To>(static_cast<float>(x));
    } else if constexpr (sizeof(From) == 8) {
      const bool negative = std::is_signed_v<From> && x < 0;
      uint64_t magnitude = negative ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
      constexpr uint64_t low = 0xfff;
      if (magnitude >> 52 != 0) magnitude = (magnitude & ~low) | static_cast<uint64_t>((magnitude & low) != 0) << 12;
      const double value = static_cast<double>(magnitude);
      return convert<To>(negative ? -value : value);
    } else {
      return convert<To>(static_cast<double>(x));
    }
  } else if constexpr (std::is_same_v<To, Float16>) {
    if constexpr (std::is_same_v<From, double>)
      return __double2half(x);
    else
      return to_float16(widen(x));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    if constexpr (std::is_same_v<From, double>)
      return __double2bfloat16(x);
    else
      return __float2bfloat16_rn(widen(x));
  } else if constexpr (is_float8<To>) {
    To result;
    if constexpr (std::is_same_v<From, double>)
      result.__x = __nv_cvt_double_to_fp8(x, __NV_SATFINITE, float8_format<To>);
    else
      result.__x = __nv_cvt_float_to_fp8(widen(x), __NV_SATFINITE, float8_format<To>);
    return result;
  } else if constexpr (is_float<From> && std::is_integral_v<To>) {
    const Wide value = widen(x);
    if constexpr (std::is_same_v<Wide, float> && sizeof(To) <= 2) return static_cast<To>(to_bits<To>(value));
    // The upper bound is compared as the power of 2 above it, which every float type holds.
    constexpr Wide end = static_cast<Wide>(uint64_t{1} << (std::numeric_limits<To>::digits - 1)) * 2;
    if (value >= end) return largest_of<To>;
    if (std::is_signed_v<To> ? value < -end : value < 0) return smallest_of<To>;
    return value == value ? static_cast<To>(value) : To{0};
  } else {
    return static_cast<To>(widen(x));
  }
}

}  // namespace flowk::core
