// SPDX-License-Identifier: Apache-2.0
// staged_rows by single columns: one thread has a whole row of the segment in shared memory.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"
#include "softmax/kernels/staged_row_values.cuh"

namespace flowk::softmax {

// The gradient: its second input is y, and nothing but an interval masks it.
template <class Input>
struct StagedGradient {
  using T = Input;
  static constexpr bool has_y = true, has_mask = false;
};

// One thread per row of kMin to kMax columns, several rows per thread. kRowValues: calls with a log-sum-exp, sinks, a
// softcap or a scale per row.
template <class Input, int kMax, int kMin, bool kMasked, bool kRowValues>
struct SoftmaxColumns {
  using T = Input;
  // With a mask the second input is a dense mask or a bias. Other mechanisms take rows with both.
  static constexpr bool has_y = false, has_mask = kMasked;

  static __device__ __forceinline__ void work(const SoftmaxParams& params, const StagedRows& staged,
                                              const RowSegment& segment, const SegmentCopies& copies,
                                              unsigned char* memory) {
    copies.wait(false, kMasked);
    const unsigned char* const second = memory + staged.second_offset_bytes;
    const bool has_bias = kMasked && params.bias_or_y != nullptr, has_dense = kMasked && params.dense != nullptr;
    const int columns = kMin == kMax ? kMax : params.columns;
    const float scale = signed_scale<float>(params);
    const auto has = [&](int j) { return j < kMin || j < columns; };
    const auto take_rows = [&](const bool has_interval) {
#pragma unroll 1
      for (int n = static_cast<int>(threadIdx.x); n < segment.num_rows; n += static_cast<int>(blockDim.x)) {
        T* const elements = reinterpret_cast<T*>(memory + segment.shift) + n * columns;
        SoftmaxRow row;
        row.columns = columns;
        if (has_interval) find_staged_interval(params, segment, n, &row);
        const unsigned char* const mask = kMasked ? mask_of_row(staged.mask, second, n) : nullptr;
        const StagedRowValues<T, kRowValues> row_values(params, segment, n, has_bias);
        float values[kMax], largest = negative_infinity<float>();
        const auto mask_value = [&](int j, float masked) {
          if (has_interval && (j < row.begin || j >= row.end)) values[j] = masked;
          if (has_dense && mask[j] != 0) values[j] = masked;
        };
        if (has_bias) {
          const T* const bias = reinterpret_cast<const T*>(mask);
#pragma unroll
          for (int j = 0; j < kMax; ++j) {
            if (!has(j)) break;
            values[j] = scale * widen(elements[j]) + widen(bias[j]);
          }
        } else {
#pragma unroll
          for (int j = 0; j < kMax; ++j) {
            if (!has(j)) break;
            const float x = widen(elements[j]);
            values[j] = row_values.negates_x ? -x : x;
          }
          if constexpr (kRowValues) {
            if (row_values.has_softcap()) {
#pragma unroll
              for (int j = 0; j < kMax; ++j) {
                if (!has(j)) break;
                values[j] = row_values.score.capped(values[j]);
              }
            }
          }
        }
#pragma unroll
        for (int j = 0; j < kMax; ++j) {
          if (!has(j)) break;
          mask_value(j, negative_infinity<float>());
          largest = larger_of(largest, values[j]);
        }
        const ScoreSum<T> total = scores_to_results<T, 1>(
            params, row_values.factor(), largest,
            [&](auto value, float exponent) { return row_values.with_sink(value, largest, exponent); }, has, values);
        const auto sum = total.sum;
        if (sum != sum && (has_interval || has_dense)) {
          const float masked = params.log_softmax ? negative_infinity<float>() : 0.0f;
#pragma unroll
          for (int j = 0; j < kMax; ++j) {
            if (!has(j)) break;
            mask_value(j, masked);
          }
        }
#pragma unroll
        for (int j = 0; j < kMax; ++j) {
          if (!has(j)) break;
          elements[j] = convert<T>(values[j]);
        }
        row_values.leave(total, largest);
      }
    };
    // Two loops, because a test in the loop is slow for rows of one or two columns.
    if (kMasked || params.interval.exists)
      take_rows(params.interval.exists);
    else
      take_rows(false);
  }
};

template <class T, int kMax, int kMin>
struct GradientColumns : StagedGradient<T> {
  static __device__ __forceinline__ void work(const SoftmaxParams& params, const StagedRows& staged,
                                              const RowSegment& segment, const SegmentCopies& copies,
                                              unsigned char* memory) {
    copies.wait(false, false);
    const int columns = kMin == kMax ? kMax : params.columns;
    const GradientTerms<T> terms(params);
    const auto has = [&](int j) { return j < kMin || j < columns; };
    const auto take_rows = [&](const bool has_interval) {
      SoftmaxRow row;
      row.columns = row.end = columns;
      const auto is_masked = [&](int j) { return has_interval && (j < row.begin || j >= row.end); };
#pragma unroll 1
      for (int n = static_cast<int>(threadIdx.x); n < segment.num_rows; n += static_cast<int>(blockDim.x)) {
        if (has_interval) find_staged_interval(params, segment, n, &row);
        T* const dy_elements = reinterpret_cast<T*>(memory + segment.shift) + n * columns;
        const T* const y_elements =
            reinterpret_cast<const T*>(memory + staged.second_offset_bytes + segment.shift) + n * columns;
        float dy[kMax], y[kMax], sum = 0;
#pragma unroll
        for (int j = 0; j < kMax; ++j) {
          if (!has(j)) break;
          dy[j] = is_masked(j) ? terms.masked_element(params, 0) : widen(dy_elements[j]);
          y[j] = is_masked(j) ? terms.masked_element(params, 1) : widen(y_elements[j]);
          sum += terms.term(dy[j], y[j]);
        }
#pragma unroll
        for (int j = 0; j < kMax; ++j) {
          if (!has(j)) break;
          dy_elements[j] = convert<T>(is_masked(j) ? 0.0f : terms.result(dy[j], y[j], sum));
        }
      }
    };
    if (params.interval.exists)
      take_rows(true);
    else
      take_rows(false);
  }
};

}  // namespace flowk::softmax
