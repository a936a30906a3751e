// SPDX-License-Identifier: Apache-2.0
// The operands of flowk's own kernels: one class per compute type stands for every element type that is computed in it.
// The type is a run-time switch, uniform over the grid and taken once per pack. So float16 x and float32 y need no
// kernel of their own, and one kernel serves all floats.
#pragma once

#include "core/values.cuh"
#include "elementwise/elementwise.h"
#include "flowk/detail/elementwise_kernel.cuh"
#include "flowk/flowk.h"

namespace flowk::elementwise {

// The flowk_dtype of T.
template <class T>
constexpr int32_t dtype_of = std::is_same_v<T, bool>         ? FLOWK_BOOL
                             : std::is_same_v<T, int8_t>     ? FLOWK_INT8
                             : std::is_same_v<T, int16_t>    ? FLOWK_INT16
                             : std::is_same_v<T, int32_t>    ? FLOWK_INT32
                             : std::is_same_v<T, int64_t>    ? FLOWK_INT64
                             : std::is_same_v<T, uint8_t>    ? FLOWK_UINT8
                             : std::is_same_v<T, uint16_t>   ? FLOWK_UINT16
                             : std::is_same_v<T, uint32_t>   ? FLOWK_UINT32
                             : std::is_same_v<T, uint64_t>   ? FLOWK_UINT64
                             : std::is_same_v<T, Float16>    ? FLOWK_FLOAT16
                             : std::is_same_v<T, BFloat16>   ? FLOWK_BFLOAT16
                             : std::is_same_v<T, float>      ? FLOWK_FLOAT32
                             : std::is_same_v<T, double>     ? FLOWK_FLOAT64
                             : std::is_same_v<T, Float8E4M3> ? FLOWK_FLOAT8_E4M3
                                                             : FLOWK_FLOAT8_E5M2;

// Byte i of a word as a T of one byte, extended to 32 bits in one instruction.
template <class T>
__device__ __forceinline__ int32_t byte_of(uint32_t word, int i) {
#ifdef FLOWK_SIMT
  return static_cast<T>(word >> (8 * i));
#else
  // Selector 4 is a zero byte, 8 + i the sign of byte i.
  const uint32_t selector = static_cast<uint32_t>(std::is_signed_v<T> ? (8 + i) * 0x1110 + i : 0x4440 + i);
  int32_t value;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(value) : "r"(word), "r"(selector));
  return value;
#endif
}

// x != 0 as 0 or 1, in one instruction.
__device__ __forceinline__ uint32_t as_bool(uint32_t x) {
#ifdef FLOWK_SIMT
  return x != 0;
#else
  uint32_t result;
  asm("min.u32 %0, %1, 1;" : "=r"(result) : "r"(x));
  return result;
#endif
}

// A bool in memory is a byte that is zero or not.
template <class T, int kN, class Compute>
__device__ __forceinline__ void unpack_as(const uint32_t* words, Compute (&values)[kN]) {
  if constexpr (std::is_same_v<T, bool>) {
    uint8_t bytes[kN];
    __builtin_memcpy(bytes, words, sizeof(bytes));
#pragma unroll
    for (int i = 0; i < kN; ++i) values[i] = static_cast<Compute>(bytes[i] != 0);
  } else if constexpr (std::is_integral_v<T> && sizeof(T) == 1 && sizeof(Compute) == 4) {
#pragma unroll
    for (int i = 0; i < kN; ++i) values[i] = byte_of<T>(words[i / 4], i % 4);
  } else if constexpr (is_float8<T> && kN % 2 == 0) {
    uint8_t bytes[kN];
    __builtin_memcpy(bytes, words, sizeof(bytes));
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const float2 pair = widen_pair<T>(bytes[i] | static_cast<uint32_t>(bytes[i + 1]) << 8);
      values[i] = static_cast<Compute>(pair.x);
      values[i + 1] = static_cast<Compute>(pair.y);
    }
  } else {
    T elements[kN];
    __builtin_memcpy(static_cast<void*>(elements), words, sizeof(elements));
#pragma unroll
    for (int i = 0; i < kN; ++i) values[i] = static_cast<Compute>(widen(elements[i]));
  }
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
  if constexpr (is_float16<T> && std::is_same_v<Compute, float> && kN % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kN; i += 2) words[i / 2] = narrow_pair<T>(values[i], values[i + 1]);
  } else if constexpr (is_float8<T> && std::is_same_v<Compute, float> && kN % 2 == 0) {
    uint8_t bytes[kN];
#pragma unroll
    for (int i = 0; i < kN; i += 2) {
      const uint32_t pair = narrow_pair<T>(values[i], values[i + 1]);
      bytes[i] = static_cast<uint8_t>(pair);
      bytes[i + 1] = static_cast<uint8_t>(pair >> 8);
    }
    __builtin_memcpy(words, bytes, sizeof(bytes));
  } else {
    T elements[kN];
#pragma unroll
    for (int i = 0; i < kN; ++i) elements[i] = convert<T>(values[i]);
    __builtin_memcpy(words, static_cast<const void*>(elements), sizeof(elements));
  }
}

// Calls visit(T()) for the one of Types that `dtype` names, among those of at most kLargest bytes; for bool if it
// names none of them.
template <int kLargest, class... Types, class Visit>
__device__ __forceinline__ void visit_type(int32_t dtype, const Visit& visit) {
  const auto try_type = [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) <= kLargest) {
      if (dtype == dtype_of<T>) return visit(type), true;
    }
    return false;
  };
  if (!(try_type(Types()) || ...)) visit(bool());
}

// An operand of any of Types, or bool, of at most kLargest bytes per element. As an output of integers it also takes
// values without a sign, where ElementwiseOperand::dtype has `from_unsigned` set.
template <class Compute, int kLargest, class... Types>
struct AnyOf {
  using Value = Compute;
  static constexpr int largest_bytes = kLargest;

  // Calls visit(Constant<bytes>()).
  template <class Visit>
  __device__ __forceinline__ static void with_size(const ElementwiseOperand& operand, Visit visit) {
    if constexpr (has_size<8>) {
      if (operand.element_shift == 3) return visit(Constant<8>());
    }
    if constexpr (has_size<4>) {
      if (operand.element_shift == 2) return visit(Constant<4>());
    }
    if constexpr (has_size<2>) {
      if (operand.element_shift == 1) return visit(Constant<2>());
    }
    visit(Constant<1>());
  }
  template <int kN>
  __device__ __forceinline__ static void unpack(const ElementwiseOperand& operand, const uint32_t* words,
                                                Compute (&values)[kN]) {
    visit_type<kLargest, Types...>(operand.dtype, [&](auto type) { unpack_as<decltype(type)>(words, values); });
  }
  template <int kN>
  __device__ __forceinline__ static void pack(const ElementwiseOperand& operand, const Compute (&values)[kN],
                                              uint32_t* words) {
    if constexpr (std::is_integral_v<Compute> && (is_float<Types> || ...)) {
      if (operand.dtype & from_unsigned) {
        using Unsigned = std::make_unsigned_t<Compute>;
        Unsigned unsigned_values[kN];
#pragma unroll
        for (int i = 0; i < kN; ++i) unsigned_values[i] = static_cast<Unsigned>(values[i]);
        visit_type<kLargest, Types...>(operand.dtype & ~from_unsigned, [&](auto type) {
          if constexpr (is_float<decltype(type)>) pack_as<decltype(type)>(unsigned_values, words);
        });
        return;
      }
    }
    visit_type<kLargest, Types...>(operand.dtype, [&](auto type) { pack_as<decltype(type)>(values, words); });
  }

 private:
  template <int bytes>
  static constexpr bool has_size = bytes <= kLargest && ((static_cast<int>(sizeof(Types)) == bytes) || ...);
};

// The operands of kernels that compute in Compute: the inputs and the output of an operation on one kind of types, and
// those of a unary operation, which may convert from every type that Compute holds to every type. The plan names
// integer outputs of an integer Compute by the signed type of their width, because their bits are the same modulo
// 2^bits, and likewise inputs of Compute's width.
template <class Compute, int kLargest>
struct OperandsOf;
template <int kLargest>
struct OperandsOf<float, kLargest> {
  using Same = AnyOf<float, kLargest, float, Float16, BFloat16, Float8E4M3, Float8E5M2>;
  using UnaryIn = Same;
  using UnaryOut = AnyOf<float, kLargest, float, Float16, BFloat16, Float8E4M3, Float8E5M2, int32_t, uint32_t, int16_t,
                         uint16_t, int8_t, uint8_t>;
};
template <int kLargest>
struct OperandsOf<int32_t, kLargest> {
  using Same = AnyOf<int32_t, kLargest, int32_t, int16_t, uint16_t, int8_t, uint8_t>;
  using UnaryIn = Same;
  using UnaryOut = AnyOf<int32_t, kLargest, int32_t, int16_t, int8_t, float, Float16, BFloat16, Float8E4M3, Float8E5M2>;
};
template <int kLargest>
struct OperandsOf<double, kLargest> {
  using Same = AnyOf<double, kLargest, double>;
  using UnaryIn = AnyOf<double, kLargest, double, float, Float16, BFloat16, Float8E4M3, Float8E5M2>;
  using UnaryOut = AnyOf<double, kLargest, double, float, Float16, BFloat16, Float8E4M3, Float8E5M2, int64_t, uint64_t,
                         int32_t, uint32_t, int16_t, uint16_t, int8_t, uint8_t>;
};
template <int kLargest>
struct OperandsOf<int64_t, kLargest> {
  using Same = AnyOf<int64_t, kLargest, int64_t>;
  using UnaryIn = AnyOf<int64_t, kLargest, int64_t, int32_t, uint32_t, int16_t, uint16_t, int8_t, uint8_t>;
  using UnaryOut = AnyOf<int64_t, kLargest, int64_t, int32_t, int16_t, int8_t, double, float, Float16, BFloat16,
                         Float8E4M3, Float8E5M2>;
};

}  // namespace flowk::elementwise
