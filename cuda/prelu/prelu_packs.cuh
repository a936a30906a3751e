// SPDX-License-Identifier: Apache-2.0
// Packs of PReLU: 16 bytes of a tensor at any alignment, and the alphas of their elements.
#pragma once

#include "core/convert.cuh"
#include "core/divide.h"
#include "core/vector.cuh"
#include "prelu/prelu_pairs.cuh"
#include "prelu/prelu_plan.h"

namespace flowk::prelu {

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
      const float2 pair = widen_pair<T>(words[i]);
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

// n divided by a launch-time constant: n fits 31 bits if Index is uint32_t or `is_wide` is false.
template <class Index>
__device__ __forceinline__ Index divide(Index n, const Divider& narrow, const WideDivider& wide, bool is_wide) {
  if (sizeof(Index) == 4 || !is_wide) return narrow.divide(static_cast<uint32_t>(n));
  return static_cast<Index>(wide.divide(n));
}

// Calls body(std::type_identity<A>()) with the type A of the alphas: T, or with kAnyAlpha float if `is_float` says so.
template <class T, bool kAnyAlpha, class Body>
__device__ __forceinline__ void with_alpha_type([[maybe_unused]] bool is_float, Body&& body) {
  if constexpr (kAnyAlpha && is_float16<T>)
    if (is_float) return body(std::type_identity<float>());
  body(std::type_identity<T>());
}

// tensor[first], ..., tensor[first + V - 1]; zeros for elements that do not exist. Where the tensor is not aligned as
// the packs are, a pack is put together from the two aligned ones that hold it. With kWhole all packs exist and are
// aligned.
template <class T, bool kWhole>
__device__ __forceinline__ uint4 load_pack(const void* tensor, int64_t first, int64_t num_elements, int shift) {
  constexpr int V = pack_elements<T>;
  const T* elements = static_cast<const T*>(tensor) + first;
  if (kWhole) return *reinterpret_cast<const uint4*>(elements);
  const int num_read = shift == 0 ? V : 2 * V - shift / static_cast<int>(sizeof(T));
  if (first >= 0 && first + num_read <= num_elements) {
    const uint4* aligned = reinterpret_cast<const uint4*>(reinterpret_cast<const unsigned char*>(elements) - shift);
    return shift == 0 ? aligned[0] : shift_vectors(aligned[0], aligned[1], shift);
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
    store_vector(elements, bytes);
  } else {
    ElementPack<T> pack;
    pack.whole = bytes;
#pragma unroll
    for (int j = 0; j < V; ++j)
      if (first + j >= 0 && first + j < num_elements) elements[j] = pack.elements[j];
  }
}

// Are alphas of type A multiplied with elements of type T two at a time?
template <class T, class A>
constexpr bool is_paired = is_float16<T> && std::is_same_v<T, A>;

// The alphas of a pack's elements: as they are where they are paired, else in the type they are computed in.
template <class T, class A>
struct PackAlphas {
  ComputeType<T> of[pack_elements<T>];
  __device__ __forceinline__ void set(int j, A alpha) { of[j] = widen(alpha); }
};
template <class T, class A>
  requires is_paired<T, A>
struct PackAlphas<T, A> {
  uint32_t words[4];
  __device__ __forceinline__ void set(int j, A alpha) {  // in the order of j
    const uint32_t bits = bits_of(alpha);
    words[j / 2] = j % 2 == 0 ? bits : words[j / 2] | bits << 16;
  }
};

// Those of the elements of a pack, `left` of which belong to one channel and the rest to another.
template <class T, class A>
__device__ __forceinline__ PackAlphas<T, A> two_alphas(A alpha, A next, int left) {
  PackAlphas<T, A> result;
#pragma unroll
  for (int j = 0; j < pack_elements<T>; ++j) result.set(j, j < left ? alpha : next);
  return result;
}

// Those of the pack whose first element is element `in_plane` of a plane of channel `channel`.
template <class T, class A, class Index>
__device__ __forceinline__ PackAlphas<T, A> load_alphas(const void* alpha, AlphaAccess access, Index channel,
                                                        Index in_plane, const PackGrid& grid) {
  constexpr int V = pack_elements<T>;
  const A* alphas = static_cast<const A*>(alpha);
  PackAlphas<T, A> result;
  if (access == AlphaAccess::one_per_pack) {
    const A a = alphas[channel];
    result = two_alphas<T, A>(a, a, V);
  } else if (access == AlphaAccess::two_per_pack) {
    const Index num_channels = static_cast<Index>(grid.channels), next = channel + 1 == num_channels ? 0 : channel + 1;
    const Index remaining = static_cast<Index>(grid.inner) - in_plane;
    result = two_alphas<T, A>(alphas[channel], alphas[next], remaining < V ? static_cast<int>(remaining) : V);
  } else if (access == AlphaAccess::vector_per_pack) {
    constexpr int packs = sizeof(A) > sizeof(T) ? static_cast<int>(sizeof(A) / sizeof(T)) : 1;
    constexpr int elements = V / packs;
#pragma unroll
    for (int k = 0; k < packs; ++k) {
      ElementPack<A> pack;
      pack.whole = *reinterpret_cast<const uint4*>(alphas + channel + k * elements);
#pragma unroll
      for (int j = 0; j < elements; ++j) result.set(k * elements + j, pack.elements[j]);
    }
  } else {
    // How many elements are left of the plane, and how many planes to the last channel's end, as far as a pack reaches.
    const auto in_pack = [](Index count) { return count < V ? static_cast<int>(count) : V; };
    const int inner = in_pack(static_cast<Index>(grid.inner)), channels = in_pack(static_cast<Index>(grid.channels));
    int elements_left = in_pack(static_cast<Index>(grid.inner) - in_plane);
    int planes_left = in_pack(static_cast<Index>(grid.channels) - channel);
    const A* next = alphas + channel;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      result.set(j, *next);
      if (--elements_left > 0) continue;
      elements_left = inner;
      ++next;
      if (--planes_left > 0) continue;
      planes_left = channels;
      next -= grid.channels;
    }
  }
  return result;
}

// x > 0 ? kept : alpha * kept, each product rounded once; `visit(j, x, kept)` is called with the elements that take the
// alpha side, as they are computed with. Where alphas are paired it is called for all, with zeros for the others.
template <class T, class A, class Visit>
__device__ __forceinline__ uint4 gate_pack(const uint4& x_bytes, const uint4& kept_bytes,
                                           const PackAlphas<T, A>& alphas, Visit&& visit) {
  if constexpr (is_paired<T, A>) {
    const uint32_t x[4] = {x_bytes.x, x_bytes.y, x_bytes.z, x_bytes.w};
    const uint32_t kept[4] = {kept_bytes.x, kept_bytes.y, kept_bytes.z, kept_bytes.w};
    uint32_t gated[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t mask = mask_of_positive<T>(x[i]);
      gated[i] = (kept[i] & mask) | (multiply_pairs<T>(alphas.words[i], kept[i]) & ~mask);
      const float2 wide_x = widen_pair<T>(x[i] & ~mask), wide_kept = widen_pair<T>(kept[i] & ~mask);
      visit(2 * i, wide_x.x, wide_kept.x);
      visit(2 * i + 1, wide_x.y, wide_kept.y);
    }
    return {gated[0], gated[1], gated[2], gated[3]};
  } else {
    constexpr int V = pack_elements<T>;
    ComputeType<T> x[V], kept[V], gated[V];
    widen_pack<T>(x_bytes, x);
    widen_pack<T>(kept_bytes, kept);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const bool positive = x[j] > 0;
      gated[j] = positive ? kept[j] : alphas.of[j] * kept[j];
      if (!positive) visit(j, x[j], kept[j]);
    }
    return narrow_pack<T>(gated);
  }
}

}  // namespace flowk::prelu
