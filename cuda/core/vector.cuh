// SPDX-License-Identifier: Apache-2.0
// Vectors and packs as the operators' kernels use them, on top of flowk/detail/packs.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/namespaces.h"
#include "flowk/detail/async_copy.cuh"
#include "flowk/detail/packs.cuh"

namespace flowk::core {

// The unsigned type of `Bytes` bytes, aligned to its size: the element type of kernels that only move elements.
template <int Bytes>
using Pack = std::conditional_t<
    Bytes == 1, uint8_t,
    std::conditional_t<Bytes == 2, uint16_t,
                       std::conditional_t<Bytes == 4, uint32_t, std::conditional_t<Bytes == 8, uint2, uint4>>>>;

// Returns `address`, and tells the compiler that it points to global memory. The compiler cannot know this if the
// address was read from shared memory.
__device__ __forceinline__ unsigned char* in_global_memory(unsigned char* address) {
#ifndef FLOWK_SIMT
  __builtin_assume(__isGlobal(address));
#endif
  return address;
}

// Stores a vector at `address`, a multiple of 16, with one instruction. The compiler would use four for some vectors.
__device__ __forceinline__ void store_vector(void* address, const uint4& vector) {
#ifdef FLOWK_SIMT
  *static_cast<uint4*>(address) = vector;
#else
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(vector.x), "r"(vector.y), "r"(vector.z),
               "r"(vector.w)
               : "memory");
#endif
}

// Stores the low bytes of a word to shared memory at `address`, a multiple of kBytes.
template <int kBytes>
__device__ __forceinline__ void store_shared(SharedAddress address, uint32_t word) {
#ifdef FLOWK_SIMT
  *reinterpret_cast<Pack<kBytes>*>(address) = static_cast<Pack<kBytes>>(word);
#else
  if constexpr (kBytes == 1)
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(word) : "memory");
  else if constexpr (kBytes == 2)
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "r"(word) : "memory");
  else
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
#endif
}

// The vector at `address`, a multiple of 16. Bytes at `end` and after are not read and are zero.
__device__ __forceinline__ uint4 load_vector_before(const unsigned char* address, const unsigned char* end) {
  if (end - address >= vector_bytes) return *reinterpret_cast<const uint4*>(address);
  uint4 vector = {0, 0, 0, 0};
#pragma unroll 1
  for (int i = static_cast<int>(end - address) - 1; i >= 0; --i) {
    vector.w = __funnelshift_l(vector.z, vector.w, 8);
    vector.z = __funnelshift_l(vector.y, vector.z, 8);
    vector.y = __funnelshift_l(vector.x, vector.y, 8);
    vector.x = vector.x << 8 | address[i];
  }
  return vector;
}

// Bytes [shift, shift + 16) of the 32 bytes (low, high), 0 <= shift < 16.
__device__ __forceinline__ uint4 shift_vectors(const uint4& low, const uint4& high, int shift) {
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  pack::shift_down<vector_bytes>(words, shift);
  return {words[0], words[1], words[2], words[3]};
}

// The same, if shift / 4 is kWords.
template <int kWords>
__device__ __forceinline__ uint4 shift_vectors_past(const uint4& low, const uint4& high, int shift) {
  const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  const auto word = [&](int i) { return __funnelshift_r(words[kWords + i], words[kWords + i + 1], (shift & 3) * 8); };
  return {word(0), word(1), word(2), word(3)};
}

// A vector as words and as elements of `Bytes` bytes.
template <int Bytes>
union Vector {
  uint4 whole;
  uint32_t words[4];
  Pack<Bytes> elements[vector_bytes / Bytes];
};

// Stores elements [first, last) of a vector at `address`, a multiple of 16. 32-bit words in the range are stored whole.
template <int Bytes>
__device__ __forceinline__ void store_partial_vector(unsigned char* address, const Vector<Bytes>& vector, int first,
                                                     int last) {
  constexpr int elements_per_word = Bytes < 4 ? 4 / Bytes : 1;
  constexpr int num_steps = vector_bytes / Bytes / elements_per_word;
#pragma unroll
  for (int step = 0; step < num_steps; ++step) {
    const int begin = step * elements_per_word;
    if (Bytes < 4 && begin >= first && begin + elements_per_word <= last) {
      *reinterpret_cast<uint32_t*>(address + step * 4) = vector.words[step];
      continue;
    }
#pragma unroll
    for (int i = begin; i < begin + elements_per_word; ++i)
      if (i >= first && i < last) *reinterpret_cast<Pack<Bytes>*>(address + i * Bytes) = vector.elements[i];
  }
}

}  // namespace flowk::core
