// SPDX-License-Identifier: Apache-2.0
// Softmax of short rows of whole vectors, masked by lengths, causal or window.
#pragma once

#include "softmax/kernels/scores_to_results.cuh"

namespace flowk::softmax {

// y(row, j) = exp(z(row, j) - max) / sum over unmasked i of exp(z(row, i) - max), 0 if j is masked; x and y are
// contiguous (rows, columns).
//
// `lanes` neighbouring threads hold a row, each up to kVectors vectors, `lanes` apart. Fully masked vectors are not
// read.
template <class T, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    rows_in_lanes(const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  constexpr int kVectors = softmax_kernels[kRow].max_vectors, width = vector_width<T>;
  const int lanes = params.lanes_per_row, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const uint32_t linear =
      blockIdx.x * static_cast<uint32_t>(params.rows_per_block) + (threadIdx.x >> params.rows_shift);
  const bool exists = linear < static_cast<uint32_t>(params.rows.num_rows);
  const uint32_t number = exists ? linear : 0;
  const uint64_t row_offset = number * static_cast<uint64_t>(static_cast<uint32_t>(params.columns * sizeof(T)));
  const IntervalPosition position = interval_position(params, number);
  SoftmaxRow row;
  row.x = params.x + row_offset;
  row.out = params.out + row_offset;
  row.columns = exists ? params.columns : 0;
  wait_on_dependent_grids();
  if (exists) find_interval(params, position.length_offset, position.number, &row);

  const auto column_of = [&](int i) { return (lane + i * lanes) * width; };
  uint4 raw[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    raw[i] = column_of(i) < row.end && column_of(i) + width > row.begin
                 ? load_vector(row.x + (lane + i * lanes) * vector_bytes)
                 : negative_infinity_vector<T>();
  if (params.negates_x) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (column_of(i) < row.end && column_of(i) + width > row.begin) negate_vector<T>(&raw[i]);
    }
  }
  // Vectors that contain an end of the interval: the cut is at the same element in every thread.
  const VectorCut<T> tail(row.end % width), head(row.begin % width);
  VectorMax<T> largest;
  float values[kVectors * width];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (column_of(i) == row.end / width * width) tail.replace_from(&raw[i], negative_infinity_vector<T>());
    if (row.begin > 0 && column_of(i) == row.begin / width * width)
      head.replace_before(&raw[i], negative_infinity_vector<T>());
    largest.take(raw[i]);
    widen_vector<T>(raw[i], values + i * width);
  }
  const auto sum =
      scores_to_results<T, 4>(
          params, ScoreFactor{params, false}, max_over_lanes(largest.largest(), lanes),
          [=](auto value, float) { return sum_over_lanes(value, lanes); }, [](int) { return true; }, values)
          .sum;
  if (sum != sum) return store_nan_columns<T, SoftmaxMask::none>(params, row, lane, row.columns, lanes);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (column_of(i) >= row.columns) continue;
    *reinterpret_cast<uint4*>(row.out + (lane + i * lanes) * vector_bytes) = narrow_vector<T>(values + i * width);
  }
}

}  // namespace flowk::softmax
