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

// The rows' elements of one chunk of a span.
template <class T>
__device__ __forceinline__ void copy_part(unsigned char* dst, const unsigned char* src, int begin,
                                          const RowSpan& span) {
#pragma unroll 1
  for (int i = begin; i < begin + chunk_bytes; i += static_cast<int>(sizeof(T)))
    if (i >= span.shift && i < span.shift + span.span_bytes)
      *reinterpret_cast<T*>(dst + i) = *reinterpret_cast<const T*>(src + i);
}

// Starts copying a block's rows of `tensor`, whose rows lie one after the other. Chunks that the rows share with others
// may reach past the tensor: they come by elements there, and by the first and the last thread.
template <class T>
__device__ __forceinline__ void load_span(const SoftmaxParams& params, const RowSpan& span, const unsigned char* tensor,
                                          unsigned char* memory) {
  const int64_t row_bytes = params.columns * static_cast<int64_t>(sizeof(T));
  const unsigned char* const first = tensor + span.first_row * row_bytes - span.shift;
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const bool has_head = span.first_row == 0 && span.shift > 0;
  const int64_t bytes_left = (params.num_rows - span.first_row) * row_bytes + span.shift;
  const bool has_tail = span.num_chunks * chunk_bytes > bytes_left && !(has_head && span.num_chunks == 1);
  const int last = span.num_chunks - (has_tail ? 1 : 0);
#pragma unroll 1
  for (int chunk = thread + (has_head ? 1 : 0); chunk < last; chunk += num_threads)
    async_copy_chunk(memory + chunk * chunk_bytes, first + chunk * chunk_bytes);
  if (!has_head && !has_tail) return;
  const int edge = has_head && thread == 0 ? 0 : has_tail && thread == num_threads - 1 ? span.num_chunks - 1 : -1;
  if (edge >= 0) copy_part<T>(memory, first, edge * chunk_bytes, span);
}

template <class T>
__device__ __forceinline__ void store_span(const SoftmaxParams& params, const RowSpan& span,
                                           const unsigned char* memory) {
  const int64_t row_bytes = params.columns * static_cast<int64_t>(sizeof(T));
  unsigned char* const first = params.out + span.first_row * row_bytes - span.shift;
  const int end = span.shift + span.span_bytes;
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const int head = span.shift > 0 ? 1 : 0, last = end / chunk_bytes;
#pragma unroll 1
  for (int chunk = thread + head; chunk < last; chunk += num_threads)
    *reinterpret_cast<uint4*>(first + chunk * chunk_bytes) =
        *reinterpret_cast<const uint4*>(memory + chunk * chunk_bytes);
  if (head == 1 && thread == 0) copy_part<T>(first, memory, 0, span);
  if (last >= head && end % chunk_bytes != 0 && thread == num_threads - 1)
    copy_part<T>(first, memory, last * chunk_bytes, span);
}

// kElements neighbouring elements in shared memory.
template <class T, int kElements>
struct alignas(kElements * sizeof(T)) Unit {
  T elements[kElements];
};

// The mask's bytes of one unit.
template <int kElements>
__device__ __forceinline__ uint32_t load_mask_unit(const unsigned char* address, bool is_aligned) {
  if constexpr (kElements == 4)
    if (is_aligned) return *reinterpret_cast<const uint32_t*>(address);
  if constexpr (kElements == 2)
    if (is_aligned) return *reinterpret_cast<const uint16_t*>(address);
  uint32_t bytes = 0;
#pragma unroll
  for (int i = 0; i < kElements; ++i) bytes |= static_cast<uint32_t>(address[i]) << (8 * i);
  return bytes;
}

// y(row, j) = exp(z(row, j) - max) / sum over kept i of exp(z(row, i) - max); x and y are (rows, columns), each one
// contiguous run of memory. All columns are read: lengths, causal and window are for other kernels.
//
// A block owns rows_per_block neighbouring rows, lanes_per_row threads each; a thread owns up to kUnits units of
// kElements neighbouring columns, lanes_per_row units apart, and puts results back where it found x.
template <class T, int kElements, int kUnits, SoftmaxMask kMask>
__global__ void __launch_bounds__(256) softmax_rows_by_elements(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  using A = ComputeType<T>;
  using E = RowValue<T>;
  using Elements = Unit<T, kElements>;
  unsigned char* const memory = &shared<unsigned char>();
  const RowSpan span = row_span<T>(params);
  wait_for_previous_grid();
  load_span<T>(params, span, params.x, memory);
  const int row_in_block = static_cast<int>(threadIdx.x) >> params.rows_shift;
  const int lane = static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1);
  const bool exists = row_in_block < span.num_rows;
  const int num_units = exists ? params.columns / kElements : 0;
  Elements* const units =
      reinterpret_cast<Elements*>(memory + span.shift + row_in_block * params.columns * static_cast<int>(sizeof(T)));
  // From the thread's first unit on: unit i * lanes is there where that is less than `left`.
  Elements* const own = units + lane;
  const int lanes = params.lanes_per_row, left = num_units - lane;
  SoftmaxRow row;
  constexpr bool is_masked = kMask != SoftmaxMask::interval;
  if constexpr (is_masked)
    row = locate_row<kMask, false>(params, exists ? span.first_row + row_in_block : params.num_rows);

  // Masks come while x does.
  [[maybe_unused]] uint32_t masked_bytes[is_masked ? kUnits : 1];
  if constexpr (is_masked) {
    const unsigned char* const dense = row.dense + lane * kElements;
    const bool is_aligned = (reinterpret_cast<uintptr_t>(row.dense) & (kElements - 1)) == 0;
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
      masked_bytes[i] = i * lanes < left ? load_mask_unit<kElements>(dense + i * lanes * kElements, is_aligned) : 0u;
  }
  async_copy_wait();
  __syncthreads();

  A values[kUnits * kElements];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    if (i * lanes < left) {
      const Elements found = own[i * lanes];
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
      if (i * lanes < left)
#pragma unroll
        for (int j = 0; j < kElements; ++j) values[i * kElements + j] = -values[i * kElements + j];
  }
  if constexpr (is_masked) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
#pragma unroll
      for (int j = 0; j < kElements; ++j)
        if ((masked_bytes[i] >> (8 * j) & 0xff) != 0) values[i * kElements + j] = negative_infinity<A>();
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
    factor = sum == E{0} ? A{0} : quotient_of(A{1}, sum);
  else if (sum != E{0})
    term = -log_of<A>(sum);
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    if (i * lanes >= left) continue;
    Elements result;
#pragma unroll
    for (int j = 0; j < kElements; ++j) result.elements[j] = convert<T>(values[i * kElements + j] * factor + term);
    own[i * lanes] = result;
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
  allow_next_grid();
  using A = ComputeType<T>;
  using Elements = Unit<T, kElements>;
  unsigned char* const memory = &shared<unsigned char>();
  const RowSpan span = row_span<T>(params);
  wait_for_previous_grid();
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
  Elements* const dy_units = reinterpret_cast<Elements*>(memory + row_offset) + lane;
  const Elements* const y_units = reinterpret_cast<const Elements*>(y_memory + row_offset) + lane;
  const int lanes = params.lanes_per_row, left = num_units - lane;
  const bool log_softmax = params.log_softmax;
  const A masked_y = log_softmax ? negative_infinity<A>() : A{0};
  A dy[kUnits * kElements], y[kUnits * kElements];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      dy[i * kElements + j] = 0;
      y[i * kElements + j] = masked_y;
    }
    if (i * lanes >= left) continue;
    const Elements found_dy = dy_units[i * lanes], found_y = y_units[i * lanes];
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
    if (i * lanes >= left) continue;
    Elements result;
#pragma unroll
    for (int j = 0; j < kElements; ++j)
      result.elements[j] =
          convert<T>(backward_gradient(log_softmax, dy[i * kElements + j], y[i * kElements + j], sum, scale));
    dy_units[i * lanes] = result;
  }
  __syncthreads();
  store_span<T>(params, span, memory);
}

}  // namespace flowk
