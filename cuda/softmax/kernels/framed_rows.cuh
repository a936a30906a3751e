// SPDX-License-Identifier: Apache-2.0
// Gradients of rows that lie one after the other, start and end anywhere, and are masked by lengths, causal or window:
// the threads of a row take the aligned vectors that contain its unmasked columns through shared memory, and the
// results leave from there.
#pragma once

#include "softmax/kernels/segment_frame.cuh"
#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

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
  constexpr int width = Terms::width, near_vectors = softmax_kernels[kRow].max_vectors - 1;
  const uint4 zeros[1] = {{0, 0, 0, 0}};
  const FramedThread<T, near_vectors> own(framed, params, zeros[0]);
  unsigned char *const dy_memory = own.memory, *const y_memory = own.memory + framed.second_offset_bytes;
  const unsigned char *const dy = own.source(params.x), *const y = own.source(params.bias_or_y);

  uint4 inputs[2] = {zeros[0], Terms::masked_vector(params, 1)}, near[near_vectors][2];
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
