// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of short rows that are 1, 2, 4 or 8 whole 16-byte chunks: a thread works on chunks of
// several rows, so that what it costs to find them is shared.
#pragma once

#include "masked_softmax/softmax_backward_in_registers.cuh"
#include "masked_softmax/softmax_row_in_registers.cuh"

namespace flowk {

// Chunks of one thread, num_threads apart, from `first` on; those past the tensor are not there.
template <int kChunks>
struct ThreadChunks {
  int64_t offset;  // bytes
  int step;
  int num_left;  // of the tensor, from this thread's first on
  __device__ __forceinline__ explicit ThreadChunks(const SoftmaxParams& params, int row_chunks) {
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * (kChunks * static_cast<int>(blockDim.x)) + static_cast<int>(threadIdx.x);
    const int64_t left = params.num_rows * row_chunks - first;
    offset = first * chunk_bytes;
    step = static_cast<int>(blockDim.x);
    num_left = left < kChunks * step ? static_cast<int>(left) : kChunks * step;
  }
  __device__ __forceinline__ bool has(int i) const { return i * step < num_left; }
  __device__ __forceinline__ int64_t at(int i) const { return offset + i * step * chunk_bytes; }
};

// y(row, j) = exp(scale * (x(row, j) - max)) / sum over i of exp(scale * (x(row, i) - max)); x and y are
// (rows, columns), each one contiguous run of memory; nothing is masked.
//
// kLanes neighbouring threads have a chunk of a row each, and of kChunks rows all in all.
template <class T, int kLanes, int kChunks>
__global__ void __launch_bounds__(256) softmax_rows_by_chunks(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  using A = ComputeType<T>;
  using E = RowValue<T>;
  constexpr int width = chunk_width<T>;
  const ThreadChunks<kChunks> chunks(params, kLanes);
  wait_for_previous_grid();
  uint4 raw[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i)
    raw[i] = chunks.has(i) ? load_chunk(params.x + chunks.at(i)) : negative_infinity_chunk<T>();
  const A scale = exponent_scale<T, SoftmaxMask::interval>(params);
  const auto finish = [&](auto kind) {
    constexpr bool is_log = decltype(kind)::value;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (params.negates_x) negate_chunk<T>(&raw[i]);
      ChunkMax<T> largest_x;
      largest_x.take(raw[i]);
      const A largest = max_over_lanes(largest_x.largest(), kLanes);
      const ScoreScale<T, SoftmaxMask::interval> to_exponent(largest == negative_infinity<A>() ? A{0} : largest, scale);
      A y[width], terms[width];
      widen_chunk<T>(raw[i], y);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        const A z = to_exponent(y[j]);
        terms[j] = exponential<T>(z);
        y[j] = is_log ? z : terms[j];
      }
      ThreadSum<T> thread_sum;
      thread_sum.take(terms);
      const E sum = sum_over_lanes(thread_sum.total(), kLanes);
      const ResultFactors<T> result(is_log, sum);
#pragma unroll
      for (int j = 0; j < width; ++j) y[j] = y[j] * result.factor + result.term;
      if (chunks.has(i)) store_values<T>(params.out + chunks.at(i), y);
    }
  };
  if (params.log_softmax)
    finish(std::true_type{});
  else
    finish(std::false_type{});
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), rows and threads as of
// softmax_rows_by_chunks.
template <class T, int kLanes, int kChunks>
__global__ void __launch_bounds__(256) softmax_backward_by_chunks(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  using A = ComputeType<T>;
  constexpr int width = chunk_width<T>;
  const ThreadChunks<kChunks> chunks(params, kLanes);
  wait_for_previous_grid();
  uint4 raw_dy[kChunks], raw_y[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    raw_dy[i] = raw_y[i] = uint4{0, 0, 0, 0};
    if (!chunks.has(i)) continue;
    raw_dy[i] = load_chunk(params.x + chunks.at(i));
    raw_y[i] = load_chunk(params.side + chunks.at(i));
  }
  const A scale = signed_scale<A>(params);
  const auto finish = [&](bool is_log) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      A dy[width], y[width], sum = 0;
      widen_chunk<T>(raw_dy[i], dy);
      widen_chunk<T>(raw_y[i], y);
#pragma unroll
      for (int j = 0; j < width; ++j) sum += backward_term(is_log, dy[j], y[j]);
      sum = sum_over_lanes(sum, kLanes);
#pragma unroll
      for (int j = 0; j < width; ++j) dy[j] = backward_gradient(is_log, dy[j], y[j], sum, scale);
      if (chunks.has(i)) store_values<T>(params.out + chunks.at(i), dy);
    }
  };
  if (params.log_softmax)
    finish(true);
  else
    finish(false);
}

}  // namespace flowk
