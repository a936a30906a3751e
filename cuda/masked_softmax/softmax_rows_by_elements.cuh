// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of short rows whose ends fall inside 16-byte chunks: a span of whole rows goes through
// shared memory, in chunks on the way in and out, and by elements in between.
#pragma once

#include "masked_softmax/softmax_backward_in_registers.cuh"
#include "masked_softmax/softmax_row_in_registers.cuh"

namespace flowk {

// Where the rows of one block lie: in memory one after the other, in shared memory at the same place modulo 16.
struct RowSpan {
  int64_t first_row;
  int num_rows;
  int shift;       // from an aligned address to the first row
  int span_bytes;  // of the rows
  int num_chunks;  // that the rows touch
};

template <class T>
__device__ __forceinline__ RowSpan row_span(const SoftmaxParams& params) {
  RowSpan span;
  span.first_row = static_cast<int64_t>(blockIdx.x) * params.rows_per_block;
  const int64_t rows_left = params.num_rows - span.first_row;
  span.num_rows = rows_left < params.rows_per_block ? static_cast<int>(rows_left) : params.rows_per_block;
  const int row_bytes = params.columns * static_cast<int>(sizeof(T));
  span.shift = static_cast<int>(
      (reinterpret_cast<uintptr_t>(params.x) + static_cast<uint64_t>(span.first_row) * row_bytes) % chunk_bytes);
  span.span_bytes = span.num_rows * row_bytes;
  span.num_chunks = (span.shift + span.span_bytes + chunk_bytes - 1) / chunk_bytes;
  return span;
}

// Starts copying a block's rows of `tensor`, whose rows lie one after the other. A chunk that reaches past the tensor
// comes by elements.
template <class T>
__device__ __forceinline__ void load_span(const SoftmaxParams& params, const RowSpan& span, const unsigned char* tensor,
                                          unsigned char* memory) {
  const int64_t row_bytes = params.columns * static_cast<int64_t>(sizeof(T));
  const unsigned char* const end = tensor + params.num_rows * row_bytes;
  const unsigned char* const first = tensor + span.first_row * row_bytes - span.shift;
  for (int chunk = static_cast<int>(threadIdx.x); chunk < span.num_chunks; chunk += static_cast<int>(blockDim.x)) {
    const unsigned char* const address = first + chunk * chunk_bytes;
    if (address >= tensor && end - address >= chunk_bytes) {
      async_copy_chunk(memory + chunk * chunk_bytes, address);
    } else {
#pragma unroll 1
      for (int i = 0; i < chunk_bytes; i += static_cast<int>(sizeof(T)))
        if (address + i >= tensor && address + i < end)
          *reinterpret_cast<T*>(memory + chunk * chunk_bytes + i) = *reinterpret_cast<const T*>(address + i);
    }
  }
}

template <class T>
__device__ __forceinline__ void store_span(const SoftmaxParams& params, const RowSpan& span,
                                           const unsigned char* memory) {
  const int64_t row_bytes = params.columns * static_cast<int64_t>(sizeof(T));
  unsigned char* const first = params.out + span.first_row * row_bytes - span.shift;
  const int end = span.shift + span.span_bytes;
  for (int chunk = static_cast<int>(threadIdx.x); chunk < span.num_chunks; chunk += static_cast<int>(blockDim.x)) {
    const int begin = chunk * chunk_bytes;
    if (begin >= span.shift && begin + chunk_bytes <= end) {
      *reinterpret_cast<uint4*>(first + begin) = *reinterpret_cast<const uint4*>(memory + begin);
    } else {
#pragma unroll 1
      for (int i = begin; i < begin + chunk_bytes; i += static_cast<int>(sizeof(T)))
        if (i >= span.shift && i < end) *reinterpret_cast<T*>(first + i) = *reinterpret_cast<const T*>(memory + i);
    }
  }
}

// kElements neighbouring elements in shared memory.
template <class T, int kElements>
struct alignas(kElements * sizeof(T)) Unit {
  T elements[kElements];
};

// y(row, j) = exp(z(row, j) - max) / sum over kept i of exp(z(row, i) - max); x and y are (rows, columns), each one
// contiguous run of memory. All columns are read: lengths, causal and window are for other kernels.
//
// A block owns rows_per_block neighbouring rows, lanes_per_row threads each; a thread owns up to kUnits units of
// kElements neighbouring columns, lanes_per_row units apart, and puts results back where it found x.
template <class T, int kElements, int kUnits, SoftmaxMask kMask>
__global__ void __launch_bounds__(256) softmax_rows_by_elements(const __grid_constant__ SoftmaxParams params) {
  using A = ComputeType<T>;
  using E = RowValue<T>;
  using Elements = Unit<T, kElements>;
  unsigned char* const memory = &shared<unsigned char>();
  const RowSpan span = row_span<T>(params);
  load_span<T>(params, span, params.x, memory);
  async_copy_wait();
  __syncthreads();

  const int row_in_block = static_cast<int>(threadIdx.x) >> params.rows_shift;
  const int lane = static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1);
  const bool exists = row_in_block < span.num_rows;
  const int num_units = exists ? params.columns / kElements : 0;
  Elements* const units =
      reinterpret_cast<Elements*>(memory + span.shift + row_in_block * params.columns * static_cast<int>(sizeof(T)));
  SoftmaxRow row;
  constexpr bool is_masked = kMask != SoftmaxMask::interval;
  if constexpr (is_masked)
    row = locate_row<kMask, false>(params, exists ? span.first_row + row_in_block : params.num_rows);

  A values[kUnits * kElements];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int unit = lane + i * params.lanes_per_row;
    if (unit < num_units) {
      const Elements found = units[unit];
#pragma unroll
      for (int j = 0; j < kElements; ++j) values[i * kElements + j] = widen(found.elements[j]);
    } else {
#pragma unroll
      for (int j = 0; j < kElements; ++j) values[i * kElements + j] = negative_infinity<A>();
    }
  }
  if (params.negates_x) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
      if (lane + i * params.lanes_per_row < num_units)
#pragma unroll
        for (int j = 0; j < kElements; ++j) values[i * kElements + j] = -values[i * kElements + j];
  }
  if constexpr (is_masked) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const int unit = lane + i * params.lanes_per_row;
      if (unit >= num_units) continue;
#pragma unroll
      for (int j = 0; j < kElements; ++j)
        if (!is_kept<kMask>(row, unit * kElements + j)) values[i * kElements + j] = negative_infinity<A>();
    }
  }
  A largest = negative_infinity<A>();
#pragma unroll
  for (int i = 0; i < kUnits * kElements; ++i) largest = larger_of(largest, values[i]);
  largest = max_over_lanes(largest, params.lanes_per_row);
  const A reference = largest == negative_infinity<A>() ? A{0} : largest;
  const A scale = exponent_scale<T, kMask>(params);
  const ScoreScale<T, kMask> to_exponent(reference, scale);
  ThreadSum<T> thread_sum;
#pragma unroll
  for (int i = 0; i < kUnits * kElements; ++i) {
    const A z = to_exponent(values[i]);
    const A p = exponential<T>(z);
    thread_sum.take_one(p);
    values[i] = params.log_softmax ? z : p;
  }
  const E sum = sum_over_lanes(thread_sum.total(), params.lanes_per_row);
  [[maybe_unused]] const A masked = params.log_softmax ? negative_infinity<A>() : A{0};
  A factor = static_cast<A>(natural_per_base<T>), term = 0;
  if (!params.log_softmax)
    factor = sum == E{0} ? A{0} : inverse_of<A>(sum);
  else if (sum != E{0})
    term = -log_of<A>(sum);
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int unit = lane + i * params.lanes_per_row;
    if (unit >= num_units) continue;
    Elements result;
#pragma unroll
    for (int j = 0; j < kElements; ++j) result.elements[j] = convert<T>(values[i * kElements + j] * factor + term);
    units[unit] = result;
  }
  // A row with a NaN: its masked columns are not.
  if constexpr (is_masked) {
    if (sum != sum) {
#pragma unroll 1
      for (int unit = lane; unit < num_units; unit += params.lanes_per_row)
#pragma unroll 1
        for (int j = 0; j < kElements; ++j)
          if (!is_kept<kMask>(row, unit * kElements + j)) units[unit].elements[j] = convert<T>(masked);
    }
  }
  __syncthreads();
  store_span<T>(params, span, memory);
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), rows and threads as of
// softmax_rows_by_elements; dx takes the place of dy in shared memory.
template <class T, int kElements, int kUnits>
__global__ void __launch_bounds__(256) softmax_backward_by_elements(const __grid_constant__ SoftmaxParams params) {
  using A = ComputeType<T>;
  using Elements = Unit<T, kElements>;
  unsigned char* const memory = &shared<unsigned char>();
  const RowSpan span = row_span<T>(params);
  unsigned char* const y_memory = memory + span.num_chunks * chunk_bytes;
  load_span<T>(params, span, params.x, memory);
  load_span<T>(params, span, params.side, y_memory);
  async_copy_wait();
  __syncthreads();

  const int row_in_block = static_cast<int>(threadIdx.x) >> params.rows_shift;
  const int lane = static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1);
  const bool exists = row_in_block < span.num_rows;
  const int num_units = exists ? params.columns / kElements : 0;
  const int row_offset = span.shift + row_in_block * params.columns * static_cast<int>(sizeof(T));
  Elements* const dy_units = reinterpret_cast<Elements*>(memory + row_offset);
  const Elements* const y_units = reinterpret_cast<const Elements*>(y_memory + row_offset);
  const bool log_softmax = params.log_softmax;
  const A masked_y = log_softmax ? negative_infinity<A>() : A{0};
  A dy[kUnits * kElements], y[kUnits * kElements];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int unit = lane + i * params.lanes_per_row;
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      dy[i * kElements + j] = 0;
      y[i * kElements + j] = masked_y;
    }
    if (unit >= num_units) continue;
    const Elements found_dy = dy_units[unit], found_y = y_units[unit];
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      dy[i * kElements + j] = widen(found_dy.elements[j]);
      y[i * kElements + j] = widen(found_y.elements[j]);
    }
  }
  A sum = 0;
#pragma unroll
  for (int i = 0; i < kUnits * kElements; ++i) sum += backward_term(log_softmax, dy[i], y[i]);
  sum = sum_over_lanes(sum, params.lanes_per_row);
  const A scale = signed_scale<A>(params);
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const int unit = lane + i * params.lanes_per_row;
    if (unit >= num_units) continue;
    Elements result;
#pragma unroll
    for (int j = 0; j < kElements; ++j)
      result.elements[j] =
          convert<T>(backward_gradient(log_softmax, dy[i * kElements + j], y[i * kElements + j], sum, scale));
    dy_units[unit] = result;
  }
  __syncthreads();
  store_span<T>(params, span, memory);
}

}  // namespace flowk
