// SPDX-License-Identifier: Apache-2.0
// The gradient of softmax for rows held in registers.
#pragma once

#include "softmax/softmax_exchange.cuh"

namespace flowk::softmax {

// What an element adds to its row's sum, and the gradient from that sum.
template <class A>
__device__ __forceinline__ A backward_term(bool log_softmax, A dy, A y) {
  if (!log_softmax) return y * dy;
  return y == negative_infinity<A>() ? A{0} : dy;
}
template <class A>
__device__ __forceinline__ A backward_gradient(bool log_softmax, A dy, A y, A sum, A scale) {
  if (!log_softmax) return scale * y * (dy - sum);
  if (y == negative_infinity<A>()) return A{0};
  if constexpr (sizeof(A) == 8)
    return scale * (dy - exp(y) * sum);
  else
    return scale * (dy - expf(y) * sum);
}

// Makes gradients from `column` on 0 where they are masked, which they are not yet where the sum is not finite.
template <class A, int kWidth>
__device__ __forceinline__ void clear_masked(const SoftmaxRow& row, int column, A (&dx)[kWidth]) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j)
    if (column + j < row.begin || column + j >= row.end) dx[j] = 0;
}

// A vector's terms as a tree, so that a thread adds no more numbers in a row than it has vectors.
template <class T>
__device__ __forceinline__ ComputeType<T> backward_vector_sum(bool log_softmax, const uint4& dy_vector,
                                                              const uint4& y_vector) {
  constexpr int width = vector_width<T>;
  ComputeType<T> terms[width], y[width];
  widen_vector<T>(dy_vector, terms);
  widen_vector<T>(y_vector, y);
#pragma unroll
  for (int j = 0; j < width; ++j) terms[j] = backward_term(log_softmax, terms[j], y[j]);
#pragma unroll
  for (int step = width / 2; step > 0; step /= 2)
#pragma unroll
    for (int j = 0; j < step; ++j) terms[j] += terms[j + step];
  return terms[0];
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)); dy, y and dx are
// (rows, columns). With log_softmax as flowk.h says.
//
// Threads and vectors as of softmax_row_in_registers; both inputs are read once, into registers.
template <class T, int kVectors>
__global__ void __launch_bounds__(max_register_lanes)
    softmax_backward_in_registers(const __grid_constant__ SoftmaxParams params) {
  launch_dependent_grids();
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>;
  const RowTeam team = row_team(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, team);

  const auto [linear, lane] = row_place(params);
  const SoftmaxRow row = locate_row<SoftmaxMask::none, true>(params, linear);
  const RowVectors vectors = row_vectors<T>(params, row);
  const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
  const RowOutput<T, is_float16<T>> output{params};
  unsigned char* const out = row.out + vectors.head * output.column_bytes();
  const OwnVectors own = own_vectors(params, row.x + head_bytes, vectors, team.rank, lane);
  const auto is_read = [&](int i) { return own.at(i) >= vectors.read_begin && own.at(i) < own.end; };
  const bool log_softmax = params.log_softmax;
  // What stands for a masked column: it adds nothing, and its gradient is 0 as long as the sum is finite.
  const uint4 masked_y = log_softmax ? negative_infinity_vector<T>() : uint4{0, 0, 0, 0};

  uint4 raw_dy[kVectors], raw_y[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    raw_dy[i] = {0, 0, 0, 0};
    raw_y[i] = masked_y;
    if (is_read(i)) {
      const int64_t offset = head_bytes + static_cast<int64_t>(own.at(i)) * vector_bytes;
      raw_dy[i] = load_vector(row.x + offset);
      raw_y[i] = load_vector(row.side + offset);
    }
  }
  if (params.has_interval) fill_unread(output, out, vectors, own, team.rank, lane, A{0});
  A extra_dy = 0, extra_y = log_softmax ? negative_infinity<A>() : A{0};
  const int extra_column = leftover_column<T>(params, row, vectors, team.rank, lane);
  if (extra_column >= 0 && is_kept<SoftmaxMask::none>(row, extra_column)) {
    extra_dy = load_element<T>(row.x, extra_column);
    extra_y = load_element<T>(row.side, extra_column);
  }
  // The vectors that an end of the interval cuts, at most two a row.
  if (params.has_interval) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = vectors.head + own.at(i) * width;
      if (is_read(i) && (column < row.begin || column + width > row.end)) {
        select_interval<T>(&raw_dy[i], column, row.begin, row.end, uint4{0, 0, 0, 0});
        select_interval<T>(&raw_y[i], column, row.begin, row.end, masked_y);
      }
    }
  }

  A sum = backward_term(log_softmax, extra_dy, extra_y);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    A dy[width], y[width];
    widen_vector<T>(raw_dy[i], dy);
    widen_vector<T>(raw_y[i], y);
    if (log_softmax) {
#pragma unroll
      for (int j = 0; j < width; ++j) sum += backward_term(true, dy[j], y[j]);
    } else {
#pragma unroll
      for (int j = 0; j < width; ++j) sum += y[j] * dy[j];
    }
  }
  sum = sum_over_lanes(sum, team.lanes);
  sum = sum_row(buffer, team, sum);

  const A scale = signed_scale<A>(params);
  const bool is_finite = sum - sum == A{0};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!is_read(i)) continue;
    A dy[width], y[width];
    widen_vector<T>(raw_dy[i], dy);
    widen_vector<T>(raw_y[i], y);
    if (log_softmax) {
#pragma unroll
      for (int j = 0; j < width; ++j) dy[j] = backward_gradient(true, dy[j], y[j], sum, scale);
    } else {
#pragma unroll
      for (int j = 0; j < width; ++j) dy[j] = scale * y[j] * (dy[j] - sum);
    }
    if (!is_finite) clear_masked(row, vectors.head + own.at(i) * width, dy);
    output.store_vector(out + static_cast<int64_t>(own.at(i)) * output.vector_bytes_out(), dy);
  }
  if (extra_column >= 0)
    output.store_column(row.out, extra_column,
                        is_kept<SoftmaxMask::none>(row, extra_column)
                            ? backward_gradient(log_softmax, extra_dy, extra_y, sum, scale)
                            : A{0});
}

}  // namespace flowk::softmax
