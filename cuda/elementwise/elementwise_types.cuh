// SPDX-License-Identifier: Apache-2.0
// Operands of flowk's own kernels: one class stands for every type that is computed in the same C++ type, told apart at
// run time by a switch that is uniform over the grid and taken once a pack. So float16 x and float32 y need no kernel
// of their own, and one kernel serves all floats.
#pragma once

#include "core/convert.cuh"
#include "flowk/detail/elementwise_kernel.cuh"
#include "flowk/flowk.h"

namespace flowk::elementwise {

// Calls visit(Constant<bytes>()) for an operand of 1 ... kLargest bytes an element. Of 8 bytes, or one for bool.
template <int kLargest, class Visit>
__device__ __forceinline__ void visit_size(const ElementwiseOperand& operand, Visit visit) {
  if constexpr (kLargest == 8) {
    if (operand.element_shift == 3) return visit(Constant<8>());
  } else {
    if constexpr (kLargest >= 4) {
      if (operand.element_shift == 2) return visit(Constant<4>());
    }
    if constexpr (kLargest >= 2) {
      if (operand.element_shift == 1) return visit(Constant<2>());
    }
  }
  visit(Constant<1>());
}

// Byte i of a word as a T of one byte, extended: one instruction where a shift and a mask are two.
template <class T>
__device__ __forceinline__ int32_t byte_of(uint32_t word, int i) {
#ifdef FLOWK_SIMT
  return static_cast<T>(word >> (8 * i));
#else
  // A selector of 4 is a byte of 0, one of 8 + i the sign of byte i.
  const uint32_t selector = static_cast<uint32_t>(std::is_signed_v<T> ? (8 + i) * 0x1110 + i : 0x4440 + i);
  int32_t value;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(value) : "r"(word), "r"(selector));
  return value;
#endif
}

// x != 0 as 0 or 1: a minimum, where a comparison takes a predicate, a select and a shift into place.
__device__ __forceinline__ uint32_t as_bool(uint32_t x) {
#ifdef FLOWK_SIMT
  return x != 0;
#else
  uint32_t result;
  asm("min.u32 %0, %1, 1;" : "=r"(result) : "r"(x));
  return result;
#endif
}

template <class T, int kN, class Compute>
__device__ __forceinline__ void unpack_as(const uint32_t* words, Compute (&values)[kN]) {
  if constexpr (std::is_integral_v<T> && sizeof(T) == 1 && sizeof(Compute) == 4) {
#pragma unroll
    for (int i = 0; i < kN; ++i) values[i] = byte_of<T>(words[i / 4], i % 4);
    return;
  }
  T elements[kN];
  __builtin_memcpy(static_cast<void*>(elements), words, sizeof(elements));
  if constexpr (is_float8<T> && kN % 2 == 0) {
    // Two at a time, as the hardware converts them.
    constexpr __nv_fp8_interpretation_t kind = std::is_same_v<T, Float8E4M3> ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const __nv_fp8x2_storage_t both =
          static_cast<__nv_fp8x2_storage_t>(elements[i].__x | static_cast<unsigned>(elements[i + 1].__x) << 8);
      const float2 wide = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(both, kind)));
      values[i] = static_cast<Compute>(wide.x);
      values[i + 1] = static_cast<Compute>(wide.y);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) values[i] = static_cast<Compute>(widen(elements[i]));
  }
}

// A bool in memory is a byte that is 0 or not.
template <int kN, class Compute>
__device__ __forceinline__ void unpack_bool(const uint32_t* words, Compute (&values)[kN]) {
  uint8_t bytes[kN];
  __builtin_memcpy(bytes, words, sizeof(bytes));
#pragma unroll
  for (int i = 0; i < kN; ++i) values[i] = static_cast<Compute>(bytes[i] != 0);
}

template <class T, int kN, class Compute>
__device__ __forceinline__ void pack_as(const Compute (&values)[kN], uint32_t* words) {
  if constexpr (std::is_same_v<T, bool> && std::is_integral_v<Compute> && sizeof(Compute) == 4) {
    uint8_t bytes[kN];
#pragma unroll
    for (int i = 0; i < kN; ++i) bytes[i] = static_cast<uint8_t>(as_bool(static_cast<uint32_t>(values[i])));
    __builtin_memcpy(words, bytes, sizeof(bytes));
    return;
  }
  T elements[kN];
  if constexpr (std::is_same_v<T, Float16> && std::is_same_v<Compute, float> && kN % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const __half2 both = __floats2half2_rn(values[i], values[i + 1]);
      elements[i] = __low2half(both);
      elements[i + 1] = __high2half(both);
    }
  } else if constexpr (std::is_same_v<T, BFloat16> && std::is_same_v<Compute, float> && kN % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const __nv_bfloat162 both = __floats2bfloat162_rn(values[i], values[i + 1]);
      elements[i] = __low2bfloat16(both);
      elements[i + 1] = __high2bfloat16(both);
    }
  } else if constexpr (is_float8<T> && std::is_same_v<Compute, float> && kN % 2 == 0) {
    constexpr __nv_fp8_interpretation_t kind = std::is_same_v<T, Float8E4M3> ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const unsigned both = __nv_cvt_float2_to_fp8x2(make_float2(values[i], values[i + 1]), __NV_SATFINITE, kind);
      elements[i].__x = static_cast<__nv_fp8_storage_t>(both);
      elements[i + 1].__x = static_cast<__nv_fp8_storage_t>(both >> 8);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kN; ++i) elements[i] = convert<T>(values[i]);
  }
  __builtin_memcpy(words, static_cast<const void*>(elements), sizeof(elements));
}

// Calls visit(T()) for the T that `dtype` names among those computed in Compute, of at most kLargest bytes; false for
// bool.
template <class Compute, int kLargest, class Visit>
__device__ __forceinline__ bool visit_type(int32_t dtype, Visit visit) {
  if constexpr (std::is_same_v<Compute, float>) {
    if constexpr (kLargest >= 4) {
      if (dtype == FLOWK_FLOAT32) return visit(float()), true;
    }
    if constexpr (kLargest >= 2) {
      if (dtype == FLOWK_FLOAT16) return visit(Float16()), true;
      if (dtype == FLOWK_BFLOAT16) return visit(BFloat16()), true;
    }
    if (dtype == FLOWK_FLOAT8_E4M3) return visit(Float8E4M3()), true;
    if (dtype == FLOWK_FLOAT8_E5M2) return visit(Float8E5M2()), true;
  } else if constexpr (std::is_same_v<Compute, int32_t>) {
    if constexpr (kLargest >= 4) {
      if (dtype == FLOWK_INT32) return visit(int32_t()), true;
    }
    if constexpr (kLargest >= 2) {
      if (dtype == FLOWK_INT16) return visit(int16_t()), true;
      if (dtype == FLOWK_UINT16) return visit(uint16_t()), true;
    }
    if (dtype == FLOWK_INT8) return visit(int8_t()), true;
    if (dtype == FLOWK_UINT8) return visit(uint8_t()), true;
  } else {
    if (dtype != FLOWK_BOOL) return visit(Compute()), true;
  }
  return false;
}

// An input or output of any type that is computed in Compute, or bool.
template <class Compute, int kLargest>
struct AnyElement {
  using Value = Compute;
  static constexpr int largest_bytes = kLargest;

  template <class Visit>
  __device__ __forceinline__ static void with_size(const ElementwiseOperand& operand, Visit visit) {
    visit_size<kLargest>(operand, visit);
  }
  template <int kN>
  __device__ __forceinline__ static void unpack(const ElementwiseOperand& operand, const uint32_t* words,
                                                Compute (&values)[kN]) {
    const bool is_known =
        visit_type<Compute, kLargest>(operand.dtype, [&](auto type) { unpack_as<decltype(type)>(words, values); });
    if (!is_known) unpack_bool(words, values);
  }
  template <int kN>
  __device__ __forceinline__ static void pack(const ElementwiseOperand& operand, const Compute (&values)[kN],
                                              uint32_t* words) {
    const bool is_known =
        visit_type<Compute, kLargest>(operand.dtype, [&](auto type) { pack_as<decltype(type)>(values, words); });
    if (!is_known) pack_as<bool>(values, words);
  }
};

// An output of any type at all of at most kLargest bytes.
template <class Compute, int kLargest>
struct AnyTarget {
  using Value = Compute;
  static constexpr int largest_bytes = kLargest < 8 ? kLargest : 8;

  template <class Visit>
  __device__ __forceinline__ static void with_size(const ElementwiseOperand& operand, Visit visit) {
    if constexpr (kLargest >= 8) {
      if (operand.element_shift == 3) return visit(Constant<8>());
    }
    visit_size < kLargest<4 ? kLargest : 4>(operand, visit);
  }
  template <int kN>
  __device__ __forceinline__ static void pack(const ElementwiseOperand& operand, const Compute (&values)[kN],
                                              uint32_t* words) {
    if constexpr (kLargest >= 8) {
      if (operand.dtype == FLOWK_INT64) return pack_as<int64_t>(values, words);
      if (operand.dtype == FLOWK_UINT64) return pack_as<uint64_t>(values, words);
      if (operand.dtype == FLOWK_FLOAT64) return pack_as<double>(values, words);
    }
    if constexpr (kLargest >= 4) {
      if (operand.dtype == FLOWK_INT32) return pack_as<int32_t>(values, words);
      if (operand.dtype == FLOWK_UINT32) return pack_as<uint32_t>(values, words);
      if (operand.dtype == FLOWK_FLOAT32) return pack_as<float>(values, words);
    }
    if constexpr (kLargest >= 2) {
      if (operand.dtype == FLOWK_FLOAT16) return pack_as<Float16>(values, words);
      if (operand.dtype == FLOWK_BFLOAT16) return pack_as<BFloat16>(values, words);
      if (operand.dtype == FLOWK_INT16) return pack_as<int16_t>(values, words);
      if (operand.dtype == FLOWK_UINT16) return pack_as<uint16_t>(values, words);
    }
    if (operand.dtype == FLOWK_INT8) return pack_as<int8_t>(values, words);
    if (operand.dtype == FLOWK_UINT8) return pack_as<uint8_t>(values, words);
    if (operand.dtype == FLOWK_FLOAT8_E4M3) return pack_as<Float8E4M3>(values, words);
    if (operand.dtype == FLOWK_FLOAT8_E5M2) return pack_as<Float8E5M2>(values, words);
    pack_as<bool>(values, words);
  }
};

}  // namespace flowk::elementwise
