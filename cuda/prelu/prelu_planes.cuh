// SPDX-License-Identifier: Apache-2.0
// PReLU backward over planes of at least one pack.
#pragma once

#include "core/grid_order.cuh"
#include "core/shared.cuh"
#include "prelu/prelu_gradients.cuh"

namespace flowk {

// A thread's pack lies in one plane or in two.
template <class Sum>
struct PackSums {
  Sum of_plane;  // the one that its first element is in
  Sum of_next;
};

// dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
// partials[o * partials_per_plane + s, c] = sum of (x > 0 ? 0 : dy * x) over what plane (o, c) has in its span s
//   x, dy, dx (outer, channels, inner), inner >= V
// A block takes a span of packs, a thread one. The threads leave their sums in shared memory; then groups of lanes sum
// up one plane each. With kWhole all packs exist and are aligned in all tensors.
template <class T, class A, class Index, bool kWhole>
__global__ void __launch_bounds__(max_backward_threads)
    prelu_packs_of_planes(const __grid_constant__ PlaneParams params) {
  constexpr int V = pack_elements<T>;
  using Sum = ComputeType<T>;
  const PreluBackwardTensors& tensors = params.tensors;
  const PackGrid& grid = tensors.grid;
  PackSums<Sum>* pack_sums = &shared<PackSums<Sum>>();
  allow_next_grid();

  // Positions in the span count from its first plane's start.
  const Index span_position = static_cast<Index>(static_cast<int64_t>(blockIdx.x) * params.span_packs * V + grid.phase);
  const Index first_plane = divide<Index>(span_position, grid.by_inner, grid.by_inner_wide);
  const int64_t span_start = span_position - first_plane * static_cast<Index>(grid.inner);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * params.span_packs + threadIdx.x) * V - grid.lead;
  PackSums<Sum> sums = {0, 0};
  if (threadIdx.x < static_cast<uint32_t>(params.span_packs) && first < grid.num_elements) {
    const ElementPack<T> x = load_pack<T, kWhole>(tensors.x, first, grid.num_elements, tensors.x_shift);
    const ElementPack<T> dy = load_pack<T, kWhole>(tensors.dy, first, grid.num_elements, tensors.dy_shift);
    const Index position = span_position + threadIdx.x * V;
    const Index plane = divide<Index>(position, grid.by_inner, grid.by_inner_wide);
    const Index in_plane = position - plane * static_cast<Index>(grid.inner);
    const Index channel =
        plane - divide<Index>(plane, grid.by_channels, grid.by_channels_wide) * static_cast<Index>(grid.channels);
    const PackAlphas<T> alphas = load_alphas<T, A>(tensors.alpha, params.alpha_access, channel, in_plane, grid);
    Sum terms[V];
    differentiate_pack<T, kWhole>(tensors, first, dy, x, alphas, terms);
    const Index left = static_cast<Index>(grid.inner) - in_plane;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      sums.of_plane += static_cast<Index>(j) < left ? terms[j] : Sum{0};
      sums.of_next += static_cast<Index>(j) < left ? Sum{0} : terms[j];
    }
  }
  if (tensors.dalpha == nullptr && tensors.partials == nullptr) return;
  pack_sums[threadIdx.x] = sums;
  __syncthreads();

  const int64_t span_elements = static_cast<int64_t>(params.span_packs) * V;
  const int64_t num_planes = grid.num_elements / grid.inner;
  const int64_t missing_planes = (grid.phase + grid.lead) / grid.inner;  // in the positions before element 0
  const int planes_per_pass = static_cast<int>(blockDim.x) / params.threads_per_plane;
  const int lane = static_cast<int>(threadIdx.x) % params.threads_per_plane;
  int64_t begin = static_cast<int64_t>(threadIdx.x / params.threads_per_plane) * grid.inner - span_start;
  int64_t plane = static_cast<int64_t>(first_plane) - missing_planes + threadIdx.x / params.threads_per_plane;
  // Whole warps go through the passes: the lanes of a warp sum up together.
  const int warp_planes = 32 / params.threads_per_plane;
  for (int64_t warp_begin = static_cast<int64_t>(threadIdx.x / 32 * warp_planes) * grid.inner - span_start;
       warp_begin < span_elements; warp_begin += planes_per_pass * grid.inner) {
    const int64_t end = begin + grid.inner;
    const bool exists = begin < span_elements && plane >= 0 && plane < num_planes;
    Sum sum = 0;
    if (exists) {
      const int in_begin = begin > 0 ? static_cast<int>(begin) : 0;
      const int in_end = static_cast<int>(end < span_elements ? end : span_elements);
      for (int pack = in_begin / V + lane; pack * V < in_end; pack += params.threads_per_plane)
        sum += pack * V >= in_begin ? pack_sums[pack].of_plane : pack_sums[pack].of_next;
    }
    sum = sum_over_lanes(sum, params.threads_per_plane);
    if (exists && lane == 0) {
      if (tensors.dalpha != nullptr) {
        static_cast<A*>(tensors.dalpha)[plane] = convert<A>(sum);
      } else {
        const Index outer = divide<Index>(static_cast<Index>(plane), grid.by_channels, grid.by_channels_wide);
        const int64_t channel = plane - static_cast<int64_t>(outer) * grid.channels;
        // Spans of the plane before this one.
        const Index before = begin >= 0 ? 0
                                        : divide<Index>(static_cast<Index>(-begin + span_elements - 1), params.by_span,
                                                        params.by_span_wide);
        Sum* partials = static_cast<Sum*>(tensors.partials) +
                        (static_cast<int64_t>(outer) * params.partials_per_plane + before) * grid.channels + channel;
        *partials = sum;
        // A plane may lie in one span less than the most.
        if (end <= span_elements && static_cast<int64_t>(before) + 1 < params.partials_per_plane)
          partials[grid.channels] = 0;
      }
    }
    begin += planes_per_pass * grid.inner;
    plane += planes_per_pass;
  }
}

}  // namespace flowk
