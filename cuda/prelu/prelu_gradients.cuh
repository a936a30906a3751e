// SPDX-License-Identifier: Apache-2.0
// What both backward kernels of PReLU do to a pack, and how threads sum up.
#pragma once

#include "prelu/prelu_packs.cuh"

namespace flowk {

// dx = x > 0 ? dy : alpha * dy, stored where wanted; `terms` receives what each element adds to its channel's dalpha:
// x > 0 ? 0 : dy * x.
template <class T, bool kWhole>
__device__ __forceinline__ void differentiate_pack(const PreluBackwardTensors& tensors, int64_t first,
                                                   const ElementPack<T>& dy, const ElementPack<T>& x,
                                                   const PackAlphas<T>& alphas,
                                                   ComputeType<T> (&terms)[pack_elements<T>]) {
  constexpr int V = pack_elements<T>;
  using Compute = ComputeType<T>;
  ElementPack<T> dx;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const Compute wide_dy = widen(dy.elements[j]), wide_x = widen(x.elements[j]);
    const bool positive = wide_x > 0;
    dx.elements[j] = convert<T>(positive ? wide_dy : alphas.of[j] * wide_dy);
    terms[j] = positive ? Compute{0} : wide_dy * wide_x;
  }
  if (tensors.dx != nullptr) store_pack<T, kWhole>(tensors.dx, first, tensors.grid.num_elements, dx);
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
