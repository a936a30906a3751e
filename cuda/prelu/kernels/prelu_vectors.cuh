// SPDX-License-Identifier: Apache-2.0
// The alphas of a vector of elements, and the products with them.
#pragma once

#include "core/divide.h"
#include "core/element_vector.cuh"
#include "prelu/kernels/prelu_pairs.cuh"
#include "prelu/prelu_params.h"

namespace flowk::prelu {

// n divided by a launch-time constant. n must fit 31 bits if Index is uint32_t or `is_wide` is false.
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

// Are elements of type T multiplied with alphas of type A in pairs?
template <class T, class A>
constexpr bool is_paired = is_float16<T> && std::is_same_v<T, A>;

// The alphas of a vector's elements: pairs of A, or values of the type that T is computed in.
template <class T, class A>
struct VectorAlphas {
  ComputeType<T> of[vector_width<T>];
  __device__ __forceinline__ void set(int j, A alpha) { of[j] = widen(alpha); }
};
template <class T, class A>
  requires is_paired<T, A>
struct VectorAlphas<T, A> {
  uint32_t words[4];
  __device__ __forceinline__ void set(int j, A alpha) {  // j = 0, 1, ... in order
    const uint32_t bits = bits_of(alpha);
    words[j / 2] = j % 2 == 0 ? bits : words[j / 2] | bits << 16;
  }
};

// `alpha` for the first `left` elements, `next` for the others.
template <class T, class A>
__device__ __forceinline__ VectorAlphas<T, A> two_alphas(A alpha, A next, int left) {
  VectorAlphas<T, A> result;
#pragma unroll
  for (int j = 0; j < vector_width<T>; ++j) result.set(j, j < left ? alpha : next);
  return result;
}

// alpha[first], alpha[first + 1], ..., aligned to 16 bytes.
template <class T, class A>
__device__ __forceinline__ VectorAlphas<T, A> load_consecutive_alphas(const void* alpha, int64_t first) {
  const uint4* vectors = reinterpret_cast<const uint4*>(static_cast<const A*>(alpha) + first);
  VectorAlphas<T, A> result;
  if constexpr (is_paired<T, A>) {
    result = {{vectors->x, vectors->y, vectors->z, vectors->w}};
  } else {
#pragma unroll
    for (int k = 0; k < vector_width<T> / vector_width<A>; ++k)
      widen_vector<A>(vectors[k], result.of + k * vector_width<A>);
  }
  return result;
}

// The alphas of a vector. Its first element is element `in_plane` of a plane of channel `channel`.
template <class T, class A, class Index>
__device__ __forceinline__ VectorAlphas<T, A> load_alphas(const void* alpha, AlphaAccess access, Index channel,
                                                          Index in_plane, const VectorGrid& grid) {
  constexpr int V = vector_width<T>;
  const A* alphas = static_cast<const A*>(alpha);
  VectorAlphas<T, A> result;
  if (access == AlphaAccess::one_per_vector) {
    const A a = alphas[channel];
    result = two_alphas<T, A>(a, a, V);
  } else if (access == AlphaAccess::two_per_vector) {
    const Index num_channels = static_cast<Index>(grid.channels), next = channel + 1 == num_channels ? 0 : channel + 1;
    const Index remaining = static_cast<Index>(grid.inner) - in_plane;
    result = two_alphas<T, A>(alphas[channel], alphas[next], remaining < V ? static_cast<int>(remaining) : V);
  } else if (access == AlphaAccess::consecutive) {
    return load_consecutive_alphas<T, A>(alpha, static_cast<int64_t>(channel));
  } else {
    // inner < V. The loop over the elements has no branches, so that all alphas are in flight at once.
    const Index channels = static_cast<Index>(grid.channels);
    const int inner = static_cast<int>(grid.inner);
    const auto walk = [&](auto is_last_of_plane) {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        result.set(j, alphas[channel]);
        const Index next = channel + 1 == channels ? 0 : channel + 1;
        channel = is_last_of_plane() ? next : channel;
      }
    };
    int left = inner - static_cast<int>(in_plane);
    if (inner == 1)
      walk([] { return true; });
    else
      walk([&] {
        const bool is_last = --left == 0;
        left = is_last ? inner : left;
        return is_last;
      });
  }
  return result;
}

// x > 0 ? kept : alpha * kept, each product rounded once. Calls visit(j, x, kept) for the elements that are not > 0, in
// the type that T is computed in. If elements are computed in pairs, visit() is called for every element, with zeros if
// the element is > 0.
template <class T, class A, class Visit>
__device__ __forceinline__ uint4 gate_vector(const uint4& x_bytes, const uint4& kept_bytes,
                                             const VectorAlphas<T, A>& alphas, Visit&& visit) {
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
    constexpr int V = vector_width<T>;
    ComputeType<T> x[V], kept[V], gated[V];
    widen_vector<T>(x_bytes, x);
    widen_vector<T>(kept_bytes, kept);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const bool positive = x[j] > 0;
      gated[j] = positive ? kept[j] : alphas.of[j] * kept[j];
      if (!positive) visit(j, x[j], kept[j]);
    }
    return narrow_vector<T>(gated);
  }
}

}  // namespace flowk::prelu
