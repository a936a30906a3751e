// SPDX-License-Identifier: Apache-2.0
// What the backward kernels of PReLU do to a pack, and how threads sum up.
#pragma once

#include "prelu/prelu_packs.cuh"

namespace flowk::prelu {

// dx = x > 0 ? dy : alpha * dy, stored where wanted. What each element adds to its channel's dalpha, x > 0 ? 0 : dy *
// x, is added to its place of `sums`.
template <class T, class A, bool kWhole>
__device__ __forceinline__ void differentiate_pack(const PreluBackwardTensors& tensors, int64_t first,
                                                   const uint4& dy_bytes, const uint4& x_bytes,
                                                   const PackAlphas<T, A>& alphas,
                                                   ComputeType<T> (&sums)[pack_elements<T>]) {
  using Compute = ComputeType<T>;
  const uint4 dx = gate_pack<T, A>(x_bytes, dy_bytes, alphas, [&](int j, Compute x, Compute dy) { sums[j] += dy * x; });
  if (tensors.dx != nullptr) store_pack<T, kWhole>(tensors.dx, first, tensors.grid.num_elements, dx);
}

// The same, adding to one sum.
template <class T, class A, bool kWhole>
__device__ __forceinline__ void differentiate_pack(const PreluBackwardTensors& tensors, int64_t first,
                                                   const uint4& dy_bytes, const uint4& x_bytes,
                                                   const PackAlphas<T, A>& alphas, ComputeType<T>& sum) {
  using Compute = ComputeType<T>;
  const uint4 dx = gate_pack<T, A>(x_bytes, dy_bytes, alphas, [&](int, Compute x, Compute dy) { sum += dy * x; });
  if (tensors.dx != nullptr) store_pack<T, kWhole>(tensors.dx, first, tensors.grid.num_elements, dx);
}

// Stores a channel's finished sum in dalpha.
template <class T, bool kAnyAlpha>
__device__ __forceinline__ void store_alpha_gradient(const PreluBackwardTensors& tensors, int64_t channel,
                                                     ComputeType<T> sum) {
  with_alpha_type<T, kAnyAlpha>(tensors.has_float_alpha, [&](auto type) {
    using A = typename decltype(type)::type;
    static_cast<A*>(tensors.dalpha)[channel] = convert<A>(sum);
  });
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

// Sums up each of a lane's values over the 2^kSteps lanes of its warp that are 16, 8, ... apart, in the same order in
// every run. The lanes share out the values, half of them at every step while there are two. The first of those that a
// lane ends with, kValues >> kSteps or one, was the value whose number is returned.
template <int kSteps, class Sum, int kValues>
__device__ __forceinline__ int sum_values_over_lanes(Sum (&values)[kValues], int lane) {
  int index = 0;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int distance = 16 >> step, half = kValues >> (step + 1);
    const bool keeps_upper = half > 0 && (lane & distance) != 0;
    if (half == 0) values[0] += __shfl_xor_sync(0xffffffffu, values[0], distance);
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const Sum given = keeps_upper ? values[i] : values[i + half];
      values[i] = (keeps_upper ? values[i + half] : values[i]) + __shfl_xor_sync(0xffffffffu, given, distance);
    }
    index += keeps_upper ? half : 0;
  }
  return index;
}

}  // namespace flowk::prelu
