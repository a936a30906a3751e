// SPDX-License-Identifier: Apache-2.0
// Gradients of rows that lie one after the other, start and end anywhere, and are masked by lengths, causal or window:
// the threads of a row take the aligned vectors that contain its unmasked columns through shared memory, and the
// results leave from there.
#pragma once

#include "softmax/kernels/segment_frame.cuh"
#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

// A thread of a row, and the vectors that it takes, as SegmentFrame has them. Registers hold its first inner vectors.
template <class T>
struct FramedThread {
  static constexpr int width = vector_width<T>;
  unsigned char* memory;  // the block's first vector
  RowSegment segment;
  int lane;
  int lanes;
  SegmentRow row;
  int held_vector;
  bool has_held;

  // Called by all threads of a block. Fills the rows in shared memory by the results of masked columns, and waits for
  // the stream's previous grid.
  __device__ __forceinline__ FramedThread(const FramedRows& framed, const SoftmaxParams& params, const uint4& masked)
      : memory(&shared<unsigned char>()),
        segment(row_segment<T>(params)),
        lane(static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1)),
        lanes(params.lanes_per_row) {
    auto* const rows = reinterpret_cast<SegmentRow*>(memory + framed.rows_offset_bytes);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (int at = thread * vector_bytes; at < segment.end; at += static_cast<int>(blockDim.x) * vector_bytes)
      *reinterpret_cast<uint4*>(memory + at) = masked;
    wait_on_dependent_grids();
    if (thread < params.rows_per_block) rows[thread] = find_segment_row<T>(framed, params, segment, thread);
    __syncthreads();
    row = rows[thread >> params.rows_shift];
    held_vector = row.first_vector + lane;
    has_held = held_vector < row.end_vector;
    if (lane >= lanes / 2 && row.end_vector - row.first_vector > lanes) held_vector = row.end_vector - lanes + lane;
  }
  // The address in a tensor that belongs to `memory`.
  __device__ __forceinline__ const unsigned char* source(const unsigned char* tensor) const {
    return held(tensor + (segment.first_byte - segment.shift));
  }
  // Loads the held vectors of kInputs tensors. In the tensor's first and last block, the row's elements are loaded one
  // by one if the vector has columns of other rows.
  template <int kInputs>
  __device__ __forceinline__ void load_held(const unsigned char* const (&sources)[kInputs], int columns,
                                            uint4 (&vectors)[kInputs]) const {
    if (!has_held) return;
    const int first = row.start - held_vector * width, end = first + columns;
    const bool is_apart = (blockIdx.x == 0 || segment.ends_tensor) && (first > 0 || end < width);
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      if (!is_apart) vectors[k] = load_vector(sources[k] + held_vector * vector_bytes);
    if (!is_apart) return;
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      vectors[k] = load_elements<T>(sources[k] + held_vector * vector_bytes, first, end);
  }
  // Replaces masked columns, and columns of other rows, in the held vectors of kInputs tensors.
  template <int kInputs>
  __device__ __forceinline__ void cut(uint4 (&vectors)[kInputs], const uint4 (&masked)[kInputs]) const {
    const int begin = row.begin - held_vector * width, end = row.end - held_vector * width;
    const bool has_end = end < width;
    if (!has_end && begin <= 0) return;
    VectorCut<T> one(has_end ? end : begin);
#pragma unroll
    for (uint32_t& word : one.past) word ^= has_end ? 0u : ~0u;
#pragma unroll
    for (int k = 0; k < kInputs; ++k) one.replace_from(&vectors[k], masked[k]);
    if (!has_end || begin <= 0) return;
    const VectorCut<T> head(begin);
#pragma unroll
    for (int k = 0; k < kInputs; ++k) head.replace_before(&vectors[k], masked[k]);
  }
  // Calls take(i, offset from `memory`) for each of the thread's inner vectors that registers hold, the first ones.
  template <class Take>
  __device__ __forceinline__ void for_each_near(Take take) const {
#pragma unroll
    for (int i = 0; i < framed_near_vectors; ++i)
      if (inner(i) < end_inner()) take(i, inner(i));
  }
  // Calls take(offset from `memory`) for each of the others.
  template <class Take>
  __device__ __forceinline__ void for_each_far(Take take) const {
    const int end = end_inner();
#pragma unroll 1
    for (int at = inner(framed_near_vectors); at < end; at += lanes * vector_bytes) take(at);
  }
  // Stores the block's rows, from `memory` and from the held results. A vector that two rows share is stored whole by
  // the first row, then in part by the second row.
  __device__ __forceinline__ void leave(const SoftmaxParams& params, const uint4& results) const {
    auto* const to = reinterpret_cast<uint4*>(memory + held_vector * vector_bytes);
    const int before = row.start - held_vector * width;  // columns of the row before
    if (has_held && before <= 0) *to = results;
    __syncthreads();
    if (has_held && before > 0) {
      uint4 both = *to;
      VectorCut<T>(before).replace_from(&both, results);
      *to = both;
    }
    store_segment<T>(params, segment, memory);
  }

 private:
  // The inner vectors are at inner(0), inner(1), ... while less than end_inner().
  __device__ __forceinline__ int inner(int i) const {
    return (row.first_vector + lanes / 2 + lane + i * lanes) * vector_bytes;
  }
  __device__ __forceinline__ int end_inner() const { return (row.end_vector - lanes / 2) * vector_bytes; }
};

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), 0 if j is masked; dy, y and dx
// are contiguous (rows, columns). A block has rows_per_block neighbouring rows of lanes_per_row threads each. Threads
// and neighbouring rows are as in framed_rows_softmax(). Vectors that registers do not hold go through shared memory,
// where all results are put.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    framed_rows(const __grid_constant__ GridConstant<FramedRows> framed,
                const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Terms::T;
  using A = ComputeType<T>;
  constexpr int width = Terms::width;
  const uint4 zeros[1] = {{0, 0, 0, 0}};
  const FramedThread<T> own(framed, params, zeros[0]);
  unsigned char *const dy_memory = own.memory, *const y_memory = own.memory + framed.second_offset_bytes;
  const unsigned char *const dy = own.source(params.x), *const y = own.source(params.bias_or_y);

  uint4 inputs[2] = {zeros[0], Terms::masked_vector(params, 1)}, near[framed_near_vectors][2];
  own.load_held({dy, y}, params.columns, inputs);
  own.for_each_near([&](int i, int at) {
    near[i][0] = load_vector(dy + at);
    near[i][1] = load_vector(y + at);
  });
  own.for_each_far([&](int at) {
    async_copy_vector(dy_memory + at, dy + at);
    async_copy_vector(y_memory + at, y + at);
  });
  uint4 results[1];
  bool is_finite = true;
  const auto finish = [&](auto kind) {
    const Terms terms(params, decltype(kind)::value);
    const uint4 masked[] = {zeros[0], decltype(kind)::value ? negative_infinity_vector<T>() : zeros[0]};
    own.cut(inputs, masked);
    const auto sum_of = [&](const uint4& dy_vector, const uint4& y_vector) {
      A dy_values[width], y_values[width];
      widen_vector<T>(dy_vector, dy_values);
      widen_vector<T>(y_vector, y_values);
      A sum = terms.term(dy_values[0], y_values[0]);
#pragma unroll
      for (int j = 1; j < width; ++j) sum += terms.term(dy_values[j], y_values[j]);
      return sum;
    };
    A sum = sum_of(inputs[0], inputs[1]);
    own.for_each_near([&](int i, int) { sum += sum_of(near[i][0], near[i][1]); });
    async_copy_wait();
    own.for_each_far([&](int at) { sum += sum_of(load_vector(dy_memory + at), load_vector(y_memory + at)); });
    sum = over_lanes(sum, own.lanes, [](A a, A b) { return a + b; });
    const auto results_of = [&](const uint4& dy_vector, const uint4& y_vector) {
      A dx[width];
      terms.vector_results(dy_vector, y_vector, sum, dx);
      return narrow_vector<T>(dx);
    };
    const auto store = [&](int at, const uint4& vector) { *reinterpret_cast<uint4*>(dy_memory + at) = vector; };
    own.for_each_near([&](int i, int at) { store(at, results_of(near[i][0], near[i][1])); });
    own.for_each_far([&](int at) { store(at, results_of(load_vector(dy_memory + at), load_vector(y_memory + at))); });
    results[0] = results_of(inputs[0], inputs[1]);
    is_finite = sum - sum == A{0};
  };
  if (params.log_softmax)
    finish(std::true_type{});
  else
    finish(std::false_type{});
  // The gradients of masked columns are 0 for every sum.
  if (!is_finite) own.cut(results, zeros);
  own.leave(params, results[0]);
}

}  // namespace flowk::softmax
