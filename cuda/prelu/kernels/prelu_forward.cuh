// SPDX-License-Identifier: Apache-2.0
// PReLU forward.
#pragma once

#include "flowk/detail/pdl.cuh"
#include "prelu/kernels/prelu_vectors.cuh"

namespace flowk::prelu {

// Stores the vector of y that begins with element `first`.
template <class T, class A, class Index, bool kWhole>
__device__ __forceinline__ void forward_vector(const ForwardParams& params, int64_t vector, int64_t first) {
  using Compute = ComputeType<T>;
  const VectorGrid& grid = params.grid;
  uint4 x = load_elements<T, kWhole>(params.x, first, grid.num_elements, params.x_shift);
  issue_load(x);
  const Index position = static_cast<Index>(vector * vector_width<T> + grid.phase);
  Index plane = position, in_plane = 0;
  if (params.alpha_access != AlphaAccess::consecutive) {
    plane = divide<Index>(position, grid.by_inner, grid.by_inner_wide, true);
    in_plane = position - plane * static_cast<Index>(grid.inner);
  }
  const Index channel =
      plane - divide<Index>(plane, grid.by_channels, grid.by_channels_wide, true) * static_cast<Index>(grid.channels);
  const VectorAlphas<T, A> alphas =
      load_alphas<T, A, Index>(params.alpha, params.alpha_access, channel, in_plane, grid);
  const uint4 y = gate_vector<T, A>(x, x, alphas, [](int, Compute, Compute) {});
  store_elements<T, kWhole>(params.y, first, grid.num_elements, y);
}

// Multiplies the elements that are not positive by their channel's alpha, one vector of y per thread.
//   y[o, c, i] = x[o, c, i] > 0 ? x[o, c, i] : alpha[c] * x[o, c, i]   x, y (outer, channels, inner), alpha (channels)
// y may be x. Without kGeneral all vectors exist and are aligned in x too, positions have 31 bits, and alpha has type
// T. The general form has a branch for positions of 31 bits with alphas of type T, and one for all others.
template <class T, bool kGeneral>
__global__ void __launch_bounds__(max_prelu_threads)
    forward(const __grid_constant__ GridConstant<ForwardParams> params) {
  const VectorGrid& grid = params.grid;
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t first = vector * vector_width<T> - grid.misalignment;
  launch_dependent_grids();
  wait_on_dependent_grids();
  if (first >= grid.num_elements) return;
  if constexpr (!kGeneral) return forward_vector<T, T, uint32_t, true>(params, vector, first);
  if (!std::is_same_v<T, double> && !grid.is_wide && !(is_float16<T> && params.has_float_alpha))
    return forward_vector<T, T, uint32_t, false>(params, vector, first);
  with_alpha_type<T, true>(params.has_float_alpha, [&](auto type) {
    using A = typename decltype(type)::type;
    forward_vector<T, A, uint64_t, false>(params, vector, first);
  });
}

}  // namespace flowk::prelu
