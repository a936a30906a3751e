// SPDX-License-Identifier: Apache-2.0
// What both backward kernels of PReLU do to a pack, and how threads sum up.
#pragma once

#include "prelu/prelu_packs.cuh"

namespace flowk {

// dx = x > 0 ? dy : alpha * dy, stored where wanted; `terms` receives what each element adds to its channel's dalpha:
// x > 0 ? 0 : dy * x.
template <class T, bool kWhole>
__device__ __forceinline__ void differentiate_pack(const PreluBackwardTensors& tensors, int64_t first,
                                                   const uint4& dy_bytes, const uint4& x_bytes,
                                                   const PackAlphas<T>& alphas,
                                                   ComputeType<T> (&terms)[pack_elements<T>]) {
  constexpr int V = pack_elements<T>;
  using Compute = ComputeType<T>;
  Compute dy[V], x[V], dx[V];
  widen_pack<T>(dy_bytes, dy);
  widen_pack<T>(x_bytes, x);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const bool positive = x[j] > 0;
    dx[j] = positive ? dy[j] : alphas.of[j] * dy[j];
    terms[j] = positive ? Compute{0} : dy[j] * x[j];
  }
  if (tensors.dx != nullptr) store_pack<T, kWhole>(tensors.dx, first, tensors.grid.num_elements, narrow_pack<T>(dx));
}

// The same, adding to `sums`.
template <class T, bool kWhole>
__device__ __forceinline__ void differentiate_pack_into(const PreluBackwardTensors& tensors, int64_t first,
                                                        const uint4& dy_bytes, const uint4& x_bytes,
                                                        const PackAlphas<T>& alphas,
                                                        ComputeType<T> (&sums)[pack_elements<T>]) {
  constexpr int V = pack_elements<T>;
  using Compute = ComputeType<T>;
  Compute dy[V], x[V], dx[V];
  widen_pack<T>(dy_bytes, dy);
  widen_pack<T>(x_bytes, x);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const bool positive = x[j] > 0;
    dx[j] = positive ? dy[j] : alphas.of[j] * dy[j];
    if (!positive) sums[j] += dy[j] * x[j];
  }
  if (tensors.dx != nullptr) store_pack<T, kWhole>(tensors.dx, first, tensors.grid.num_elements, narrow_pack<T>(dx));
}

// The same with one alpha for the pack; returns what it adds to dalpha.
template <class T, bool kWhole>
__device__ __forceinline__ ComputeType<T> differentiate_pack(const PreluBackwardTensors& tensors, int64_t first,
                                                             const uint4& dy_bytes, const uint4& x_bytes,
                                                             ComputeType<T> alpha) {
  constexpr int V = pack_elements<T>;
  using Compute = ComputeType<T>;
  Compute dy[V], x[V], dx[V], sum = 0;
  widen_pack<T>(dy_bytes, dy);
  widen_pack<T>(x_bytes, x);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const bool positive = x[j] > 0;
    dx[j] = positive ? dy[j] : alpha * dy[j];
    if (!positive) sum += dy[j] * x[j];
  }
  if (tensors.dx != nullptr) store_pack<T, kWhole>(tensors.dx, first, tensors.grid.num_elements, narrow_pack<T>(dx));
  return sum;
}

// The sum over the lanes of a warp, in each of them and in the same order in every run.
template <class Sum>
__device__ __forceinline__ Sum sum_over_warp(Sum value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// The sum over `num_lanes` (a power of two, at most 32) neighbouring lanes, in each of them and in the same order in
// every run. All lanes of the warp come here.
template <class Sum>
__device__ __forceinline__ Sum sum_over_lanes(Sum value, int num_lanes) {
  for (int distance = num_lanes / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

}  // namespace flowk
