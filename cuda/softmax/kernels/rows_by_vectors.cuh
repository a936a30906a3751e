// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of short rows of 1, 2, 4 or 8 whole vectors: each thread has one vector in each of several
// rows.
#pragma once

#include "softmax/kernels/softmax_normalize.cuh"

namespace flowk::softmax {

// The vectors of one thread, blockDim.x apart; those past the tensor do not exist.
template <int kVectors>
struct ThreadVectors {
  int64_t offset;  // bytes
  int step;
  int num_left;  // of the tensor, from this thread's first on
  __device__ __forceinline__ explicit ThreadVectors(const SoftmaxParams& params, int row_vectors) {
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * (kVectors * static_cast<int>(blockDim.x)) + static_cast<int>(threadIdx.x);
    const int64_t left = params.rows.num_rows * row_vectors - first;
    offset = first * vector_bytes;
    step = static_cast<int>(blockDim.x);
    num_left = left < kVectors * step ? static_cast<int>(left) : kVectors * step;
  }
  __device__ __forceinline__ bool has(int i) const { return i * step < num_left; }
  __device__ __forceinline__ int64_t at(int i) const { return offset + i * step * vector_bytes; }
};

// y(row, j) = exp(scale * (x(row, j) - max)) / sum over i of exp(scale * (x(row, i) - max)); x and y are contiguous
// (rows, columns), nothing is masked.
//
// `lanes` neighbouring threads have one vector of a row each; a thread has one vector in each of kVectors rows.
template <class T, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    rows_by_vectors(const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  constexpr int kVectors = softmax_kernels[kRow].max_vectors;
  using A = ComputeType<T>;
  using E = RowValue<T>;
  constexpr int width = vector_width<T>;
  const int lanes = params.lanes_per_row;
  const ThreadVectors<kVectors> vectors(params, lanes);
  wait_on_dependent_grids();
  uint4 raw[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    raw[i] = vectors.has(i) ? load_vector(params.x + vectors.at(i)) : negative_infinity_vector<T>();
  const A scale = exponent_scale<T, SoftmaxMask::none>(params);
  const auto finish = [&](auto kind) {
    constexpr bool is_log = decltype(kind)::value;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (params.negates_x) negate_vector<T>(&raw[i]);
      VectorMax<T> largest_x;
      largest_x.take(raw[i]);
      const A largest = max_over_lanes<8>(largest_x.largest(), lanes);
      const ScoreScale<T, SoftmaxMask::none> to_exponent(largest == negative_infinity<A>() ? A{0} : largest, scale);
      A y[width], terms[width];
      widen_vector<T>(raw[i], y);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        const A difference = to_exponent.difference(y[j]);
        terms[j] = exponential<T>(to_exponent.exponent(difference));
        y[j] = is_log ? difference : terms[j];
      }
      ThreadSum<T> thread_sum;
      thread_sum.take(terms);
      const E sum = sum_over_lanes<8>(thread_sum.total(), lanes);
      const ResultFactors<T> result(is_log, sum, to_exponent.log_factor());
#pragma unroll
      for (int j = 0; j < width; ++j) y[j] = y[j] * result.factor + result.term;
      if (vectors.has(i)) store_values<T>(params.out + vectors.at(i), y);
    }
  };
  if (params.log_softmax)
    finish(std::true_type{});
  else
    finish(std::false_type{});
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)); rows and threads as in
// rows_by_vectors.
template <class T, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads)
    rows_by_vectors_backward(const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  constexpr int kVectors = softmax_kernels[kRow].max_vectors;
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>;
  const int lanes = params.lanes_per_row;
  const ThreadVectors<kVectors> vectors(params, lanes);
  wait_on_dependent_grids();
  uint4 raw_dy[kVectors], raw_y[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    raw_dy[i] = raw_y[i] = uint4{0, 0, 0, 0};
    if (!vectors.has(i)) continue;
    raw_dy[i] = load_vector(params.x + vectors.at(i));
    raw_y[i] = load_vector(params.side + vectors.at(i));
  }
  const A scale = signed_scale<A>(params);
  const auto finish = [&](bool is_log) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      A dy[width], y[width], sum = 0;
      widen_vector<T>(raw_dy[i], dy);
      widen_vector<T>(raw_y[i], y);
#pragma unroll
      for (int j = 0; j < width; ++j) sum += backward_term(is_log, dy[j], y[j]);
      sum = sum_over_lanes<8>(sum, lanes);
#pragma unroll
      for (int j = 0; j < width; ++j) dy[j] = backward_gradient(is_log, dy[j], y[j], sum, scale);
      if (vectors.has(i)) store_values<T>(params.out + vectors.at(i), dy);
    }
  };
  if (params.log_softmax)
    finish(true);
  else
    finish(false);
}

}  // namespace flowk::softmax
