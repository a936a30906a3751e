// SPDX-License-Identifier: Apache-2.0
// Packs of PReLU: 16 bytes of a tensor at any alignment, and the alphas of their elements.
#pragma once

#include "core/convert.cuh"
#include "core/divide.h"
#include "core/pack.cuh"
#include "prelu/prelu_plan.h"

namespace flowk {

template <class T>
constexpr int pack_elements = static_cast<int>(pack_bytes / sizeof(T));

template <class T>
union ElementPack {
  uint4 whole;
  T elements[pack_elements<T>];
};

// The elements of a pack in the type they are computed in: two at once where they are 16-bit, since the compiler moves
// a pack about in halves where its elements are named one by one.
template <class T>
__device__ __forceinline__ void widen_pack(const uint4& bytes, ComputeType<T> (&wide)[pack_elements<T>]) {
  if constexpr (is_float16<T>) {
    const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 pair;
      if constexpr (std::is_same_v<T, BFloat16>)
        pair = {__uint_as_float(words[i] << 16), __uint_as_float(words[i] & 0xffff0000u)};
      else
        pair = __half22float2(__half2(__builtin_bit_cast(__half2_raw, words[i])));
      wide[2 * i] = pair.x;
      wide[2 * i + 1] = pair.y;
    }
  } else {
    ElementPack<T> pack;
    pack.whole = bytes;
#pragma unroll
    for (int j = 0; j < pack_elements<T>; ++j) wide[j] = pack.elements[j];
  }
}

// The pack of these elements, each rounded once.
template <class T>
__device__ __forceinline__ uint4 narrow_pack(const ComputeType<T> (&wide)[pack_elements<T>]) {
  if constexpr (is_float16<T>) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, BFloat16>)
        words[i] = __builtin_bit_cast(
            uint32_t, static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(wide[2 * i], wide[2 * i + 1])));
      else
        words[i] =
            __builtin_bit_cast(uint32_t, static_cast<__half2_raw>(__floats2half2_rn(wide[2 * i], wide[2 * i + 1])));
    }
    return {words[0], words[1], words[2], words[3]};
  } else {
    ElementPack<T> pack;
#pragma unroll
    for (int j = 0; j < pack_elements<T>; ++j) pack.elements[j] = wide[j];
    return pack.whole;
  }
}

// Division by a launch-time constant of positions that fit 31 bits (uint32_t) or do not (uint64_t).
template <class Index>
__device__ __forceinline__ Index divide(Index n, const Divider& narrow, const WideDivider& wide) {
  if constexpr (sizeof(Index) == 4)
    return narrow.divide(n);
  else
    return wide.divide(n);
}

// tensor[first], ..., tensor[first + V - 1]; zeros for elements that do not exist. Where the tensor is not aligned as
// the packs are, a pack is put together from the two aligned ones that hold it. With kWhole all packs exist and are
// aligned.
template <class T, bool kWhole>
__device__ __forceinline__ uint4 load_pack(const void* tensor, int64_t first, int64_t num_elements, int shift) {
  constexpr int V = pack_elements<T>;
  const T* elements = static_cast<const T*>(tensor) + first;
  if (kWhole || (shift == 0 && first >= 0 && first + V <= num_elements))
    return *reinterpret_cast<const uint4*>(elements);
  if (first >= 0 && first + V <= num_elements) {
    const unsigned char* low = reinterpret_cast<const unsigned char*>(elements) - shift;
    const unsigned char* end = reinterpret_cast<const unsigned char*>(static_cast<const T*>(tensor) + num_elements);
    return shift_chunks(*reinterpret_cast<const uint4*>(low), load_chunk_before(low + pack_bytes, end), shift);
  }
  ElementPack<T> pack;
  pack.whole = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < V; ++j)
    if (first + j >= 0 && first + j < num_elements) pack.elements[j] = elements[j];
  return pack.whole;
}

// Stores the pack's elements that exist: with kWhole all.
template <class T, bool kWhole>
__device__ __forceinline__ void store_pack(void* tensor, int64_t first, int64_t num_elements, const uint4& bytes) {
  constexpr int V = pack_elements<T>;
  T* elements = static_cast<T*>(tensor) + first;
  if (kWhole || (first >= 0 && first + V <= num_elements)) {
    store_chunk(elements, bytes);
  } else {
    ElementPack<T> pack;
    pack.whole = bytes;
#pragma unroll
    for (int j = 0; j < V; ++j)
      if (first + j >= 0 && first + j < num_elements) elements[j] = pack.elements[j];
  }
}

// The alphas of a pack's elements, in the type they are computed in.
template <class T>
struct PackAlphas {
  ComputeType<T> of[pack_elements<T>];
};

// Those of the pack whose first element is element `in_plane` of a plane of channel `channel`.
template <class T, class A, class Index>
__device__ __forceinline__ PackAlphas<T> load_alphas(const void* alpha, AlphaAccess access, Index channel,
                                                     Index in_plane, const PackGrid& grid) {
  constexpr int V = pack_elements<T>;
  using Compute = ComputeType<T>;
  const A* alphas = static_cast<const A*>(alpha);
  PackAlphas<T> result;
  if (access == AlphaAccess::one_for_all || access == AlphaAccess::one_per_pack) {
    const Compute a = widen(alphas[access == AlphaAccess::one_for_all ? 0 : channel]);
#pragma unroll
    for (int j = 0; j < V; ++j) result.of[j] = a;
  } else if (access == AlphaAccess::two_per_pack) {
    const Index num_channels = static_cast<Index>(grid.channels), next = channel + 1 == num_channels ? 0 : channel + 1;
    const Compute a = widen(alphas[channel]), b = widen(alphas[next]);
    const Index remaining = static_cast<Index>(grid.inner) - in_plane;
    const int left = remaining < V ? static_cast<int>(remaining) : V;
#pragma unroll
    for (int j = 0; j < V; ++j) result.of[j] = j < left ? a : b;
  } else if (access == AlphaAccess::vector_per_pack) {
    constexpr int packs = sizeof(A) > sizeof(T) ? static_cast<int>(sizeof(A) / sizeof(T)) : 1;
    constexpr int elements = V / packs;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      ElementPack<A> pack;
      pack.whole = *reinterpret_cast<const uint4*>(alphas + channel + k * elements);
#pragma unroll
      for (int j = 0; j < elements; ++j) result.of[k * elements + j] = widen(pack.elements[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      result.of[j] = widen(alphas[channel]);
      if (++in_plane == static_cast<Index>(grid.inner)) {
        in_plane = 0;
        if (++channel == static_cast<Index>(grid.channels)) channel = 0;
      }
    }
  }
  return result;
}

}  // namespace flowk
