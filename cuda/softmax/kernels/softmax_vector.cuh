// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes of a row: exponentials, loads, masks, maxima and stores of their elements.
#pragma once

#include <numbers>

#include "core/divide.h"
#include "core/float_vector.cuh"
#include "softmax/softmax_params.h"

namespace flowk::softmax {

// ---- exponentials of arguments <= 0. 16-bit types use base 2 and the special function unit: its error of 2 units in
// the last place of float32 does not show in 16 bits. float32 and float64 use base e.

template <class T>
constexpr bool uses_base_2 = is_float16<T>;

// The larger of two values; NaN if the first one is.
__device__ __forceinline__ float at_least(float value, float least) {
#if !defined(FLOWK_SIMT) && __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "f"(least));
  return result;
#else
  return value < least ? least : value;
#endif
}

// exp(z) for z <= 0 or NaN, to 0.88 units in the last place. expf() is off by up to 2 units, which puts a row's largest
// result off by 3. exp(z) = 2^n * p(r) with z = n * ln 2 + r; for n = -127, below the least normal number, the power of
// 2 is 0.
__device__ __forceinline__ float exponential_of_negative(float score) {
  const float z = at_least(score, -88.0f);
  const float shifted =
      fmaf(z, std::numbers::log2e_v<float>, 12583039.0f);  // 1.5 * 2^23 + 127: n + 127 is in the low bits
  const float n = shifted - 12583039.0f;
  float r = fmaf(n, -0x1.62e400p-1f, z);
  r = fmaf(n, -0x1.7f7d1cp-20f, r);
  float p = 0x1.6a2352p-10f;
  p = fmaf(p, r, 0x1.123a6cp-7f);
  p = fmaf(p, r, 0x1.5558f4p-5f);
  p = fmaf(p, r, 0x1.555490p-3f);
  p = fmaf(p, r, 0x1.fffffcp-2f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  return p * __uint_as_float(__float_as_uint(shifted) << 23);  // a product: NaN stays
}

template <class T, class A>
__device__ __forceinline__ A exponential(A z) {
  if constexpr (uses_base_2<T>) {
    return exponential_of_base_2(z);
  } else if constexpr (sizeof(A) == 8) {
    return called_exp(z);
  } else {
    return exponential_of_negative(z);
  }
}

// Factors from the natural base to the exponential's base, and back.
template <class T>
constexpr double base_per_natural = uses_base_2<T> ? std::numbers::log2e : 1.0;
template <class T>
constexpr double natural_per_base = uses_base_2<T> ? std::numbers::ln2 : 1.0;

// ---- vectors: 16 bytes of a row as a uint4

__device__ __forceinline__ uint4 load_vector(const unsigned char* address) {
  return *reinterpret_cast<const uint4*>(address);
}

// An address `bytes` after another one, which may be null.
__device__ __forceinline__ const unsigned char* address_past(const unsigned char* address, int64_t bytes) {
#ifdef FLOWK_SIMT
  return reinterpret_cast<const unsigned char*>(reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes));
#else
  return address + bytes;
#endif
}

// Keeps the compiler from computing an address in global memory again for each of its uses.
template <class Byte>
__device__ __forceinline__ Byte* held(Byte* address) {
#ifndef FLOWK_SIMT
  asm volatile("" : "+l"(address));
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

// A vector at an address of any alignment that T has: the words that contain it, and no byte outside of it.
template <class T>
struct UnalignedVector {
  uint32_t words[5];

  // The bytes of the first word before the vector: 0 or 2, the same for all vectors of a row.
  static __device__ __forceinline__ unsigned bytes_before(const unsigned char* address) {
    return sizeof(T) == 2 ? static_cast<unsigned>(reinterpret_cast<uintptr_t>(address)) & 2 : 0;
  }
  static __device__ __forceinline__ UnalignedVector masked() {
    const uint4 vector = negative_infinity_vector<T>();
    return {{vector.x, vector.y, vector.z, vector.w, vector.w}};
  }
  static __device__ __forceinline__ UnalignedVector load_aligned(const unsigned char* address) {
    const uint4 vector = load_vector(address);
    return {{vector.x, vector.y, vector.z, vector.w, 0}};
  }
  static __device__ __forceinline__ UnalignedVector load(const unsigned char* address, unsigned before) {
    const auto half = [&](int i) { return uint32_t{reinterpret_cast<const uint16_t*>(address)[i]}; };
    const auto* const aligned = reinterpret_cast<const uint32_t*>(address - before);
    return {{before == 0 ? aligned[0] : half(0) << 16, aligned[1], aligned[2], aligned[3], before == 0 ? 0 : half(7)}};
  }
  __device__ __forceinline__ uint4 whole(unsigned before) const {
    uint32_t result[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) result[i] = __funnelshift_r(words[i], words[i + 1], 8 * before);
    return {result[0], result[1], result[2], result[3]};
  }
};

// Stores the values of one vector of x as elements of Out, by stores of 8 or 16 bytes.
template <class Out, class A, int kWidth>
__device__ __forceinline__ void store_values(unsigned char* address, const A (&values)[kWidth]) {
  constexpr int num_words = kWidth * static_cast<int>(sizeof(Out)) / 4;
  uint32_t words[num_words];
  narrow_words<Out>(values, words);
  if constexpr (num_words == 2) {
    *reinterpret_cast<uint2*>(address) = {words[0], words[1]};
  } else {
#pragma unroll
    for (int i = 0; i < num_words; i += 4)
      *reinterpret_cast<uint4*>(address + i * 4) = {words[i], words[i + 1], words[i + 2], words[i + 3]};
  }
}

// One bit per column of the vector at `column`: 1 inside [begin, end).
__device__ __forceinline__ uint32_t interval_bits(int column, int width, int begin, int end) {
  const int first = begin - column, last = end - column;
  uint32_t bits = last >= width ? (1u << width) - 1 : last <= 0 ? 0u : (1u << last) - 1;
  if (first > 0) bits = first >= width ? 0u : bits & ~((1u << first) - 1);
  return bits;
}

// ~0 << shift; 0 for shifts of 32 and more.
__device__ __forceinline__ uint32_t ones_from(int shift) {
  return __funnelshift_lc(0u, 0xffffffffu, static_cast<uint32_t>(shift));
}

// Replaces the elements of the vector at `column` that lie outside [begin, end) by those of `otherwise`.
template <class T>
__device__ __forceinline__ void select_interval(uint4* vector, int column, int begin, int end, const uint4& otherwise) {
  constexpr int bits = 8 * static_cast<int>(sizeof(T));
  uint32_t words[4] = {vector->x, vector->y, vector->z, vector->w};
  const uint32_t others[4] = {otherwise.x, otherwise.y, otherwise.z, otherwise.w};
  const auto clamp = [](int n) { return n < 0 ? 0 : n > vector_width<T> ? vector_width<T> : n; };
  const int last = clamp(end - column) * bits;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t past = ones_from(last > 32 * i ? last - 32 * i : 0);
    words[i] = (words[i] & ~past) | (others[i] & past);
  }
  if (begin > column) {
    const int first = clamp(begin - column) * bits;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t kept = ones_from(first > 32 * i ? first - 32 * i : 0);
      words[i] = (words[i] & kept) | (others[i] & ~kept);
    }
  }
  *vector = {words[0], words[1], words[2], words[3]};
}

// Each bit is the one of `a` where `mask` has a 1, and the one of `b` where it has a 0.
__device__ __forceinline__ uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
#ifdef FLOWK_SIMT
  return (a & mask) | (b & ~mask);
#else
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(result) : "r"(mask), "r"(a), "r"(b));
  return result;
#endif
}

// Cuts a vector before element `count` < vector_width. One of the two parts can be replaced by the elements of another
// vector.
template <class T>
struct VectorCut {
  uint32_t past[4];  // ones from that element on
  __device__ __forceinline__ explicit VectorCut(int count) {
    const int shift = count * 8 * static_cast<int>(sizeof(T));
#pragma unroll
    for (int i = 0; i < 4; ++i) past[i] = ones_from(max(shift - 32 * i, 0));
  }
  __device__ __forceinline__ void replace_from(uint4* vector, const uint4& other) const {
    *vector = joined(*vector, other);
  }
  __device__ __forceinline__ void replace_before(uint4* vector, const uint4& other) const {
    *vector = joined(other, *vector);
  }

 private:
  __device__ __forceinline__ uint4 joined(const uint4& before, const uint4& from) const {
    return {select_bits(past[0], from.x, before.x), select_bits(past[1], from.y, before.y),
            select_bits(past[2], from.z, before.z), select_bits(past[3], from.w, before.w)};
  }
};

// ---- the dense mask: one byte per column, nonzero where masked. The bytes of one vector take up to two 32-bit words.

template <int kWidth>
struct DenseWords {
  uint32_t words[kWidth == 8 ? 2 : 1];
};

// Loads the bytes of one vector from an address that is a multiple of their number.
template <int kWidth>
__device__ __forceinline__ DenseWords<kWidth> load_dense_aligned(const unsigned char* address) {
  if constexpr (kWidth == 8) {
    const uint2 pair = *reinterpret_cast<const uint2*>(address);
    return {{pair.x, pair.y}};
  } else {
    return {{*reinterpret_cast<const uint32_t*>(address)}};
  }
}

// The aligned words that contain the bytes of one vector, for an address of any alignment. The last one is `next`.
template <int kWidth>
__device__ __forceinline__ DenseWords<kWidth> load_dense_words(const unsigned char* aligned, uint32_t* next) {
  constexpr int num_words = kWidth == 8 ? 2 : 1;
  const auto* const words = reinterpret_cast<const uint32_t*>(aligned);
  DenseWords<kWidth> dense;
#pragma unroll
  for (int i = 0; i < num_words; ++i) dense.words[i] = words[i];
  *next = words[num_words];
  return dense;
}

// The vector's bytes in such words, `shift` bits, 0 to 24, after their start.
template <int kWidth>
__device__ __forceinline__ DenseWords<kWidth> shifted_right(const DenseWords<kWidth>& dense, uint32_t next,
                                                            unsigned shift) {
  if constexpr (kWidth == 8)
    return {{__funnelshift_r(dense.words[0], dense.words[1], shift), __funnelshift_r(dense.words[1], next, shift)}};
  else
    return {{__funnelshift_r(dense.words[0], next, shift)}};
}

// Masks the columns of a vector at `column` outside [begin, end).
template <int kWidth>
__device__ __forceinline__ void mask_outside(DenseWords<kWidth>* dense, int column, int begin, int end) {
#pragma unroll
  for (int i = 0; i < (kWidth == 8 ? 2 : 1); ++i) {
    const int first = (begin - column) * 8 - 32 * i, last = (end - column) * 8 - 32 * i;
    dense->words[i] |= ones_from(last > 0 ? last : 0) | ~ones_from(first > 0 ? first : 0);
  }
}

// 0x80 in each nonzero byte.
__device__ __forceinline__ uint32_t nonzero_bytes(uint32_t word) {
  return (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u;
}

// Byte n of the result is 0xff if the byte of `word` that nibble n of `selector` names has its top bit set, else 0.
// prmt.b32 does this for nibbles with their high bit set; __byte_perm() clears that bit.
__device__ __forceinline__ uint32_t spread_top_bits(uint32_t word, uint32_t selector) {
#ifdef FLOWK_SIMT
  return (__byte_perm(word, 0, selector) >> 7 & 0x01010101u) * 0xffu;
#else
  uint32_t result;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(result) : "r"(word), "r"(selector | 0x8888u));
  return result;
#endif
}

// Sets the elements whose byte is nonzero to -infinity.
template <class T>
__device__ __forceinline__ void mask_vector(uint4* vector, const DenseWords<vector_width<T>>& dense) {
  uint32_t words[4] = {vector->x, vector->y, vector->z, vector->w};
  const uint4 infinities = negative_infinity_vector<T>();
  const uint32_t infinity[4] = {infinities.x, infinities.y, infinities.z, infinities.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Each byte's top bit, spread over its element.
    uint32_t masked;
    if constexpr (sizeof(T) == 2)
      masked = spread_top_bits(nonzero_bytes(dense.words[i / 2]), i % 2 == 0 ? 0x1100u : 0x3322u);
    else
      masked = spread_top_bits(nonzero_bytes(dense.words[0]), i * 0x1111u);
    words[i] = (words[i] & ~masked) | (infinity[i] & masked);
  }
  *vector = {words[0], words[1], words[2], words[3]};
}

}  // namespace flowk::softmax
