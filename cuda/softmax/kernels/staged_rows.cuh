// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of short rows, up to 10,240 columns under a dense mask, that start and end anywhere: a block
// copies a segment of whole rows to shared memory by 16-byte vectors, computes the results in place by columns or by
// units of 4 columns, and copies them out.
#pragma once

#include "softmax/kernels/staged_columns.cuh"
#include "softmax/kernels/staged_thread.cuh"
#include "softmax/kernels/staged_units.cuh"

namespace flowk::softmax {

// lanes_per_row threads per row, each with up to kMax units. kRowValues as in SoftmaxColumns. With kWholeBlock they are
// the block.
template <class Input, int kMax, int kMin, SoftmaxMask kMask, bool kRowValues, bool kWholeBlock>
struct SoftmaxUnits {
  using T = Input;
  using Units = ThreadUnits<T, kMax, kMin>;
  using Cleared = typename Units::Cleared;
  static constexpr bool has_y = false, has_mask = may_have_dense(kMask);

  static __device__ __forceinline__ void work(const SoftmaxParams& params, const StagedRows& staged,
                                              const RowSegment& segment, const SegmentCopies& copies,
                                              unsigned char* memory) {
    constexpr bool has_bias = kMask == SoftmaxMask::bias, has_dense = kMask == SoftmaxMask::dense;
    const StagedThread<kWholeBlock> thread(params, staged, memory);
    const int row_in_block = thread.row_in_block, lane = thread.lane;
    const unsigned char* const second = memory + staged.second_offset_bytes;
    const Units own(params, staged, segment, row_in_block, lane);
    const SoftmaxRow row = staged_row(params, segment, row_in_block);
    if (staged.copies_rows) load_unmasked<T>(params, segment, row, row_in_block, lane, params.x, memory);
    if (kRowValues) wait_on_dependent_grids();
    const StagedRowValues<T, kRowValues> row_values(params, segment, row_in_block, has_bias);
    copies.wait(staged.copies_rows, has_mask);

    Unit<T> units[kMax];
    own.load(memory, units);
    if (!has_bias && row_values.negates_x) {
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        if (!own.any_has(i)) break;
#pragma unroll
        for (int j = 0; j < unit_words<T>; ++j) units[i].words[j] ^= sign_bits<T>;
      }
    }
    const unsigned char* own_mask = nullptr;
    if (has_mask)
      own_mask = mask_of_row(staged.mask, second, row_in_block) +
                 own.first_column * (has_bias ? static_cast<int>(sizeof(T)) : 1);
    float values[kMax * unit_columns], largest = negative_infinity<float>();
    if (has_bias) {
      Unit<T> bias_units[kMax];
      own.load_same_columns(own_mask, bias_units);
      own.clear_masked(params, staged, row, Cleared{units, 0u}, Cleared{bias_units, infinity_word<T>});
      const float scale = signed_scale<float>(params);
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        if (!own.any_has(i)) break;
        float x[unit_columns], bias[unit_columns];
        units[i].widen(x);
        bias_units[i].widen(bias);
#pragma unroll
        for (int j = 0; j < unit_columns; ++j) {
          values[i * unit_columns + j] = scale * x[j] + bias[j];
          largest = larger_of(largest, values[i * unit_columns + j]);
        }
      }
    } else {
      own.clear_masked(params, staged, row, Cleared{units, infinity_word<T>});
      const int first_byte = static_cast<int>(reinterpret_cast<uintptr_t>(own_mask)) & 3;
      VectorMax<T> largest_x;
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        if (!own.any_has(i)) break;
        if (has_dense && own.has(i))
          mask_unit<T>(&units[i], reinterpret_cast<const uint32_t*>(own_mask - first_byte) + i * params.lanes_per_row,
                       first_byte);
#pragma unroll
        for (int j = 0; j < unit_words<T>; ++j) largest_x.take_word(units[i].words[j]);
        units[i].widen(values + i * unit_columns);
      }
      largest = largest_x.largest();
      if constexpr (kRowValues)
        if (row_values.has_softcap()) largest = cap(own, row, row_values.score, values);
    }
    largest = thread.max_over_row(largest);
    const ScoreSum<T> total = scores_to_results<T, unit_columns>(
        params, row_values.factor(), largest,
        [&](auto value, float exponent) { return row_values.with_sink(thread.sum_over_row(value), largest, exponent); },
        [&](int i) { return own.any_has(i / unit_columns); }, values);
    const auto sum = total.sum;
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!own.any_has(i)) break;
      units[i] = Unit<T>::from(values + i * unit_columns);
    }
    if (staged.has_unit_edges) __syncthreads();
    own.store(staged, units, memory);
    // Masked columns of a row with a NaN are not NaN.
    if (sum != sum && (has_dense || params.interval.exists)) {
      const float masked = params.log_softmax ? negative_infinity<float>() : 0.0f;
#pragma unroll 1
      for (int i = 0; own.exists && i <= own.last; ++i)
#pragma unroll 1
        for (int j = 0; j < unit_columns; ++j) {
          const int column = own.column(i) + j;
          if (column < 0 || column >= params.columns) continue;
          const bool is_outside = params.interval.exists && (column < row.begin || column >= row.end);
          if (is_outside || (has_dense && own_mask[column - own.first_column] != 0))
            store_element<T>(memory + own.at(i), j, masked);
        }
    }
    if (lane == 0 && own.exists) row_values.leave(total, largest);
  }

 private:
  // Replaces x by z with a softcap, or by -infinity in masked columns; returns the largest.
  static __device__ __forceinline__ float cap(const Units& own, const SoftmaxRow& row, const RowScore<T>& score,
                                              float (&values)[kMax * unit_columns]) {
    float largest = negative_infinity<float>();
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!own.any_has(i)) break;
      const int after_begin = own.column(i) - row.begin;
#pragma unroll
      for (int j = 0; j < unit_columns; ++j) {
        float& value = values[i * unit_columns + j];
        const bool is_inside = static_cast<unsigned>(after_begin + j) < static_cast<unsigned>(row.end - row.begin);
        value = is_inside ? score.capped(value) : negative_infinity<float>();
        largest = larger_of(largest, value);
      }
    }
    return largest;
  }
};

template <class T, int kMax, int kMin>
struct GradientUnits : StagedGradient<T> {
  using Units = ThreadUnits<T, kMax, kMin>;
  using Cleared = typename Units::Cleared;

  static __device__ __forceinline__ void work(const SoftmaxParams& params, const StagedRows& staged,
                                              const RowSegment& segment, const SegmentCopies& copies,
                                              unsigned char* memory) {
    const StagedThread<false> thread(params, staged, memory);
    const int row_in_block = thread.row_in_block, lane = thread.lane;
    const Units own(params, staged, segment, row_in_block, lane);
    const SoftmaxRow row = staged_row(params, segment, row_in_block);
    unsigned char* const y_memory = memory + staged.second_offset_bytes;
    if (staged.copies_rows) {
      load_unmasked<T>(params, segment, row, row_in_block, lane, params.x, memory);
      load_unmasked<T>(params, segment, row, row_in_block, lane, params.bias_or_y, y_memory);
    }
    copies.wait(staged.copies_rows, false);
    const bool log_softmax = params.log_softmax;
    Unit<T> dy_units[kMax], y_units[kMax];
    own.load(memory, dy_units);
    own.load(y_memory, y_units);
    own.clear_masked(params, staged, row, Cleared{dy_units, 0u}, Cleared{y_units, log_softmax ? infinity_word<T> : 0u});
    const auto make_gradients = [&](auto kind) {
      const GradientTerms<T> terms(params, decltype(kind)::value);
      float sums[unit_columns] = {};
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        if (!own.any_has(i)) break;
        float dy[unit_columns], y[unit_columns];
        dy_units[i].widen(dy);
        y_units[i].widen(y);
#pragma unroll
        for (int j = 0; j < unit_columns; ++j) sums[j] += terms.term(dy[j], y[j]);
      }
      const float sum = thread.sum_over_row((sums[0] + sums[1]) + (sums[2] + sums[3]));
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        if (!own.any_has(i)) break;
        float dy[unit_columns], y[unit_columns];
        dy_units[i].widen(dy);
        y_units[i].widen(y);
#pragma unroll
        for (int j = 0; j < unit_columns; ++j) dy[j] = terms.result(dy[j], y[j], sum);
        dy_units[i] = Unit<T>::from(dy);
      }
      // The gradients of masked columns are 0 for every sum.
      if (params.interval.exists && !(sum - sum == 0.0f)) own.clear_outside(row, Cleared{dy_units, 0u});
    };
    if (log_softmax)
      make_gradients(std::true_type{});
    else
      make_gradients(std::false_type{});
    if (staged.has_unit_edges) __syncthreads();
    own.store(staged, dy_units, memory);
  }
};

// The rows of row kRow of the table.
template <class T, SoftmaxMask kMask, int kRow>
struct StagedTermsOf {
  static constexpr SoftmaxKernelRow row = softmax_kernels[kRow];
  static constexpr int max = row.max_vectors, min = row.min_vectors;
  static auto rows() {
    if constexpr (row.backward && row.unit_columns == 1)
      return std::type_identity<GradientColumns<T, max, min>>();
    else if constexpr (row.backward)
      return std::type_identity<GradientUnits<T, max, min>>();
    else if constexpr (row.unit_columns == 1)
      return std::type_identity<SoftmaxColumns<T, max, min, may_have_dense(kMask), row.row_values>>();
    else
      return std::type_identity<SoftmaxUnits<T, max, min, kMask, row.row_values, row.whole_block>>();
  }
};
template <class T, SoftmaxMask kMask, int kRow>
using StagedTerms = typename decltype(StagedTermsOf<T, kMask, kRow>::rows())::type;

// y(row, j) = exp(z(row, j) - max) / sum over unmasked i of exp(z(row, i) - max), z = scale * x + bias, or dx(row, j) =
// scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)). All operands are contiguous (rows, columns),
// and all columns are read.
//
// A block has rows_per_block neighbouring rows of lanes_per_row threads each, at most a warp, or one row. Results
// overwrite x, or dy, in shared memory.
template <class Rows, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    staged_rows(const __grid_constant__ GridConstant<StagedRows> staged,
                const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Rows::T;
  unsigned char* const memory = &shared<unsigned char>();
  unsigned char* const second = memory + staged.second_offset_bytes;
  const RowSegment segment = row_segment<T>(params);
  const SegmentCopies copies(staged, memory);
  if (!staged.copies_rows) {
    copies.start([&](const CopyGroup& group, const BulkCopies& own) {
      load_segment<T>(segment, group, own, params.x, memory);
      if (Rows::has_y) load_segment<T>(segment, group, own, params.bias_or_y, second);
    });
  }
  if (Rows::has_mask) {
    copies.start_second([&](const CopyGroup& group, const BulkCopies& own) {
      load_mask_runs(params, staged.mask, segment, group, own, copies.is_second_shared, second);
    });
    const int lane = static_cast<int>(threadIdx.x) - SegmentCopies::second_thread();
    if (copies.is_second_shared && lane >= 0 && lane < 32) copy_shared_masks(params, staged.mask, lane, second);
  }
  Rows::work(params, staged, segment, copies, memory);
  store_segment<T>(params, segment, memory);
}

}  // namespace flowk::softmax
