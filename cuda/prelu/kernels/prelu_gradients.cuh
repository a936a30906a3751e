// SPDX-License-Identifier: Apache-2.0
// The gradients of one vector, and sums.
#pragma once

#include "core/warp_reduce.cuh"
#include "prelu/kernels/prelu_vectors.cuh"

namespace flowk::prelu {

// Stores dx = x > 0 ? dy : alpha * dy, if it is wanted, and adds the term x > 0 ? 0 : dy * x of each element to
// sums[j], or to sums if that is one sum.
template <class T, class A, bool kWhole, class Sums>
__device__ __forceinline__ void differentiate(const BackwardTensors& tensors, int64_t first, const uint4& dy_vector,
                                              const uint4& x_vector, const VectorAlphas<T, A>& alphas, Sums& sums) {
  using Compute = ComputeType<T>;
  const uint4 dx = gate_vector<T, A>(x_vector, dy_vector, alphas, [&]([[maybe_unused]] int j, Compute x, Compute dy) {
    if constexpr (std::is_array_v<Sums>)
      sums[j] += dy * x;
    else
      sums += dy * x;
  });
  if (tensors.dx != nullptr) store_elements<T, kWhole>(tensors.dx, first, tensors.grid.num_elements, dx);
}

// The sum of the values, as a tree.
template <class Sum, int kValues>
__device__ __forceinline__ Sum sum_of_values(Sum (&values)[kValues]) {
#pragma unroll
  for (int half = kValues / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) values[k] += values[k + half];
  return values[0];
}

// Stores a channel's finished sum in dalpha.
template <class T, bool kAnyAlpha>
__device__ __forceinline__ void store_alpha_gradient(const BackwardTensors& tensors, int64_t channel,
                                                     ComputeType<T> sum) {
  with_alpha_type<T, kAnyAlpha>(tensors.has_float_alpha, [&](auto type) {
    using A = typename decltype(type)::type;
    static_cast<A*>(tensors.dalpha)[channel] = convert<A>(sum);
  });
}

}  // namespace flowk::prelu
