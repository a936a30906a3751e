// SPDX-License-Identifier: Apache-2.0
// Vectors of floats: infinities, signs, the largest element; powers of 2.
#pragma once

#include "core/values.cuh"

namespace flowk::core {

template <class A>
__device__ __forceinline__ A negative_infinity() {
  if constexpr (sizeof(A) == 8)
    return __longlong_as_double(static_cast<long long>(0xfff0000000000000ull));
  else
    return __int_as_float(static_cast<int>(0xff800000u));
}

// 2^z by the special function unit, to 2 units in the last place; 0 below 2^-126.
__device__ __forceinline__ float exponential_of_base_2(float z) {
#ifdef FLOWK_SIMT
  const float result = exp2f(z);
  return result < 0x1p-126f ? 0.0f : result;
#else
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(z));
  return result;
#endif
}

// 1 / value to 1 unit in the last place; 0 for infinity.
__device__ __forceinline__ float reciprocal_of(float value) {
#ifdef FLOWK_SIMT
  return 1.0f / value;
#else
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
#endif
}

// exp() and tanh() of float64 as calls: inlined for each column of a thread, they would be most of a kernel's code.
inline __device__ __noinline__ double called_exp(double z) { return exp(z); }
inline __device__ __noinline__ double called_tanh(double z) { return tanh(z); }

template <class A>
__device__ __forceinline__ A larger_of(A a, A b) {
  if constexpr (sizeof(A) == 8)
    return fmax(a, b);
  else
    return fmaxf(a, b);
}

// A 32-bit word of elements that are -infinity.
template <class T>
constexpr uint32_t infinity_word = std::is_same_v<T, Float16>    ? 0xfc00fc00u
                                   : std::is_same_v<T, BFloat16> ? 0xff80ff80u
                                                                 : 0xff800000u;

// The bits that negate all elements of a 32-bit word.
template <class T>
constexpr uint32_t sign_bits = sizeof(T) == 2 ? 0x80008000u : 0x80000000u;

template <class T>
__device__ __forceinline__ uint4 negative_infinity_vector() {
  if constexpr (sizeof(T) == 8) return {0, 0xfff00000u, 0, 0xfff00000u};
  return {infinity_word<T>, infinity_word<T>, infinity_word<T>, infinity_word<T>};
}

template <class T>
__device__ __forceinline__ void negate_vector(uint4* vector) {
  if constexpr (sizeof(T) < 8) {
    vector->x ^= sign_bits<T>;
    vector->z ^= sign_bits<T>;
  }
  vector->y ^= sign_bits<T>;
  vector->w ^= sign_bits<T>;
}

// The largest element of the vectors taken. 16-bit types compare two elements per instruction, which is exact; the
// result is NaN only if all elements are.
template <class T>
struct VectorMax {
  ComputeType<T> value = negative_infinity<ComputeType<T>>();
  __device__ __forceinline__ void take(const uint4& vector) {
    ComputeType<T> values[vector_width<T>];
    widen_vector<T>(vector, values);
#pragma unroll
    for (int i = 0; i < vector_width<T>; ++i) value = larger_of(value, values[i]);
  }
  __device__ __forceinline__ void take_word(uint32_t word) { value = larger_of(value, __uint_as_float(word)); }
  __device__ __forceinline__ ComputeType<T> largest() const { return value; }
};
template <>
struct VectorMax<Float16> {
  __half2 pair = __halves2half2(__ushort_as_half(0xfc00), __ushort_as_half(0xfc00));
  __device__ __forceinline__ void take(const uint4& vector) {
    pair = __hmax2(pair, __hmax2(__hmax2(pair_of<Float16>(vector.x), pair_of<Float16>(vector.y)),
                                 __hmax2(pair_of<Float16>(vector.z), pair_of<Float16>(vector.w))));
  }
  __device__ __forceinline__ void take_word(uint32_t word) { pair = __hmax2(pair, pair_of<Float16>(word)); }
  __device__ __forceinline__ float largest() const {
    return fmaxf(__half2float(__low2half(pair)), __half2float(__high2half(pair)));
  }
};
template <>
struct VectorMax<BFloat16> {
  __nv_bfloat162 pair = __halves2bfloat162(__ushort_as_bfloat16(0xff80), __ushort_as_bfloat16(0xff80));
  __device__ __forceinline__ void take(const uint4& vector) {
    pair = __hmax2(pair, __hmax2(__hmax2(pair_of<BFloat16>(vector.x), pair_of<BFloat16>(vector.y)),
                                 __hmax2(pair_of<BFloat16>(vector.z), pair_of<BFloat16>(vector.w))));
  }
  __device__ __forceinline__ void take_word(uint32_t word) { pair = __hmax2(pair, pair_of<BFloat16>(word)); }
  __device__ __forceinline__ float largest() const {
    return fmaxf(__bfloat162float(__low2bfloat16(pair)), __bfloat162float(__high2bfloat16(pair)));
  }
};

}  // namespace flowk::core
