// SPDX-License-Identifier: Apache-2.0
// The operands of flowk's own kernels: one class per compute type stands for every element type that is computed in it.
// The type is a run-time switch, uniform over the grid and taken once per pack. So float16 x and float32 y need no
// kernel of their own, and one kernel serves all floats.
#pragma once

#include "core/convert_vector.cuh"
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

// Calls visit(T()) for the type T that `dtype` names, if it is one of Types and has at most kLargest bytes; otherwise
// for bool.
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

// An operand of any of Types, or bool, of at most kLargest bytes per element. An output takes integers as unsigned if
// ElementwiseOperand::dtype has `from_unsigned` set.
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
    visit_type<kLargest, Types...>(operand.dtype, [&]<class T>(T) {
      Pack<sizeof(T)> raw[kN];
      __builtin_memcpy(raw, words, sizeof(raw));
      widen_as<T>(raw, values);
    });
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
        visit_type<kLargest, Types...>(operand.dtype & ~from_unsigned, [&]<class T>(T) {
          if constexpr (is_float<T>) pack_as<T>(unsigned_values, words);
        });
        return;
      }
    }
    visit_type<kLargest, Types...>(operand.dtype, [&]<class T>(T) { pack_as<T>(values, words); });
  }

 private:
  template <class T, int kN, class Values>
  __device__ __forceinline__ static void pack_as(const Values (&values)[kN], uint32_t* words) {
    Pack<sizeof(T)> raw[kN];
    narrow_as<T>(values, raw);
    __builtin_memcpy(words, raw, sizeof(raw));
  }
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
