// SPDX-License-Identifier: Apache-2.0
// What staged_rows reads and writes once per row: sinks, a softcap, a scale per row and the log-sum-exp.
#pragma once

#include "softmax/kernels/row_sinks.cuh"
#include "softmax/kernels/scores_to_results.cuh"
#include "softmax/kernels/staged_segment.cuh"

namespace flowk::softmax {

// The row values of one of the block's rows, which exists. A kernel that takes calls without row values has only the
// scale.
template <class T, bool kRowValues>
struct StagedRowValues {
  ScoreFactor score_factor;
  bool negates_x;
  __device__ __forceinline__ StagedRowValues(const SoftmaxParams& params, const RowSegment&, int, bool has_bias)
      : score_factor{params, has_bias}, negates_x(params.negates_x) {}
  __device__ __forceinline__ const ScoreFactor& factor() const { return score_factor; }
  template <class Sum>
  static __device__ __forceinline__ Sum with_sink(Sum sum, float, float) {
    return sum;
  }
  static __device__ __forceinline__ void leave(const ScoreSum<T>&, float) {}
};

// Its numbers are read before its columns. Scores are x, negated if their factor is negative; with a softcap they are
// z.
template <class T>
struct StagedRowValues<T, true> {
  const SoftmaxParams& params;
  uint32_t linear;  // in the grid's order
  RowNumbers<float> numbers;
  RowScore<T> score;
  bool negates_x;
  float scale;  // z = score * scale

  __device__ __forceinline__ StagedRowValues(const SoftmaxParams& of, const RowSegment& segment, int row_in_block, bool)
      : params(of),
        linear(existing_row(of, segment, row_in_block)),
        numbers(of, linear, true),
        score(of, numbers.scale) {
    negates_x = of.negates_x || (!has_softcap() && score.scale < 0);
    // For a scale of 0: -infinity stays what it is.
    scale = has_softcap() ? 1.0f : at_least(fabsf(score.scale), 0x1p-148f);
  }
  __device__ __forceinline__ bool has_softcap() const { return score.has_softcap(); }
  __device__ __forceinline__ const StagedRowValues& factor() const { return *this; }
  // As ScoreFactor.
  template <class Base>
  __device__ __forceinline__ float of_base() const {
    return scale * static_cast<float>(base_per_natural<Base>);
  }
  // For scores_to_results(): the row's sum with its sink.
  __device__ __forceinline__ RowValue<T> with_sink(RowValue<T> sum, float largest, float largest_exponent) const {
    if (params.extras.numbers[row_sink] == nullptr || !(sum > RowValue<T>{0})) return sum;
    const float exponential =
        sizeof(T) == 2 ? exponential_of_base_2(largest_exponent) : power_of_2_of(largest_exponent);
    return sum + exponential_of_sink<T>(sink_distance(params, numbers.sink, scale, largest)) * exponential;
  }
  // Called by one thread of the row.
  __device__ __forceinline__ void leave(const ScoreSum<T>& row, float largest) const {
    if (params.lse != nullptr) called_store_lse<T>(params, linear, scale, numbers.sink, {largest, row.sum}, row.excess);
  }
};

}  // namespace flowk::softmax
