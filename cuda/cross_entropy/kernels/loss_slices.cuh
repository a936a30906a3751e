// SPDX-License-Identifier: Apache-2.0
// The forward pass of cross-entropy of rows that take several warps: one read of the logits.
#pragma once

#include "cross_entropy/kernels/loss_values.cuh"
#include "cross_entropy/kernels/staged_slice.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"

namespace flowk::cross_entropy {

// Merges the partial results of a block's threads through `memory`; the first warp gets the result.
template <class A>
__device__ __forceinline__ Partial<A> merge_over_block(const Partial<A>& thread_partial, unsigned char* memory,
                                                       int num_warps, bool plain) {
  Partial<A> partial = merge_over_lanes(thread_partial, warp_lanes, plain);
  constexpr int num_values = partial_values - 1;  // no warp has the target
  A* const values = reinterpret_cast<A*>(memory);
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes, warp = static_cast<int>(threadIdx.x) / warp_lanes;
  if (lane == 0) {
    A* const to = values + warp * num_values;
    to[0] = partial.max;
    to[1] = partial.sum;
    to[2] = partial.weighted;
    to[3] = partial.total;
  }
  __syncthreads();
  if (warp > 0) return partial;
  partial = {};
  if (lane < num_warps) {
    const A* const from = values + lane * num_values;
    partial.max = from[0];
    partial.sum = from[1];
    partial.weighted = from[2];
    partial.total = from[3];
  }
  return merge_over_lanes(partial, max_slice_threads / warp_lanes, plain);
}

// The partial result of one slice of one row per block, and with one slice per row the row's results.
//   partials[row, slice, :] = partial result over the slice's columns of logits[row, :]
// logits (rows, columns), the last dimension contiguous; targets (rows); partials (rows, slices, partial_values).
template <class T>
__global__ void __launch_bounds__(max_slice_threads, fitting_blocks(max_slice_threads, sizeof(T) == 8 ? 7 : 10))
    loss_slices(const __grid_constant__ GridConstant<LossParams> params) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  launch_dependent_grids();
  wait_on_dependent_grids();
  uint32_t row = blockIdx.x;
  const int first_vector = static_cast<int>(take_index(&row, params.slices)) * params.slice_vectors;
  const auto is_ignored = [&] { return load_target(params.targets, row) == params.targets.ignore_index; };
  const auto leave_ignored = [&] {
    if (params.slices.divisor == 1 && threadIdx.x == 0) store_ignored<A>(params.results, row);
  };
  if (params.skips_ignored && is_ignored()) return leave_ignored();
  const Logits& logits = params.logits;
  const int first = first_vector * W, left = logits.columns - first, columns = min(left, params.slice_vectors * W);
  const unsigned char* const first_column =
      row_of_logits(logits, row) + static_cast<int64_t>(first) * static_cast<int>(sizeof(T));
  const StagedSlice<T> slice(params, first_column, columns);
  slice.start_copy(first_column, columns, first == 0, left - columns);
  const bool leaves = !params.skips_ignored && is_ignored();
  slice.wait();
  if (leaves) return leave_ignored();

  // Each warp has neighbouring vectors: a warp past the row's end has none.
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes, warp = static_cast<int>(threadIdx.x) / warp_lanes;
  const int warp_vector = warp * slice_batch * warp_lanes;
  const auto for_all = [&](auto use) {
#pragma unroll 1
    for (int i = 0; i < slice_batch; i += slice_step) {
      const int vector = warp_vector + i * warp_lanes;
      if (vector >= slice.count) return;
      uint4 vectors[slice_step];
      slice.load(vector + lane, vectors);
      use((first_vector + vector + lane) * W, vectors);
    }
  };
  Partial<A> partial;
  with_plain(logits.form,
             [&](auto plain) { partial = take_vectors<T, decltype(plain)::value>(logits, warp_lanes * W, for_all); });
  partial = merge_over_block(partial, slice.memory + slice_bytes(params.slice_vectors),
                             static_cast<int>(blockDim.x) / warp_lanes, logits.form == LossForm::plain);
  if (threadIdx.x > 0) return;
  const auto logit_at = [&](int64_t column) { return slice.element(static_cast<int>(column) - first); };
  store_partial<T>(params, row, load_target(params.targets, row), first, first + columns, logit_at, partial);
}

}  // namespace flowk::cross_entropy
