// SPDX-License-Identifier: Apache-2.0
// PReLU backward over planes so long that the vectors of a warp lie in at most two.
#pragma once

#include "flowk/detail/pdl.cuh"
#include "prelu/kernels/prelu_gradients.cuh"

namespace flowk::prelu {

// The plane that a span begins in, and the next plane. Partials are (channels, outer, partials_per_plane).
struct SpanPlanes {
  int64_t channel;
  int64_t next_channel;
  int64_t partial;       // index of the partial of this span in its first plane
  int64_t next_partial;  // index of the first partial of the next plane
  int remaining;         // elements before the next plane, at most span_elements + 1
  bool has_further_partial;
  bool exists;  // false for planes before the first one and after the last
  bool next_exists;
};

template <class Index>
__device__ __forceinline__ SpanPlanes planes_of_span(const BySpanParams& params, int64_t span) {
  const VectorGrid& grid = params.tensors.grid;
  const Index inner = static_cast<Index>(grid.inner), span_elements = static_cast<Index>(params.span_elements);
  const Index channels = static_cast<Index>(grid.channels), outer = static_cast<Index>(params.outer);
  const Index per_plane = static_cast<Index>(params.partials_per_plane);
  const Index position = static_cast<Index>(span) * span_elements + static_cast<Index>(grid.phase);
  const Index plane = divide<Index>(position, grid.by_inner, grid.by_inner_wide, true);
  const Index image = divide<Index>(plane, grid.by_channels, grid.by_channels_wide, true);
  const Index channel = plane - image * channels, in_plane = position - plane * inner, left = inner - in_plane;
  // Spans with elements of the plane before this one.
  const Index before = divide<Index>(in_plane + span_elements - 1, params.by_span, params.by_span_wide, true);
  const Index row =
      image - static_cast<Index>(params.missing_outer);  // >= outer (as an unsigned number) if it does not exist
  const bool wraps = channel + 1 == channels;
  const Index next_row = wraps ? row + 1 : row, next_channel = wraps ? 0 : channel + 1;
  return {.channel = static_cast<int64_t>(channel),
          .next_channel = static_cast<int64_t>(next_channel),
          .partial = static_cast<int64_t>((channel * outer + row) * per_plane + before),
          .next_partial = static_cast<int64_t>((next_channel * outer + next_row) * per_plane),
          .remaining = static_cast<int>(left <= span_elements ? left : span_elements + 1),
          .has_further_partial = before + 1 < per_plane,
          .exists = row < outer,
          .next_exists = next_row < outer};
}

// A warp takes a span of consecutive vectors.
//   dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
//   partials[c, o, s] = sum of (x > 0 ? 0 : dy * x) over the elements of plane (o, c) in its span s
//   x, dy, dx (outer, channels, inner); a span has at most inner elements; s < partials_per_plane
// A lane loads all its vectors before it uses the first. With kOnePlane spans are equal shares of planes, and all
// vectors exist. Otherwise a vector may be partial. It is then treated as one that lies in two planes, because the
// tensor begins and ends with a plane.
template <class T, bool kOnePlane>
__global__ void __launch_bounds__(max_span_threads) by_span(const __grid_constant__ GridConstant<BySpanParams> params) {
  constexpr int V = vector_width<T>, kVectors = max_span_vectors(kOnePlane);
  using Compute = ComputeType<T>;
  const BackwardTensors& tensors = params.tensors;
  const VectorGrid& grid = tensors.grid;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int64_t span = static_cast<int64_t>(blockIdx.x) * (blockDim.x >> 5) + (threadIdx.x >> 5);
  launch_dependent_grids();
  const int64_t first = span * params.span_elements + lane * V - grid.misalignment;
  // Of the span's elements from this lane's first one on, this many exist.
  const int64_t in_tensor = grid.num_elements - first;
  const int in_span = params.span_elements - lane * V;
  const int available = in_tensor < in_span ? static_cast<int>(in_tensor) : in_span;
  // A vector of this lane is whole if it begins less than this many elements after the first one.
  const int whole = kOnePlane                      ? available
                    : in_tensor - V + 1 >= in_span ? in_span
                                                   : static_cast<int>(in_tensor) - V + 1;
  uint4 x[kVectors] = {}, dy[kVectors] = {};
  wait_on_dependent_grids(static_cast<const T*>(tensors.x) + first);
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (k * 32 * V < whole && (k > 0 || first >= 0)) {
      x[k] = load_elements<T, true>(tensors.x, first + k * 32 * V, grid.num_elements, 0);
      dy[k] = load_elements<T, true>(tensors.dy, first + k * 32 * V, grid.num_elements, 0);
    }
  const SpanPlanes planes =
      grid.is_wide ? planes_of_span<uint64_t>(params, span) : planes_of_span<uint32_t>(params, span);
  const T* alphas = static_cast<const T*>(tensors.alpha);
  const T alpha = alphas[planes.channel], next_alpha = kOnePlane ? alpha : alphas[planes.next_channel];
  const int left =
      kOnePlane ? in_span : planes.remaining - lane * V;  // from this lane's first element to the next plane

  Compute sum = 0, next_sum = 0;
  int mixed = -1;  // the vector that lies in two planes; a lane has at most one
  uint4 mixed_x = {}, mixed_dy = {};
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    if (k * 32 * V >= available) continue;
    const int left_of_vector = left - k * 32 * V;
    if (!kOnePlane && left_of_vector > 0 && left_of_vector < V) {
      mixed = k;
      mixed_x = x[k];
      mixed_dy = dy[k];
      continue;
    }
    const bool is_next = !kOnePlane && left_of_vector <= 0;
    Compute added = 0;
    differentiate<T, T, true>(tensors, first + k * 32 * V, dy[k], x[k],
                              two_alphas<T, T>(alpha, next_alpha, is_next ? 0 : V), added);
    sum += is_next ? Compute{0} : added;
    if (!kOnePlane) next_sum += is_next ? added : Compute{0};
  }
  if (!kOnePlane && mixed >= 0) {
    const int left_of_vector = left - mixed * 32 * V;
    const int64_t first_mixed = first + mixed * 32 * V;
    if (first_mixed < 0 || mixed * 32 * V >= whole) {
      mixed_x = load_elements<T, false>(tensors.x, first_mixed, grid.num_elements, 0);
      mixed_dy = load_elements<T, false>(tensors.dy, first_mixed, grid.num_elements, 0);
    }
    Compute terms[V] = {};
    differentiate<T, T, false>(tensors, first_mixed, mixed_dy, mixed_x,
                               two_alphas<T, T>(alpha, next_alpha, left_of_vector), terms);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      sum += j < left_of_vector ? terms[j] : Compute{0};
      next_sum += j < left_of_vector ? Compute{0} : terms[j];
    }
  }
  if (tensors.dalpha == nullptr && tensors.partials == nullptr) return;
  // Lane 0 ends with the sum of the plane that the span begins in, lane 16 with the next plane's. A plane may overlap
  // one span less than partials_per_plane: then lane 1 sets the last partial to zero.
  Compute sums[2] = {sum, next_sum};
  if constexpr (kOnePlane)
    sums[0] = sum_over_lanes(sum, warp_lanes);
  else
    sum_values_over_lanes<5>(sums, lane);
  const bool is_next = lane == 16;
  const bool is_kept =
      lane == 0                ? planes.exists
      : kOnePlane || lane > 16 ? false
      : is_next ? planes.next_exists && planes.remaining < params.span_elements
                : lane == 1 && planes.exists && planes.has_further_partial && planes.remaining <= params.span_elements;
  if (!is_kept) return;
  if (tensors.dalpha != nullptr)
    static_cast<T*>(tensors.dalpha)[is_next ? planes.next_channel : planes.channel] = convert<T>(sums[0]);
  else
    static_cast<Compute*>(tensors.partials)[is_next ? planes.next_partial : planes.partial + lane] =
        lane == 1 ? Compute{0} : sums[0];
}

}  // namespace flowk::prelu
