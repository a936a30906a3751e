// SPDX-License-Identifier: Apache-2.0
// Softmax of rows that lie one after the other, start and end anywhere, and are masked by lengths, causal or window:
// the threads of a row take the aligned vectors that contain its unmasked columns through shared memory, and the
// results leave from there.
#pragma once

#include "softmax/kernels/scores_to_results.cuh"
#include "softmax/kernels/segment_frame.cuh"

namespace flowk::softmax {

// y(row, j) = exp(z(row, j) - max) / sum over unmasked i of exp(z(row, i) - max), z = scale * x, 0 if j is masked; x
// and y are contiguous (rows, columns). A block has rows_per_block neighbouring rows of lanes_per_row threads each.
// Fully masked vectors are not read. Vectors that registers do not hold are copied to shared memory, where all results
// are put; a thread reads them for the maximum, for the sum and for the results.
//
// Columns of neighbouring rows in a frame's first and last vector are read and count as masked. In place another
// thread may be writing them: whatever value is read is replaced before its first use.
template <class T, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    framed_rows_softmax(const __grid_constant__ GridConstant<FramedRows> framed,
                        const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  constexpr int width = vector_width<T>, near_vectors = softmax_kernels[kRow].max_vectors - 1;
  const uint4 infinity[1] = {negative_infinity_vector<T>()},
              masked[1] = {params.log_softmax ? infinity[0] : uint4{0, 0, 0, 0}};
  const FramedThread<T, near_vectors> own(framed, params, masked[0]);
  const unsigned char* const x = own.source(params.x);
  const auto store = [&](int at, const uint4& vector) { *reinterpret_cast<uint4*>(own.memory + at) = vector; };

  uint4 held_vector[1] = {infinity[0]}, near[near_vectors > 0 ? near_vectors : 1];
  own.load_held({x}, params.columns, held_vector);
  own.for_each_near([&](int i, int at) { near[i] = load_vector(x + at); });
  own.for_each_far([&](int at) {
    if (framed.through_l1)
      async_copy_cached_vector(own.memory + at, x + at);
    else
      async_copy_vector(own.memory + at, x + at);
  });
  // The wait is before the first use of a loaded vector: else the compiler issues the loads of `near` after that use.
  async_copy_wait();
  own.cut(held_vector, infinity);
  VectorMax<T> thread_max;
  thread_max.take(held_vector[0]);
  own.for_each_near([&](int i, int) { thread_max.take(near[i]); });
  own.for_each_far([&](int at) { thread_max.take(load_vector(own.memory + at)); });
  const float largest = over_lanes(thread_max.largest(), own.lanes, [](float a, float b) { return larger_of(a, b); });

  bool has_nan = false;
  // With `far`, the scores of some row of the warp are far from 0.
  const auto finish = [&](const auto& exponents, auto far) {
    constexpr bool is_log = std::remove_cvref_t<decltype(exponents)>::is_log;
    constexpr bool keeps_exponentials = sizeof(T) == 4 && !is_log;
    using Results = ScoreResults<T, is_log>;
    ThreadSum<T> thread_sum;
    // Exponents, or exponentials, which `p` has in both cases.
    const auto raise = [&](const uint4& vector, float (&values)[width], float (&p)[width]) {
      widen_vector<T>(vector, values);
      if (decltype(far)::value && exponents.is_far) {
#pragma unroll
        for (int j = 0; j < width; ++j) values[j] = exponents.near(values[j]);
      }
#pragma unroll
      for (int j = 0; j < width; ++j) {
        const float z = exponents(values[j]);
        p[j] = Results::exponential_of(z);
        values[j] = is_log ? z : p[j];
      }
    };
    float held_values[width], p[width];
    raise(held_vector[0], held_values, p);
    thread_sum.take(p);
    // In float32 the exponentials replace the scores. In 16 bits the scores stay, and the exponentials are computed
    // again for the results.
    const auto sum_of = [&](const uint4& vector) {
      float values[width];
      raise(vector, values, p);
      thread_sum.take(p);
      return keeps_exponentials ? narrow_vector<T>(values) : vector;
    };
    own.for_each_near([&](int i, int) { near[i] = sum_of(near[i]); });
    own.for_each_far([&](int at) {
      const uint4 vector = sum_of(load_vector(own.memory + at));
      if (keeps_exponentials) store(at, vector);
    });
    const auto sum = over_lanes(thread_sum.total(), own.lanes, [](auto a, auto b) { return a + b; });
    has_nan = sum != sum;
    const ResultFactors<T> result = Results::factors_of(sum, exponents.largest);
    const auto results_of = [&](float (&values)[width]) {
#pragma unroll
      for (int j = 0; j < width; ++j) values[j] = values[j] * result.factor + result.term;
      return narrow_vector<T>(values);
    };
    const auto vector_results = [&](const uint4& vector) {
      float values[width];
      if (keeps_exponentials)
        widen_vector<T>(vector, values);
      else
        raise(vector, values, p);
      return results_of(values);
    };
    own.for_each_near([&](int i, int at) { store(at, vector_results(near[i])); });
    own.for_each_far([&](int at) { store(at, vector_results(load_vector(own.memory + at))); });
    held_vector[0] = results_of(held_values);
  };
  const auto finish_by = [&](auto log) {
    using Results = ScoreResults<T, decltype(log)::value>;
    const ScoreExponents<decltype(log)::value> exponents(
        largest, ScoreFactor{params, false}.template of_base<typename Results::Base>());
    if (max_over_lanes(exponents.is_far ? 1.0f : 0.0f, 32) > 0)
      finish(exponents, std::true_type{});
    else
      finish(exponents, std::false_type{});
  };
  if (params.log_softmax)
    finish_by(std::true_type{});
  else
    finish_by(std::false_type{});
  // An unmasked NaN makes every result of its row NaN. The results of masked columns are put back.
  if (has_nan) own.cut(held_vector, masked);
  own.leave(params, held_vector[0]);
}

}  // namespace flowk::softmax
