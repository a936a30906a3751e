// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient by elements, each row read twice: for rows too long to hold, and for operands whose rows do
// not share one alignment.
#pragma once

#include "masked_softmax/softmax_backward_in_registers.cuh"
#include "masked_softmax/softmax_row_in_registers.cuh"

namespace flowk {

constexpr int max_read_twice_threads = 1024;

template <class A>
__device__ __forceinline__ void store_as(flowk_dtype dtype, unsigned char* row, int64_t column, A value) {
  if constexpr (sizeof(A) == 8) {
    store_element<double>(row, column, value);
  } else {
    switch (dtype) {
      case FLOWK_FLOAT16: return store_element<Float16>(row, column, value);
      case FLOWK_BFLOAT16: return store_element<BFloat16>(row, column, value);
      default: return store_element<float>(row, column, value);
    }
  }
}

// y(row, j) = exp(z(row, j) - max) / sum over kept i of exp(z(row, i) - max), as softmax_row_in_registers, by
// lanes_per_row threads a row, each of which keeps a running maximum and the sum of exponentials less it.
template <class T, SoftmaxMask kMask>
__global__ void __launch_bounds__(max_read_twice_threads)
    softmax_row_read_twice(const __grid_constant__ SoftmaxParams params) {
  using A = ComputeType<T>;
  using E = RowValue<A>;  // as a float32 row: the output may be float32
  const RowTeam team = row_team(params);
  const ExchangeBuffer<E> buffer = exchange_buffer<E>();
  int lane = static_cast<int>(threadIdx.x);
  int64_t linear = blockIdx.x;
  if (params.rows_per_block > 1) {
    linear = linear * params.rows_per_block + (lane >> params.rows_shift);
    lane &= params.lanes_per_row - 1;
  }
  const SoftmaxRow row = locate_row<kMask, false>(params, linear);
  const A scale = exponent_scale<A, kMask>(params);
  const A infinity = -negative_infinity<A>();

  A largest = -infinity;
  E sum = 0;
#pragma unroll 4
  for (int column = row.begin + lane; column < row.end; column += params.lanes_per_row) {
    if (kMask != SoftmaxMask::interval && !is_kept<kMask>(row, column)) continue;
    const A score = load_score<T, kMask>(params, row, column);
    if (score == -infinity) continue;
    if (score > largest) {
      sum *= exponential<A>((largest - score) * scale);
      largest = score;
    }
    sum += exponential<A>((score - largest) * scale);
  }
  // The lanes' sums as the warp's.
  const A largest_of_warp = max_over_lanes(largest, team.lanes);
  if (sum != E{0}) sum *= exponential<A>((largest - largest_of_warp) * scale);
  const RowPart<E> part = {largest_of_warp, sum_over_lanes(sum, team.lanes)};
  const RowPart<E> total = combine_row<A>(buffer, team, part, scale);

  const A reference = static_cast<A>(total.max) == -infinity ? A{0} : static_cast<A>(total.max);
  const A log_sum = total.sum > E{0} ? log_of<A>(total.sum) : A{0};
  const A inverse = total.sum > E{0} ? inverse_of<A>(total.sum) : A{0};
#pragma unroll 4
  for (int column = lane; column < row.columns; column += params.lanes_per_row) {
    A y = params.log_softmax ? -infinity : A{0};
    if (is_kept<kMask>(row, column)) {
      const A z = (load_score<T, kMask>(params, row, column) - reference) * scale;
      y = params.log_softmax ? z * static_cast<A>(natural_per_base<A>) - log_sum : exponential<A>(z) * inverse;
      if (total.sum != total.sum) y = static_cast<A>(total.sum);
    }
    store_as(params.out_dtype, row.out, column, y);
  }
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), by lanes_per_row threads a row.
template <class T>
__global__ void __launch_bounds__(max_read_twice_threads)
    softmax_backward_read_twice(const __grid_constant__ SoftmaxParams params) {
  using A = ComputeType<T>;
  const RowTeam team = row_team(params);
  const ExchangeBuffer<A> buffer = exchange_buffer<A>();
  int lane = static_cast<int>(threadIdx.x);
  int64_t linear = blockIdx.x;
  if (params.rows_per_block > 1) {
    linear = linear * params.rows_per_block + (lane >> params.rows_shift);
    lane &= params.lanes_per_row - 1;
  }
  const SoftmaxRow row = locate_row<SoftmaxMask::interval, true>(params, linear);

  A sum = 0;
#pragma unroll 4
  for (int column = row.begin + lane; column < row.end; column += params.lanes_per_row)
    sum += backward_term(params.log_softmax, load_element<T>(row.x, column), load_element<T>(row.side, column));
  sum = sum_row(buffer, team, sum_over_lanes(sum, team.lanes));

  const A scale = signed_scale<A>(params);
#pragma unroll 4
  for (int column = lane; column < row.columns; column += params.lanes_per_row) {
    A dx = 0;
    if (is_kept<SoftmaxMask::interval>(row, column))
      dx = backward_gradient(params.log_softmax, load_element<T>(row.x, column), load_element<T>(row.side, column), sum,
                             scale);
    store_as(params.out_dtype, row.out, column, dx);
  }
}

}  // namespace flowk
