// SPDX-License-Identifier: Apache-2.0
// PReLU forward.
#pragma once

#include "flowk/detail/pdl.cuh"
#include "prelu/prelu_packs.cuh"

namespace flowk::prelu {

constexpr int any_access = -1;

// y[o, c, i] = x[o, c, i] > 0 ? x[o, c, i] : alpha[c] * x[o, c, i]   x, y (outer, channels, inner), alpha (channels)
// A thread owns one pack of y, a block as many neighbouring ones as it has threads. y may be x. With kWhole all packs
// exist and are aligned in x too. kAccess is the plan's way to find the alphas, or `any_access` to look it up: a kernel
// of one way is short, and a small tensor's time is that of fetching its instructions.
template <class T, class A, class Index, bool kWhole, int kAccess>
__global__ void __launch_bounds__(max_prelu_threads) prelu_elements(const __grid_constant__ PreluParams params) {
  constexpr int V = pack_elements<T>;
  using Compute = ComputeType<T>;
  const PackGrid& grid = params.grid;
  const AlphaAccess access = kAccess == any_access ? params.alpha_access : static_cast<AlphaAccess>(kAccess);
  const int64_t pack_index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t first = pack_index * V - grid.lead;
  launch_dependent_grids();
  wait_on_dependent_grids();
  if (first >= grid.num_elements) return;
  const uint4 pack = load_pack<T, kWhole>(params.x, first, grid.num_elements, params.x_shift);
  Index channel = 0, in_plane = 0;
  if (access != AlphaAccess::one_for_all) {
    const Index position = static_cast<Index>(pack_index * V + grid.phase);
    Index plane = position;
    if (access != AlphaAccess::vector_per_pack) {
      plane = divide<Index>(position, grid.by_inner, grid.by_inner_wide);
      in_plane = position - plane * static_cast<Index>(grid.inner);
    }
    channel = plane - divide<Index>(plane, grid.by_channels, grid.by_channels_wide) * static_cast<Index>(grid.channels);
  }
  const PackAlphas<T, A> alphas = load_alphas<T, A, Index>(params.alpha, access, channel, in_plane, grid);
  const uint4 y = gate_pack<T, A>(pack, pack, alphas, [](int, Compute, Compute) {});
  store_pack<T, kWhole>(params.y, first, grid.num_elements, y);
}

}  // namespace flowk::prelu
