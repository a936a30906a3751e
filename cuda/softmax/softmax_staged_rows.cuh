// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of short rows, wherever they start and end: a span of whole rows goes through shared memory,
// in 16-byte vectors on the way in and out, and in units of 4 columns, or by single ones, in between.
#pragma once

#include "softmax/softmax_backward_in_registers.cuh"
#include "softmax/softmax_results.cuh"
#include "softmax/softmax_span.cuh"
#include "softmax/softmax_units.cuh"

namespace flowk::softmax {

// A row of the grid by its place in its block, one that exists where there is no such row.
__device__ __forceinline__ uint32_t existing_row(const SoftmaxParams& params, const RowSpan& span, int row_in_block) {
  const int row = row_in_block < span.num_rows ? row_in_block : 0;
  return blockIdx.x * static_cast<uint32_t>(params.rows_per_block) + static_cast<uint32_t>(row);
}

// y(row, j) = exp(z(row, j) - max) / sum over kept i of exp(z(row, i) - max), z = scale * x + bias; x, y and bias are
// (rows, columns), each one contiguous run of memory. All columns are read, kept or not.
//
// A block owns rows_per_block neighbouring rows, lanes_per_row threads each; a thread owns kUnits units of a row or one
// less, and puts results back where it found x.
template <class T, int kUnits, SoftmaxMask kMask>
__global__ void __launch_bounds__(128) softmax_rows_by_units(const __grid_constant__ SoftmaxParams params) {
  launch_dependent_grids();
  constexpr bool has_bias = kMask == SoftmaxMask::bias;
  unsigned char* const memory = &shared<unsigned char>();
  const RowSpan span = row_span<T>(params);
  const int row_in_block = static_cast<int>(threadIdx.x) >> params.rows_shift;
  const int lane = static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1);
  unsigned char* const side = memory + params.side_offset_bytes;  // masks or biases
  const SpanCopies copies(params, memory);
  copies.start([&](const CopyTeam& team, const BulkCopies& own) {
    load_span<T>(span, team, own, params.x, memory);
    if constexpr (has_bias) load_span<T>(span, team, own, params.side, side);
  });
  if constexpr (kMask == SoftmaxMask::dense)
    copies.start_beside(
        [&](const CopyTeam& team, const BulkCopies& own) { load_mask_runs(params, span, team, own, side); });
  const UnitWindow<T, kUnits> window(params, span, row_in_block, lane);
  const int first_column = lane * unit_columns - window.phase;
  SoftmaxRow row;
  if (params.has_interval) {
    row.columns = params.columns;
    const IntervalPlace place = interval_place(params, existing_row(params, span, row_in_block));
    wait_on_dependent_grids();
    find_interval(params, place.length_offset, place.number, &row);
  }
  copies.wait<kMask == SoftmaxMask::dense>();

  const auto load_units = [&](const unsigned char* from, uint32_t unkept, Unit<T>(&units)[kUnits]) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) units[i] = window.has(i) ? Unit<T>::load(from + window.at(i)) : Unit<T>::of(0u);
    if (!has_bias && params.negates_x) {
#pragma unroll
      for (int i = 0; i < kUnits; ++i)
#pragma unroll
        for (int j = 0; j < unit_words<T>; ++j) units[i].words[j] ^= sizeof(T) == 2 ? 0x80008000u : 0x80000000u;
    }
    window.clear_others(params, units, unkept);
    if (params.has_interval) window.clear_unkept(params, row, first_column, units, unkept);
  };
  Unit<T> units[kUnits];
  load_units(memory, has_bias ? 0u : infinity_word<T>, units);
  [[maybe_unused]] const unsigned char* own_mask = nullptr;
  if constexpr (kMask == SoftmaxMask::dense) {
    own_mask = mask_of_row(params, side, row_in_block) + first_column;
    const int first_byte = static_cast<int>(reinterpret_cast<uintptr_t>(own_mask)) & 3;
    const uint32_t* const words = reinterpret_cast<const uint32_t*>(own_mask - first_byte);
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
      if (window.has(i)) mask_unit<T>(&units[i], words + i * params.lanes_per_row, first_byte);
  }
  float values[kUnits * unit_columns], largest = negative_infinity<float>();
#pragma unroll
  for (int i = 0; i < kUnits; ++i) units[i].widen(values + i * unit_columns);
  if constexpr (has_bias) {
    load_units(side, infinity_word<T>, units);
    const float scale = signed_scale<float>(params);
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      float bias[unit_columns];
      units[i].widen(bias);
#pragma unroll
      for (int j = 0; j < unit_columns; ++j) {
        float& value = values[i * unit_columns + j];
        value = scale * value + bias[j];
        largest = larger_of(largest, value);
      }
    }
  } else {
    VectorMax<T> largest_x;
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
#pragma unroll
      for (int j = 0; j < unit_words<T>; ++j) largest_x.take_word(units[i].words[j]);
    largest = largest_x.largest();
  }
  const auto sum =
      scores_to_results<T, kMask>(params, max_over_lanes(largest, params.lanes_per_row), params.lanes_per_row, values);
#pragma unroll
  for (int i = 0; i < kUnits; ++i) units[i] = Unit<T>::from(values + i * unit_columns);
  if (params.has_unit_edges) __syncthreads();
  window.store(params, units, memory);
  // A row with a NaN: those of its columns that are not kept are no NaN.
  if (sum != sum && (kMask == SoftmaxMask::dense || params.has_interval)) {
    const float masked = params.log_softmax ? negative_infinity<float>() : 0.0f;
    const int end = (window.num_units - 1) * params.lanes_per_row * unit_columns + window.left;
#pragma unroll 1
    for (int i = 0; i < window.num_units; ++i)
#pragma unroll 1
      for (int j = i == 0 ? window.before : 0; j < unit_columns; ++j) {
        const int n = i * params.lanes_per_row * unit_columns + j, column = first_column + n;
        const bool is_unkept = params.has_interval && (column < row.begin || column >= row.end);
        if (n < end && (is_unkept || (kMask == SoftmaxMask::dense && own_mask[n] != 0)))
          store_element<T>(memory + window.at(i), j, masked);
      }
  }
  store_span<T>(params, span, memory);
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), rows and threads as of
// softmax_rows_by_units; dx takes the place of dy in shared memory.
template <class T, int kUnits>
__global__ void __launch_bounds__(128, 6) softmax_backward_by_units(const __grid_constant__ SoftmaxParams params) {
  launch_dependent_grids();
  unsigned char* const memory = &shared<unsigned char>();
  unsigned char* const y_memory = memory + params.side_offset_bytes;
  const RowSpan span = row_span<T>(params);
  const int row_in_block = static_cast<int>(threadIdx.x) >> params.rows_shift;
  const int lane = static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1);
  const SpanCopies copies(params, memory);
  copies.start([&](const CopyTeam& team, const BulkCopies& own) {
    load_span<T>(span, team, own, params.x, memory);
    load_span<T>(span, team, own, params.side, y_memory);
  });
  const UnitWindow<T, kUnits> window(params, span, row_in_block, lane);
  copies.wait<false>();

  const bool log_softmax = params.log_softmax;
  Unit<T> dy_units[kUnits], y_units[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    dy_units[i] = window.has(i) ? Unit<T>::load(memory + window.at(i)) : Unit<T>::of(0u);
    y_units[i] = window.has(i) ? Unit<T>::load(y_memory + window.at(i)) : Unit<T>::of(0u);
  }
  window.clear_others(params, dy_units, 0u);
  window.clear_others(params, y_units, log_softmax ? infinity_word<T> : 0u);
  const auto make_gradients = [&](auto kind) {
    constexpr bool is_log = decltype(kind)::value;
    float sums[unit_columns] = {};
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      float dy[unit_columns], y[unit_columns];
      dy_units[i].widen(dy);
      y_units[i].widen(y);
#pragma unroll
      for (int j = 0; j < unit_columns; ++j) sums[j] += backward_term(is_log, dy[j], y[j]);
    }
    const float sum = sum_over_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]), params.lanes_per_row);
    const float scale = signed_scale<float>(params);
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      float dy[unit_columns], y[unit_columns];
      dy_units[i].widen(dy);
      y_units[i].widen(y);
#pragma unroll
      for (int j = 0; j < unit_columns; ++j) dy[j] = backward_gradient(is_log, dy[j], y[j], sum, scale);
      dy_units[i] = Unit<T>::from(dy);
    }
  };
  if (log_softmax)
    make_gradients(std::true_type{});
  else
    make_gradients(std::false_type{});
  if (params.has_unit_edges) __syncthreads();
  window.store(params, dy_units, memory);
  store_span<T>(params, span, memory);
}

// As softmax_rows_by_units, of rows of so few columns that a thread takes a whole one, and several one after the other.
template <class T, int kColumns, SoftmaxMask kMask>
__global__ void __launch_bounds__(256) softmax_rows_by_elements(const __grid_constant__ SoftmaxParams params) {
  launch_dependent_grids();
  constexpr bool has_bias = kMask == SoftmaxMask::bias;
  unsigned char* const memory = &shared<unsigned char>();
  const RowSpan span = row_span<T>(params);
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  unsigned char* const side = memory + params.side_offset_bytes;  // masks or biases
  const SpanCopies copies(params, memory);
  copies.start([&](const CopyTeam& team, const BulkCopies& own) {
    load_span<T>(span, team, own, params.x, memory);
    if constexpr (has_bias) load_span<T>(span, team, own, params.side, side);
  });
  if constexpr (kMask == SoftmaxMask::dense)
    copies.start_beside(
        [&](const CopyTeam& team, const BulkCopies& own) { load_mask_runs(params, span, team, own, side); });
  copies.wait<kMask == SoftmaxMask::dense>();
  const float scale = signed_scale<float>(params);
  // Two loops: rows of one or two columns would spend a third of their time to ask.
  const auto take_rows = [&](auto kind) {
    constexpr bool has_interval = decltype(kind)::value;
#pragma unroll 1
    for (int row_in_block = thread; row_in_block < span.num_rows; row_in_block += num_threads) {
      T* const elements = reinterpret_cast<T*>(memory + span.shift) + row_in_block * kColumns;
      [[maybe_unused]] const T* const bias = reinterpret_cast<const T*>(side + span.shift) + row_in_block * kColumns;
      [[maybe_unused]] const unsigned char* mask = nullptr;
      if constexpr (kMask == SoftmaxMask::dense) mask = mask_of_row(params, side, row_in_block);
      SoftmaxRow row;
      row.columns = params.columns;
      if constexpr (has_interval) {
        const IntervalPlace place = interval_place(params, existing_row(params, span, row_in_block));
        find_interval(params, place.length_offset, place.number, &row);
      }
      float values[kColumns], largest = negative_infinity<float>();
      const auto mask_values = [&](float masked) {
        if constexpr (has_interval) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j)
            if (j < row.begin || j >= row.end) values[j] = masked;
        }
        if constexpr (kMask == SoftmaxMask::dense) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j)
            if (mask[j] != 0) values[j] = masked;
        }
      };
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        const float x = widen(elements[j]);
        if constexpr (has_bias)
          values[j] = scale * x + widen(bias[j]);
        else
          values[j] = params.negates_x ? -x : x;
      }
      mask_values(negative_infinity<float>());
#pragma unroll
      for (int j = 0; j < kColumns; ++j) largest = larger_of(largest, values[j]);
      const auto sum = scores_to_results<T, kMask>(params, largest, 1, values);
      if (sum != sum) mask_values(params.log_softmax ? negative_infinity<float>() : 0.0f);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) elements[j] = convert<T>(values[j]);
    }
  };
  if (params.has_interval)
    take_rows(std::true_type{});
  else
    take_rows(std::false_type{});
  store_span<T>(params, span, memory);
}

template <class T, int kColumns>
__global__ void __launch_bounds__(256) softmax_backward_by_elements(const __grid_constant__ SoftmaxParams params) {
  launch_dependent_grids();
  unsigned char* const memory = &shared<unsigned char>();
  unsigned char* const y_memory = memory + params.side_offset_bytes;
  const RowSpan span = row_span<T>(params);
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const SpanCopies copies(params, memory);
  copies.start([&](const CopyTeam& team, const BulkCopies& own) {
    load_span<T>(span, team, own, params.x, memory);
    load_span<T>(span, team, own, params.side, y_memory);
  });
  copies.wait<false>();
  const bool log_softmax = params.log_softmax;
  const float scale = signed_scale<float>(params);
#pragma unroll 1
  for (int row = thread; row < span.num_rows; row += num_threads) {
    T* const dy_elements = reinterpret_cast<T*>(memory + span.shift) + row * kColumns;
    const T* const y_elements = reinterpret_cast<const T*>(y_memory + span.shift) + row * kColumns;
    float dy[kColumns], y[kColumns], sum = 0;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      dy[j] = widen(dy_elements[j]);
      y[j] = widen(y_elements[j]);
      sum += backward_term(log_softmax, dy[j], y[j]);
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      dy_elements[j] = convert<T>(backward_gradient(log_softmax, dy[j], y[j], sum, scale));
  }
  store_span<T>(params, span, memory);
}

}  // namespace flowk::softmax
