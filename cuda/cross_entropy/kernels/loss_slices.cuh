// SPDX-License-Identifier: Apache-2.0
// The forward pass of cross-entropy: one read of the logits.
#pragma once

#include "cross_entropy/kernels/cross_entropy_values.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"

namespace flowk::cross_entropy {

// The partial result of a thread's vectors, at columns first, first + step, ... before `end`; without the target.
// `is_whole`: all of them exist.
template <class T, LossForm kForm>
__device__ __forceinline__ Partial<ComputeType<T>> take_batch(const Logits& logits, int first, int step, int end,
                                                              bool is_whole, const uint4 (&loaded)[slice_batch]) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  constexpr bool is_capped = kForm == LossForm::capped;
  constexpr A min_exponent = -1100;  // below the exponents of all numbers but 0, and finite
  const LogitScale<A>& scale = scale_of<A>(logits);
  VectorMax<T> largest;
#pragma unroll
  for (int i = 0; i < slice_batch; ++i) largest.take(loaded[i]);
  // The exponents are of z if it is capped, otherwise of the logits.
  const A max_exponent = is_capped ? capped_logit(scale, largest.largest()) : largest.largest();
  const A factor = is_capped ? exponent_per_natural<A> : scale.exponent;
  const Exponents<A> exponents(factor, reference_of(max_exponent), factor);
  Partial<A> partial;
  partial.max = is_capped ? max_exponent : scale.scale * max_exponent;
#pragma unroll
  for (int i = 0; i < slice_batch; ++i) {
    A x[W];
    widen_vector<T>(loaded[i], x);
    const int column = first + i * step;
#pragma unroll
    for (int j = 0; j < W; ++j) {
      if constexpr (is_capped) x[j] = capped_logit(scale, x[j]);
      const A exponent = exponents.exponent(x[j]), e = exponents.power(exponent);
      partial.sum += e;
      if constexpr (kForm != LossForm::plain) partial.weighted += e * larger_of(exponent, min_exponent);
    }
    if (kForm == LossForm::plain || !logits.needs_total) continue;
#pragma unroll
    for (int j = 0; j < W; ++j)
      if (is_whole || (column < end && column + j < logits.columns))
        partial.total += is_capped ? x[j] : scale.scale * x[j];
  }
  // As if the exponents were exact at the largest z.
  if constexpr (kForm != LossForm::plain) partial.weighted = exponents.natural(partial.weighted) * exponents.correction;
  partial.sum *= exponents.correction;
  return partial;
}

// The partial result of a row's warps, to the first of them. If there is more than one, the block has one row.
template <bool kPlain, class A>
__device__ __forceinline__ Partial<A> merge_over_row(const Partial<A>& thread_partial, int num_warps) {
  Partial<A> partial = merge_over_lanes<kPlain>(thread_partial, warp_lanes);
  if (num_warps == 1) return partial;
  constexpr int num_values = partial_values - 1;  // no warp has the target
  A* const values = reinterpret_cast<A*>(&shared<unsigned char>());
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
  return merge_over_lanes<kPlain>(partial, warp_lanes);
}

// The partial result of one slice of one row per block, and with one slice per row the row's results.
//   partials[row, slice, :] = partial result over the slice's columns of logits[row, :]
// logits (rows, columns), the last dimension contiguous; targets (rows); partials (rows, slices, partial_values).
template <class T>
__global__ void __launch_bounds__(max_slice_threads, fitting_blocks(max_slice_threads, 7))
    loss_slices(const __grid_constant__ GridConstant<LossSlicesParams> params) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  launch_dependent_grids();
  wait_on_dependent_grids();
  uint32_t row = blockIdx.x;
  const int slice = static_cast<int>(take_index(&row, params.slices));
  const bool is_one = params.slices.divisor == 1;
  int thread = static_cast<int>(threadIdx.x), num_threads = static_cast<int>(blockDim.x);
  if (params.rows_per_block > 1) {
    row = row * short_rows + static_cast<uint32_t>(thread / warp_lanes);
    thread %= warp_lanes;
    num_threads = warp_lanes;
    if (row >= params.num_rows) return;
  }
  const int64_t target = load_target(params.targets, row);
  const Logits& logits = params.logits;
  const unsigned char* const x = row_of_logits(logits, row);
  const int first_vector = slice * params.slice_vectors, end_vector = first_vector + params.slice_vectors;
  const int end = (end_vector < params.row_vectors ? end_vector : params.row_vectors) * W;
  const int first = (first_vector + thread) * W, step = num_threads * W;
  // The first half is loaded while the target is.
  constexpr int half = slice_batch / 2;
  uint4 loaded[slice_batch];
  bool is_whole = load_batch<T, half>(logits, x, first, step, end, loaded);
  if (target == params.targets.ignore_index) {
    if (is_one && thread == 0) store_ignored<A>(params.results, row);
    return;
  }
  is_whole &= load_batch<T, half>(logits, x, first + half * step, step, end, loaded + half);
  Partial<A> partial;
  switch (logits.form) {
    case LossForm::plain:
      partial = merge_over_row<true>(take_batch<T, LossForm::plain>(logits, first, step, end, is_whole, loaded),
                                     num_threads / warp_lanes);
      break;
    case LossForm::extended:
      partial = merge_over_row<false>(take_batch<T, LossForm::extended>(logits, first, step, end, is_whole, loaded),
                                      num_threads / warp_lanes);
      break;
    case LossForm::capped:
      partial = merge_over_row<false>(take_batch<T, LossForm::capped>(logits, first, step, end, is_whole, loaded),
                                      num_threads / warp_lanes);
      break;
  }
  if (thread > 0) return;
  const int64_t column = target - params.targets.vocab_start;
  if (is_valid(params.targets, target) && column >= first && column < end && column < logits.columns) {
    const A logit = widen(reinterpret_cast<const T*>(x)[column]);
    partial.target = scaled_logit(scale_of<A>(logits), logits.negates ? -logit : logit);
  }
  if (is_one)
    store_row(params.results, params.targets, target, row, partial);
  else
    partial.store(params.partials, static_cast<int64_t>(blockIdx.x) * partial_values);
}

}  // namespace flowk::cross_entropy
