// SPDX-License-Identifier: Apache-2.0
// The forward pass of cross-entropy: one read of the logits.
#pragma once

#include "cross_entropy/kernels/cross_entropy_values.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"

namespace flowk::cross_entropy {

// The partial result of a thread's vectors, at columns first, first + step, ...; without the target, and without the
// total of a vector that reaches past the row's last column.
template <class T, bool kPlain, int kBatch>
__device__ __forceinline__ Partial<ComputeType<T>> take_batch(const Logits& logits, int first, int step,
                                                              const uint4 (&loaded)[kBatch]) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  const bool is_capped = !kPlain && logits.form == LossForm::capped;
  constexpr A min_exponent = -1100;  // finite; the power of each smaller exponent is 0
  const LogitScale<A>& scale = scale_of<A>(logits);
  const A linear_scale = is_capped ? A{1} : scale.scale;
  VectorMax<T> largest;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) largest.take(loaded[i]);
  // The exponents are of z if it is capped, otherwise of the logits.
  const A max_exponent = is_capped ? capped_logit(scale, largest.largest()) : largest.largest();
  const A factor = is_capped ? exponent_per_natural<A> : scale.exponent;
  const Exponents<A> exponents(factor, reference_of(max_exponent), factor);
  Partial<A> partial;
  partial.max = linear_scale * max_exponent;
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    A x[W], e[W];
    widen_vector<T>(loaded[i], x);
    if (is_capped) {
#pragma unroll
      for (int j = 0; j < W; ++j) x[j] = capped_logit(scale, x[j]);
    }
#pragma unroll
    for (int j = 0; j < W; ++j) {
      e[j] = exponents.power(exponents.exponent(x[j]));
      partial.sum += e[j];
    }
    if (!kPlain && logits.needs_weighted) {
#pragma unroll
      for (int j = 0; j < W; ++j) partial.weighted += e[j] * larger_of(exponents.exponent(x[j]), min_exponent);
    }
    if (!kPlain && logits.needs_total && first + i * step + W <= logits.columns) {
#pragma unroll
      for (int j = 0; j < W; ++j) partial.total += linear_scale * x[j];
    }
  }
  // The correction makes the exponents exact at the largest z.
  if constexpr (!kPlain) partial.weighted = exponents.natural(partial.weighted) * exponents.correction;
  partial.sum *= exponents.correction;
  return partial;
}

// Merges the partial results of a row's threads; the row's first warp gets the result. A row of several warps is alone
// in its block.
template <class A>
__device__ __forceinline__ Partial<A> merge_over_row(const Partial<A>& thread_partial, int num_warps, bool plain) {
  Partial<A> partial = merge_over_lanes(thread_partial, warp_lanes, plain);
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
  return merge_over_lanes(partial, max_slice_threads / warp_lanes, plain);
}

// Adds z of the target's column, and the total of the row's last columns if they are no whole vector, where these
// columns are in [first, end). Stores the row's results, or the slice's partial result.
template <class T>
__device__ __forceinline__ void store_partial(const LossSlicesParams& params, const unsigned char* x, uint32_t row,
                                              int64_t target, int first, int end, Partial<ComputeType<T>> partial) {
  const Logits& logits = params.logits;
  const auto z_at = [&](int64_t column) {
    const ComputeType<T> logit = widen(reinterpret_cast<const T*>(x)[column]);
    return scaled_logit(scale_of<ComputeType<T>>(logits), logits.negates ? -logit : logit);
  };
  const int64_t target_column = target - params.targets.vocab_start;
  if (is_valid(params.targets, target) && target_column >= first && target_column < end &&
      target_column < logits.columns)
    partial.target = z_at(target_column);
  const int whole_columns = logits.columns / vector_width<T> * vector_width<T>;
  if (logits.needs_total && whole_columns >= first && whole_columns < end) {
#pragma unroll 1
    for (int column = whole_columns; column < logits.columns; ++column) partial.total += z_at(column);
  }
  if (params.slices.divisor == 1)
    store_row(params.results, params.targets, target, row, partial);
  else
    partial.store(params.partials, static_cast<int64_t>(blockIdx.x) * partial_values);
}

// The results of a row that takes a warp or part of one, kBatch vectors per lane. The vectors at the row's end are
// loaded with elements of the next rows, if they are in memory, which are then replaced.
template <class T, int kBatch>
__device__ __forceinline__ void loss_of_short_row(const LossSlicesParams& params) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  const Logits& logits = params.logits;
  const int lanes = static_cast<int>(params.threads_per_row.divisor);
  uint32_t row_in_block = threadIdx.x;
  const int lane = static_cast<int>(take_index(&row_in_block, params.threads_per_row));
  const uint32_t row_of_lane = blockIdx.x * static_cast<uint32_t>(params.rows_per_block) + row_in_block;
  const bool exists = row_of_lane < params.num_rows;
  const uint32_t row = exists ? row_of_lane : 0;
  const int64_t target = load_target(params.targets, row);
  const unsigned char* const x = row_of_logits(logits, row);
  const int first = lane * W, step = lanes * W, last = first + (kBatch - 1) * step;
  const int64_t elements_behind = (logits.is_packed ? params.num_rows - row : int64_t{1}) * logits.columns;
  constexpr int64_t enough = 1 << 20;
  const int readable = static_cast<int>(elements_behind < enough ? elements_behind : enough);
  uint4 loaded[kBatch];
  load_batch<T, kBatch>(logits, x, readable, first, step, readable, loaded);
  if (last + W > logits.columns) {
    ElementVector<T> absent = {negative_infinity_vector<T>()}, vector = {loaded[kBatch - 1]};
#pragma unroll
    for (int j = 0; j < W; ++j)
      if (last + j >= logits.columns) vector.elements[j] = absent.elements[j];
    loaded[kBatch - 1] = vector.whole;
  }
  Partial<A> partial;
  with_plain(logits.form, [&](auto plain) {
    constexpr bool kPlain = decltype(plain)::value;
    partial = merge_over_lanes(take_batch<T, kPlain>(logits, first, step, loaded), lanes, kPlain);
  });
  if (lane > 0 || !exists) return;
  if (target == params.targets.ignore_index)
    store_ignored<A>(params.results, row);
  else
    store_partial<T>(params, x, row, target, 0, logits.columns, partial);
}

// The partial result of one slice of one row per block, and with one slice per row the row's results. Rows of one warp
// share a block, shorter ones a warp.
//   partials[row, slice, :] = partial result over the slice's columns of logits[row, :]
// logits (rows, columns), the last dimension contiguous; targets (rows); partials (rows, slices, partial_values).
template <class T>
__global__ void __launch_bounds__(max_slice_threads, fitting_blocks(max_slice_threads, 7))
    loss_slices(const __grid_constant__ GridConstant<LossSlicesParams> params) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  launch_dependent_grids();
  wait_on_dependent_grids();
  static_assert(short_batch == 4);
  switch (params.vectors_per_thread) {
    case 1: return loss_of_short_row<T, 1>(params);
    case 2: return loss_of_short_row<T, 2>(params);
    case 3: return loss_of_short_row<T, 3>(params);
    case 4: return loss_of_short_row<T, 4>(params);
    default: break;  // slice_batch
  }
  uint32_t row = blockIdx.x;
  const int slice = static_cast<int>(take_index(&row, params.slices));
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  int warp = static_cast<int>(threadIdx.x) / warp_lanes, num_warps = static_cast<int>(blockDim.x) / warp_lanes;
  if (params.rows_per_block > 1) {
    row = row * params.rows_per_block + static_cast<uint32_t>(warp);
    warp = 0;
    num_warps = 1;
    if (row >= params.num_rows) return;
  }
  const int64_t target = load_target(params.targets, row);
  const Logits& logits = params.logits;
  const unsigned char* const x = row_of_logits(logits, row);
  const int first_vector = slice * params.slice_vectors, end_vector = first_vector + params.slice_vectors;
  const int end = (end_vector < params.row_vectors ? end_vector : params.row_vectors) * W;
  // Each warp has neighbouring vectors, so that only warps at the row's end have less than all of theirs, or none.
  constexpr int step = warp_lanes * W;
  const int first_of_warp = first_vector * W + warp * slice_batch * step, first = first_of_warp + lane * W;
  // The first half is loaded while the target is.
  constexpr int half = slice_batch / 2;
  uint4 loaded[slice_batch];
  load_batch<T, half, true>(logits, x, logits.columns, first, step, end, loaded);
  const bool is_first = warp == 0 && lane == 0;
  if (target == params.targets.ignore_index) {
    if (params.slices.divisor == 1 && is_first) store_ignored<A>(params.results, row);
    return;
  }
  load_batch<T, half, true>(logits, x, logits.columns, first + half * step, step, end, loaded + half);
  Partial<A> partial;
  if (first_of_warp < end)
    with_plain(logits.form,
               [&](auto plain) { partial = take_batch<T, decltype(plain)::value>(logits, first, step, loaded); });
  partial = merge_over_row(partial, num_warps, logits.form == LossForm::plain);
  if (is_first) store_partial<T>(params, x, row, target, first, end, partial);
}

}  // namespace flowk::cross_entropy
