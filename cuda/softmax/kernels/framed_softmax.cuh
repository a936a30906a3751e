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
// Fully masked vectors are not read. A thread holds one vector in registers, and copies its others to shared memory,
// where their results replace them: it reads them for the maximum, for the sum and for the results.
//
// Columns of neighbouring rows in a frame's first and last vector are read and count as masked. In place another
// thread may be writing them: whatever value is read is replaced before its first use. In shared memory a vector that
// two rows share is stored whole by the first one, then in part by the second one.
template <class T, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    framed_rows_softmax(const __grid_constant__ GridConstant<FramedRows> framed,
                        const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  constexpr int width = vector_width<T>, bytes = static_cast<int>(sizeof(T));
  unsigned char* const memory = &shared<unsigned char>();
  auto* const segment_rows = reinterpret_cast<SegmentRow*>(memory + framed.rows_offset_bytes);
  const RowSegment segment = row_segment<T>(params);
  const int thread = static_cast<int>(threadIdx.x), lanes = params.lanes_per_row;
  const int lane = thread & (lanes - 1), row_in_block = thread >> params.rows_shift;
  wait_on_dependent_grids();
  if (thread < params.rows_per_block) segment_rows[thread] = find_segment_row<T>(framed, params, segment, thread);
  __syncthreads();
  const SegmentRow row = segment_rows[row_in_block];
  const SegmentFrame<T> frame(row, lane, lanes);
  const unsigned char* const x = held(params.x + (segment.first_byte - segment.shift));
  const auto for_each = [&](int first, int end, auto take) {
#pragma unroll 1
    for (int at = first * vector_bytes; at < end * vector_bytes; at += lanes * vector_bytes) take(at);
  };
  const auto for_each_inner = [&](auto take) { for_each(frame.first_inner, frame.end_inner, take); };

  uint4 held_vector = negative_infinity_vector<T>();
  if (frame.has_held) held_vector = frame.load(row, params.columns, x + frame.held * vector_bytes);
  for_each_inner([&](int at) { async_copy_vector(memory + at, x + at); });
  if (params.negates_x && frame.has_held) negate_vector<T>(&held_vector);
  frame.cut(row, &held_vector);
  VectorMax<T> thread_max;
  thread_max.take(held_vector);
  async_copy_wait();
  if (params.negates_x) {
    for_each_inner([&](int at) {
      uint4 vector = load_vector(memory + at);
      negate_vector<T>(&vector);
      *reinterpret_cast<uint4*>(memory + at) = vector;
    });
  }
  for_each_inner([&](int at) { thread_max.take(load_vector(memory + at)); });
  const float largest = over_lanes(thread_max.largest(), lanes, [](float a, float b) { return larger_of(a, b); });

  const uint4 masked = params.log_softmax ? negative_infinity_vector<T>() : uint4{0, 0, 0, 0};
  bool has_nan = false;
  // With `far`, the scores of some row of the warp are far from 0.
  const auto finish = [&](const auto& exponents, auto far) {
    constexpr bool is_log = std::remove_cvref_t<decltype(exponents)>::is_log;
    constexpr bool keeps_exponentials = bytes == 4 && !is_log;
    using Results = ScoreResults<T, is_log>;
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
    ThreadSum<T> thread_sum;
    raise(held_vector, held_values, p);
    thread_sum.take(p);
    for_each_inner([&](int at) {
      float values[width];
      raise(load_vector(memory + at), values, p);
      if (keeps_exponentials) *reinterpret_cast<uint4*>(memory + at) = narrow_vector<T>(values);
      thread_sum.take(p);
    });
    const auto sum = over_lanes(thread_sum.total(), lanes, [](auto a, auto b) { return a + b; });
    has_nan = sum != sum;
    const ResultFactors<T> result = Results::factors_of(sum, exponents.largest);
    const auto results_of = [&](float (&values)[width]) {
#pragma unroll
      for (int j = 0; j < width; ++j) values[j] = values[j] * result.factor + result.term;
      return narrow_vector<T>(values);
    };
    for_each_inner([&](int at) {
      float values[width];
      const uint4 vector = load_vector(memory + at);
      if (keeps_exponentials)
        widen_vector<T>(vector, values);
      else
        raise(vector, values, p);
      *reinterpret_cast<uint4*>(memory + at) = results_of(values);
    });
    held_vector = results_of(held_values);
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

  // A row with an unmasked NaN stores its columns one by one, after the whole vectors of other rows.
  const int frame_vector = row.start / width;
  const bool is_head = row.start % width > 0 && lane == 0, holds_head = frame.has_held && frame.held == frame_vector;
  const auto fill = [&](int first, int end) {
    for_each(first + lane + (is_head && first == frame_vector ? lanes : 0), end,
             [&](int at) { *reinterpret_cast<uint4*>(memory + at) = masked; });
  };
  if (framed.starts_late) fill(frame_vector, row.first_vector);
  fill(row.end_vector, row.frame_end);
  if (frame.has_held && !has_nan && !(is_head && holds_head))
    *reinterpret_cast<uint4*>(memory + frame.held * vector_bytes) = held_vector;
  __syncthreads();
  if (has_nan) {
    SoftmaxRow columns;
    columns.out = memory + row.start * bytes;
    columns.begin = row.begin - row.start;
    columns.end = row.end - row.start;
    store_nan_columns<T, SoftmaxMask::none>(params, columns, lane, params.columns, lanes);
  } else if (is_head && row.frame_end > 0) {
    if (!holds_head) held_vector = masked;
    store_from<T>(memory + frame_vector * vector_bytes, held_vector, row.start % width);
  }
  store_segment<T>(params, segment, memory);
}

}  // namespace flowk::softmax
