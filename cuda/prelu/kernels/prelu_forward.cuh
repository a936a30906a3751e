// SPDX-License-Identifier: Apache-2.0
// PReLU forward.
#pragma once

#include "flowk/detail/pdl.cuh"
#include "prelu/kernels/prelu_vectors.cuh"

namespace flowk::prelu {

constexpr int any_access = -1;

// Multiplies the elements that are not positive by their channel's alpha, one vector of y per thread.
//   y[o, c, i] = x[o, c, i] > 0 ? x[o, c, i] : alpha[c] * x[o, c, i]   x, y (outer, channels, inner), alpha (channels)
// y may be x. any_access is the general form. Else kAccess is the plan's AlphaAccess, all vectors exist and are aligned
// in x too, positions have 31 bits and alpha has type T. One access makes a short kernel, and on small tensors the time
// is that of fetching instructions.
template <class T, int kAccess>
__global__ void __launch_bounds__(max_prelu_threads) forward(const __grid_constant__ ForwardParams params) {
  constexpr bool is_general = kAccess == any_access;
  constexpr int V = vector_elements<T>;
  using Compute = ComputeType<T>;
  using Index = std::conditional_t<is_general, uint64_t, uint32_t>;
  const VectorGrid& grid = params.grid;
  const AlphaAccess access = is_general ? params.alpha_access : static_cast<AlphaAccess>(kAccess);
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t first = vector * V - grid.lead;
  launch_dependent_grids();
  wait_on_dependent_grids();
  if (first >= grid.num_elements) return;
  const uint4 x = load_elements<T, !is_general>(params.x, first, grid.num_elements, params.x_shift);
  const Index position = static_cast<Index>(vector * V + grid.phase);
  Index plane = position, in_plane = 0;
  if (access != AlphaAccess::consecutive) {
    plane = divide<Index>(position, grid.by_inner, grid.by_inner_wide, grid.is_wide);
    in_plane = position - plane * static_cast<Index>(grid.inner);
  }
  const Index channel = plane - divide<Index>(plane, grid.by_channels, grid.by_channels_wide, grid.is_wide) *
                                    static_cast<Index>(grid.channels);
  with_alpha_type<T, is_general>(params.has_float_alpha, [&](auto type) {
    using A = typename decltype(type)::type;
    const VectorAlphas<T, A> alphas = load_alphas<T, A, Index>(params.alpha, access, channel, in_plane, grid);
    const uint4 y = gate_vector<T, A>(x, x, alphas, [](int, Compute, Compute) {});
    store_elements<T, !is_general>(params.y, first, grid.num_elements, y);
  });
}

}  // namespace flowk::prelu
