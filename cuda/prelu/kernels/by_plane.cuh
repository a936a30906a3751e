// SPDX-License-Identifier: Apache-2.0
// PReLU backward over planes of at least one vector, of any alignment, position and type of alpha.
#pragma once

#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "prelu/kernels/prelu_gradients.cuh"

namespace flowk::prelu {

// The sums of one vector, which lies in one plane or in two.
template <class Sum>
struct VectorSums {
  Sum of_plane;  // the plane of its first element
  Sum of_next;
};

// Sums each plane that the span overlaps and stores the sum. Groups of lanes take one plane each, pass by pass. The
// span begins `span_start` elements after the start of its first plane, whose index is `first_plane`.
template <class T, bool kGeneral, class Index>
__device__ __forceinline__ void sum_planes(const ByPlaneParams& params, const VectorSums<ComputeType<T>>* vector_sums,
                                           int64_t span_start, int64_t first_plane) {
  constexpr int V = vector_width<T>;
  using Sum = ComputeType<T>;
  const BackwardTensors& tensors = params.tensors;
  const VectorGrid& grid = tensors.grid;
  const int lanes = 1 << params.log2_threads_per_plane;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int span_elements = params.span_vectors * V;
  const int planes_per_pass = static_cast<int>(blockDim.x) >> params.log2_threads_per_plane;
  // Whole warps take part in a pass, since they shuffle.
  int plane_of_warp = static_cast<int>(threadIdx.x & ~31u) >> params.log2_threads_per_plane;
  int plane_in_span = static_cast<int>(threadIdx.x) >> params.log2_threads_per_plane;
  for (; plane_of_warp * grid.inner < span_start + span_elements; plane_of_warp += planes_per_pass) {
    const int64_t begin = plane_in_span * grid.inner - span_start, end = begin + grid.inner;  // in the span
    const int64_t plane = first_plane + plane_in_span;
    const bool exists = begin < span_elements && plane >= 0 && plane < grid.num_planes;
    Sum sum = 0;
    if (exists) {
      const int in_begin = begin > 0 ? static_cast<int>(begin) : 0;
      const int in_end = end < span_elements ? static_cast<int>(end) : span_elements;
      for (int vector = in_begin / V + lane; vector * V < in_end; vector += lanes)
        sum += vector * V >= in_begin ? vector_sums[vector].of_plane : vector_sums[vector].of_next;
    }
    sum = sum_over_lanes(sum, lanes);
    if (exists && lane == 0) {
      if (tensors.dalpha != nullptr) {
        store_alpha_gradient<T, kGeneral>(tensors, plane, sum);
      } else {
        const Index outer =
            divide<Index>(static_cast<Index>(plane), grid.by_channels, grid.by_channels_wide, grid.is_wide);
        // The spans of the plane before this one.
        const Index before = begin >= 0 ? 0
                                        : divide<Index>(static_cast<Index>(span_elements - 1 - begin), params.by_span,
                                                        params.by_span_wide, grid.is_wide);
        // (outer * partials_per_plane + before) * channels + channel
        Sum* partial = static_cast<Sum*>(tensors.partials) + plane +
                       (static_cast<int64_t>(outer) * (params.partials_per_plane - 1) + before) * grid.channels;
        *partial = sum;
        // A plane may overlap one span less than partials_per_plane.
        if (end <= span_elements && static_cast<int64_t>(before) + 1 < params.partials_per_plane)
          partial[grid.channels] = 0;
      }
    }
    plane_in_span += planes_per_pass;
  }
}

// A block takes a span of consecutive vectors, one per thread.
//   dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
//   partials[o * partials_per_plane + s, c] = sum of (x > 0 ? 0 : dy * x) over plane (o, c) in its span s
//   x, dy, dx (outer, channels, inner), inner >= V
// The threads leave their sums in shared memory. Then groups of lanes sum one plane each. Without kGeneral all vectors
// exist and are aligned in all tensors, positions fit 31 bits, and alpha has type T.
template <class T, bool kGeneral>
__global__ void __launch_bounds__(max_backward_threads, fitting_blocks(max_backward_threads, 4))
    by_plane(const __grid_constant__ GridConstant<ByPlaneParams> params) {
  constexpr int V = vector_width<T>;
  using Sum = ComputeType<T>;
  using Index = std::conditional_t<kGeneral, uint64_t, uint32_t>;
  const BackwardTensors& tensors = params.tensors;
  const VectorGrid& grid = tensors.grid;
  VectorSums<Sum>* vector_sums = &shared<VectorSums<Sum>>();
  launch_dependent_grids();

  // The span starts `span_start` elements into its first plane.
  const Index span_position =
      static_cast<Index>(static_cast<int64_t>(blockIdx.x) * params.span_vectors * V + grid.phase);
  const Index first_plane = divide<Index>(span_position, grid.by_inner, grid.by_inner_wide, grid.is_wide);
  const int64_t span_start = span_position - first_plane * static_cast<Index>(grid.inner);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * params.span_vectors + threadIdx.x) * V - grid.misalignment;
  VectorSums<Sum> sums = {0, 0};
  wait_on_dependent_grids(static_cast<const T*>(tensors.x) + first);
  if (threadIdx.x < static_cast<uint32_t>(params.span_vectors) && first < grid.num_elements) {
    const uint4 x = load_elements<T, !kGeneral>(tensors.x, first, grid.num_elements, tensors.x_shift);
    const uint4 dy = load_elements<T, !kGeneral>(tensors.dy, first, grid.num_elements, tensors.dy_shift);
    const Index position = span_position + threadIdx.x * V;
    const Index plane = divide<Index>(position, grid.by_inner, grid.by_inner_wide, grid.is_wide);
    const Index in_plane = position - plane * static_cast<Index>(grid.inner);
    const Index channel = plane - divide<Index>(plane, grid.by_channels, grid.by_channels_wide, grid.is_wide) *
                                      static_cast<Index>(grid.channels);
    const Index next_channel = channel + 1 == static_cast<Index>(grid.channels) ? 0 : channel + 1;
    // The vector's elements in this plane; the others are in the next.
    const Index remaining = static_cast<Index>(grid.inner) - in_plane;
    const int left = remaining < V ? static_cast<int>(remaining) : V;
    Sum terms[V] = {};
    with_alpha_type<T, kGeneral>(tensors.has_float_alpha, [&](auto type) {
      using A = typename decltype(type)::type;
      const A* alphas = static_cast<const A*>(tensors.alpha);
      differentiate<T, A, !kGeneral>(tensors, first, dy, x,
                                     two_alphas<T, A>(alphas[channel], alphas[next_channel], left), terms);
    });
#pragma unroll
    for (int j = 0; j < V; ++j) {
      sums.of_plane += j < left ? terms[j] : Sum{0};
      sums.of_next += j < left ? Sum{0} : terms[j];
    }
  }
  if (tensors.dalpha == nullptr && tensors.partials == nullptr) return;
  vector_sums[threadIdx.x] = sums;
  __syncthreads();

  const int64_t first_existing = static_cast<int64_t>(first_plane) - grid.missing_planes;
  sum_planes<T, kGeneral, Index>(params, vector_sums, span_start, first_existing);
}

}  // namespace flowk::prelu
