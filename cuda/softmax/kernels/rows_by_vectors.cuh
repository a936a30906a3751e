// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of short rows of 1, 2, 4 or 8 whole vectors: each thread has one vector in each of several
// rows.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// The vectors of one thread, blockDim.x apart; those past the tensor do not exist.
template <int kVectors>
struct ThreadVectors {
  int64_t offset;  // bytes
  int step;
  int num_left;   // of the tensor, from this thread's first on
  int row_shift;  // log2 of a row's bytes
  __device__ __forceinline__ explicit ThreadVectors(const SoftmaxParams& params, int row_vectors) {
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * (kVectors * static_cast<int>(blockDim.x)) + static_cast<int>(threadIdx.x);
    const int64_t left = params.rows.num_rows * row_vectors - first;
    offset = first * vector_bytes;
    step = static_cast<int>(blockDim.x);
    num_left = left < kVectors * step ? static_cast<int>(left) : kVectors * step;
    row_shift = params.rows_shift + 4;
  }
  __device__ __forceinline__ bool has(int i) const { return i * step < num_left; }
  __device__ __forceinline__ int64_t at(int i) const { return offset + i * step * vector_bytes; }
  __device__ __forceinline__ uint32_t row_of(int i) const { return static_cast<uint32_t>(at(i) >> row_shift); }
};

// Softmax: y(row, j) = exp(scale * (x(row, j) - max)) / sum over i of exp(scale * (x(row, i) - max)). Gradients:
// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)). All operands are contiguous
// (rows, columns), nothing is masked.
//
// `lanes` neighbouring threads have one vector of a row each; a thread has one vector in each of kVectors rows.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    rows_by_vectors(const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Terms::T;
  using A = ComputeType<T>;
  constexpr int kVectors = softmax_kernels[kRow].max_vectors;
  constexpr int width = vector_width<T>, num_inputs = Terms::num_inputs;
  const int lanes = params.lanes_per_row;
  const ThreadVectors<kVectors> vectors(params, lanes);
  wait_on_dependent_grids();
  uint4 raw[kVectors][num_inputs];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
#pragma unroll
    for (int k = 0; k < num_inputs; ++k)
      raw[i][k] =
          vectors.has(i) ? load_vector((k == 0 ? params.x : params.bias_or_y) + vectors.at(i)) : uint4{0, 0, 0, 0};
  const auto is_first = [&](int i) { return vectors.has(i) && (threadIdx.x & (lanes - 1)) == 0; };
  RowPartial<T> rows[kVectors];
  const auto finish = [&](auto kind) {
    constexpr bool is_log = decltype(kind)::value;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      A results[width];
      if constexpr (Terms::is_backward) {
        const Terms terms(params, is_log);
        A y[width], sum = Terms::begin(params, vectors.row_of(i), is_first(i)).sum;
        widen_vector<T>(raw[i][0], results);
        widen_vector<T>(raw[i][1], y);
#pragma unroll
        for (int j = 0; j < width; ++j) sum += terms.term(results[j], y[j]);
        sum = sum_over_lanes<8>(sum, lanes);
#pragma unroll
        for (int j = 0; j < width; ++j) results[j] = terms.result(results[j], y[j], sum);
      } else {
        if (params.negates_x) negate_vector<T>(&raw[i][0]);
        VectorMax<T> largest_x;
        largest_x.take(raw[i][0]);
        const A largest = max_over_lanes<8>(largest_x.largest(), lanes);
        const auto to_exponent = Terms::exponents(params, largest);
        A terms[width];
        widen_vector<T>(raw[i][0], results);
#pragma unroll
        for (int j = 0; j < width; ++j) {
          const A difference = to_exponent.difference(results[j]);
          terms[j] = exponential<T>(to_exponent.exponent(difference));
          results[j] = is_log ? difference : terms[j];
        }
        ThreadSum<T> thread_sum;
        thread_sum.take(terms);
        rows[i] = {largest, sum_over_lanes<8>(thread_sum.total(), lanes)};
        const ResultFactors<T> factors(is_log, rows[i].sum, to_exponent.log_factor());
#pragma unroll
        for (int j = 0; j < width; ++j) results[j] = results[j] * factors.factor + factors.term;
      }
      if (vectors.has(i)) store_values<T>(params.out + vectors.at(i), results);
    }
  };
  if (params.log_softmax)
    finish(std::true_type{});
  else
    finish(std::false_type{});
#pragma unroll
  for (int i = 0; i < kVectors; ++i) Terms::leave(params, vectors.row_of(i), is_first(i), rows[i]);
}

}  // namespace flowk::softmax
