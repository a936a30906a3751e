// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of short rows, wherever they start and end: a span of whole rows goes through shared memory,
// in 16-byte chunks on the way in and out, and in units of 4 columns, or by single ones, in between.
#pragma once

#include "masked_softmax/softmax_backward_in_registers.cuh"
#include "masked_softmax/softmax_results.cuh"
#include "masked_softmax/softmax_span.cuh"

namespace flowk {

// 4 neighbouring columns, aligned to their size in memory.
constexpr int unit_columns = span_unit_columns;
template <class T>
constexpr int unit_words = unit_columns * static_cast<int>(sizeof(T)) / 4;
template <class T>
constexpr int unit_bytes = unit_columns * static_cast<int>(sizeof(T));

template <class T>
struct Unit {
  uint32_t words[unit_words<T>];

  static __device__ __forceinline__ Unit load(const unsigned char* address) {
    Unit unit;
    const auto pack = *reinterpret_cast<const Pack<unit_bytes<T>>*>(address);
    memcpy(unit.words, &pack, sizeof(pack));
    return unit;
  }
  __device__ __forceinline__ void store(unsigned char* address) const {
    Pack<unit_bytes<T>> pack;
    memcpy(&pack, words, sizeof(pack));
    *reinterpret_cast<Pack<unit_bytes<T>>*>(address) = pack;
  }
  // Columns [begin, end).
  __device__ __forceinline__ void store_columns(unsigned char* address, int begin, int end) const {
#pragma unroll
    for (int j = 0; j < unit_columns; ++j) {
      using Bits = Pack<static_cast<int>(sizeof(T))>;
      const Bits bits = static_cast<Bits>(sizeof(T) == 4 ? words[j % unit_words<T>] : words[j / 2] >> (16 * (j % 2)));
      if (j >= begin && j < end) reinterpret_cast<Bits*>(address)[j] = bits;
    }
  }
  __device__ __forceinline__ void widen(float* values) const {
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) {
      if constexpr (std::is_same_v<T, Float16>) {
        const float2 pair = __half22float2(bits_as<__half2>(words[i]));
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
      } else if constexpr (std::is_same_v<T, BFloat16>) {
        values[2 * i] = __uint_as_float(words[i] << 16);
        values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
      } else {
        values[i] = __uint_as_float(words[i]);
      }
    }
  }
  static __device__ __forceinline__ Unit from(const float* values) {
    Unit unit;
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) {
      if constexpr (sizeof(T) == 2)
        unit.words[i] = pack_pair<T>(values[2 * i], values[2 * i + 1]);
      else
        unit.words[i] = __float_as_uint(values[i]);
    }
    return unit;
  }
  static __device__ __forceinline__ Unit of(uint32_t word) {
    Unit unit;
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) unit.words[i] = word;
    return unit;
  }
  // Takes the word of `other` where the mask has ones.
  __device__ __forceinline__ void select(const uint32_t (&mask)[unit_words<T>], uint32_t other) {
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) words[i] = (words[i] & ~mask[i]) | (other & mask[i]);
  }
};

// A word of elements of -infinity.
template <class T>
constexpr uint32_t infinity_word = std::is_same_v<T, Float16>    ? 0xfc00fc00u
                                   : std::is_same_v<T, BFloat16> ? 0xff80ff80u
                                                                 : 0xff800000u;

// The units of one thread: a row is the units of the aligned window around it, `lanes` threads take them in turn, and
// columns of the first and the last one may belong to the rows next to it. Those of a thread are kUnits or one less.
template <class T, int kUnits>
struct UnitWindow {
  int first;      // byte of shared memory
  int step;       // bytes
  int num_units;  // 0: no such row
  int phase;      // columns of the row's first unit that belong to the row before
  int before;     // the same of this thread's first unit
  int left;       // columns from the last unit's first to the row's end: the next row has those past them

  __device__ __forceinline__ UnitWindow(const SoftmaxParams& params, const RowSpan& span, int row_in_block, int lane) {
    const int lanes = params.lanes_per_row;
    const int start = span.shift + row_in_block * params.columns * static_cast<int>(sizeof(T));
    const int misaligned = start & (unit_bytes<T> - 1);
    phase = misaligned / static_cast<int>(sizeof(T));
    const int columns = phase + params.columns;
    const int row_units = (columns + unit_columns - 1) / unit_columns;
    first = start - misaligned + lane * unit_bytes<T>;
    step = lanes * unit_bytes<T>;
    num_units = row_in_block < span.num_rows ? (row_units - lane + lanes - 1) >> params.rows_shift : 0;
    before = lane == 0 ? phase : 0;
    left = columns - unit_columns * (lane + lanes * (num_units - 1));
  }
  __device__ __forceinline__ bool has(int i) const { return i < kUnits - 1 || i < num_units; }
  __device__ __forceinline__ int at(int i) const { return first + i * step; }

  // Makes columns of other rows, and units that are not there, elements of `word`.
  __device__ __forceinline__ void clear_others(const SoftmaxParams& params, Unit<T> (&units)[kUnits],
                                               uint32_t word) const {
    constexpr int bits = 8 * static_cast<int>(sizeof(T));
    if (!has(kUnits - 1)) units[kUnits - 1] = Unit<T>::of(word);
    if (!params.has_unit_edges) return;
    const auto ones_past = [](int columns, int i) {
      const int shift = columns * bits - 32 * i;
      return ones_from(shift > 0 ? shift : 0);
    };
    uint32_t head[unit_words<T>], tail[unit_words<T>];
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) {
      head[i] = ~ones_past(before, i);
      tail[i] = ones_past(left, i);
    }
    units[0].select(head, word);
    if (num_units == kUnits)
      units[kUnits - 1].select(tail, word);
    else
      units[kUnits - 2].select(tail, word);
  }

  // Stores the row's columns; after a barrier, since other threads read their neighbours here.
  __device__ __forceinline__ void store(const SoftmaxParams& params, const Unit<T> (&units)[kUnits],
                                        unsigned char* memory) const {
    if (num_units == 0) return;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const bool is_whole = (i > 0 || before == 0) &&
                            (i < kUnits - 2 || i < num_units - 1 || (i == num_units - 1 && left >= unit_columns));
      if (is_whole) units[i].store(memory + at(i));
    }
    if (!params.has_unit_edges) return;
    if (before > 0) units[0].store_columns(memory + first, before, unit_columns);
    if (left < unit_columns) {
      Unit<T> last = units[kUnits - 2];
      if (num_units == kUnits) last = units[kUnits - 1];
      last.store_columns(memory + at(num_units - 1), 0, left);
    }
  }
};

// Masks a unit by the bytes of its columns, which start at any byte of a word in shared memory.
template <class T>
__device__ __forceinline__ void mask_unit(Unit<T>* unit, const uint32_t* words, int first_byte) {
  const uint32_t masked = nonzero_bytes(__funnelshift_r(words[0], words[1], static_cast<unsigned>(first_byte) * 8));
  uint32_t mask[unit_words<T>];
#pragma unroll
  for (int i = 0; i < unit_words<T>; ++i)
    mask[i] = spread_top_bits(masked, sizeof(T) == 4 ? i * 0x1111u : i == 0 ? 0x1100u : 0x3322u);
  unit->select(mask, infinity_word<T>);
}

// y(row, j) = exp(z(row, j) - max) / sum over kept i of exp(z(row, i) - max); x and y are (rows, columns), each one
// contiguous run of memory. All columns are read: lengths, causal and window are for other kernels.
//
// A block owns rows_per_block neighbouring rows, lanes_per_row threads each; a thread owns kUnits units of a row or one
// less, and puts results back where it found x.
template <class T, int kUnits, SoftmaxMask kMask>
__global__ void __launch_bounds__(128) softmax_rows_by_units(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  unsigned char* const memory = &shared<unsigned char>();
  const RowSpan span = row_span<T>(params);
  const int row_in_block = static_cast<int>(threadIdx.x) >> params.rows_shift;
  const int lane = static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1);
  const BulkCopies copies = {reinterpret_cast<uint64_t*>(memory + params.barrier_offset_bytes)};
  copies.begin();
  wait_for_previous_grid();
  load_span<T>(span, copies, params.x, memory);
  unsigned char* const masks = memory + params.block_offset_bytes;
  if constexpr (kMask == SoftmaxMask::dense) load_mask_runs(params, span, copies, masks);
  const UnitWindow<T, kUnits> window(params, span, row_in_block, lane);
  copies.wait();

  Unit<T> units[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) units[i] = window.has(i) ? Unit<T>::load(memory + window.at(i)) : Unit<T>::of(0u);
  if (params.negates_x) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
#pragma unroll
      for (int j = 0; j < unit_words<T>; ++j) units[i].words[j] ^= sizeof(T) == 2 ? 0x80008000u : 0x80000000u;
  }
  window.clear_others(params, units, infinity_word<T>);
  [[maybe_unused]] const unsigned char* own_mask = nullptr;
  if constexpr (kMask == SoftmaxMask::dense) {
    own_mask = mask_of_row(params, masks, row_in_block) + lane * unit_columns - window.phase;
    const int first_byte = static_cast<int>(reinterpret_cast<uintptr_t>(own_mask)) & 3;
    const uint32_t* const words = reinterpret_cast<const uint32_t*>(own_mask - first_byte);
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
      if (window.has(i)) mask_unit<T>(&units[i], words + i * params.lanes_per_row, first_byte);
  }
  ChunkMax<T> largest;
#pragma unroll
  for (int i = 0; i < kUnits; ++i)
#pragma unroll
    for (int j = 0; j < unit_words<T>; ++j) largest.take_word(units[i].words[j]);
  float values[kUnits * unit_columns];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) units[i].widen(values + i * unit_columns);
  const auto sum = scores_to_results<T>(params, max_over_lanes(largest.largest(), params.lanes_per_row),
                                        params.lanes_per_row, values);
#pragma unroll
  for (int i = 0; i < kUnits; ++i) units[i] = Unit<T>::from(values + i * unit_columns);
  if (params.has_unit_edges) __syncthreads();
  window.store(params, units, memory);
  // A row with a NaN: its masked columns are not.
  if constexpr (kMask == SoftmaxMask::dense) {
    if (sum != sum) {
      const float masked = params.log_softmax ? negative_infinity<float>() : 0.0f;
      const int end = (window.num_units - 1) * params.lanes_per_row * unit_columns + window.left;
#pragma unroll 1
      for (int i = 0; i < window.num_units; ++i)
#pragma unroll 1
        for (int j = i == 0 ? window.before : 0; j < unit_columns; ++j) {
          const int column = i * params.lanes_per_row * unit_columns + j;
          if (column < end && own_mask[column] != 0) store_element<T>(memory + window.at(i), j, masked);
        }
    }
  }
  __syncthreads();
  store_span<T>(params, span, memory);
}

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), rows and threads as of
// softmax_rows_by_units; dx takes the place of dy in shared memory.
template <class T, int kUnits>
__global__ void __launch_bounds__(128, 6) softmax_backward_by_units(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  unsigned char* const memory = &shared<unsigned char>();
  unsigned char* const y_memory = memory + params.block_offset_bytes;
  const RowSpan span = row_span<T>(params);
  const int row_in_block = static_cast<int>(threadIdx.x) >> params.rows_shift;
  const int lane = static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1);
  const BulkCopies copies = {reinterpret_cast<uint64_t*>(memory + params.barrier_offset_bytes)};
  copies.begin();
  wait_for_previous_grid();
  load_span<T>(span, copies, params.x, memory);
  load_span<T>(span, copies, params.side, y_memory);
  const UnitWindow<T, kUnits> window(params, span, row_in_block, lane);
  copies.wait();

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
  __syncthreads();
  store_span<T>(params, span, memory);
}

// As softmax_rows_by_units, of rows of so few columns that a thread takes a whole one, and several one after the other.
template <class T, int kColumns, SoftmaxMask kMask>
__global__ void __launch_bounds__(256) softmax_rows_by_elements(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  unsigned char* const memory = &shared<unsigned char>();
  const RowSpan span = row_span<T>(params);
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const BulkCopies copies = {reinterpret_cast<uint64_t*>(memory + params.barrier_offset_bytes)};
  copies.begin();
  wait_for_previous_grid();
  load_span<T>(span, copies, params.x, memory);
  unsigned char* const masks = memory + params.block_offset_bytes;
  if constexpr (kMask == SoftmaxMask::dense) load_mask_runs(params, span, copies, masks);
  copies.wait();
#pragma unroll 1
  for (int row = thread; row < span.num_rows; row += num_threads) {
    T* const elements = reinterpret_cast<T*>(memory + span.shift) + row * kColumns;
    [[maybe_unused]] const unsigned char* mask = nullptr;
    if constexpr (kMask == SoftmaxMask::dense) mask = mask_of_row(params, masks, row);
    float values[kColumns], largest = negative_infinity<float>();
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const float x = widen(elements[j]);
      values[j] = params.negates_x ? -x : x;
      if constexpr (kMask == SoftmaxMask::dense)
        if (mask[j] != 0) values[j] = negative_infinity<float>();
      largest = larger_of(largest, values[j]);
    }
    const auto sum = scores_to_results<T>(params, largest, 1, values);
    if constexpr (kMask == SoftmaxMask::dense) {
      if (sum != sum)
#pragma unroll
        for (int j = 0; j < kColumns; ++j)
          if (mask[j] != 0) values[j] = params.log_softmax ? negative_infinity<float>() : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j) elements[j] = convert<T>(values[j]);
  }
  __syncthreads();
  store_span<T>(params, span, memory);
}

template <class T, int kColumns>
__global__ void __launch_bounds__(256) softmax_backward_by_elements(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  unsigned char* const memory = &shared<unsigned char>();
  unsigned char* const y_memory = memory + params.block_offset_bytes;
  const RowSpan span = row_span<T>(params);
  const int num_threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  const BulkCopies copies = {reinterpret_cast<uint64_t*>(memory + params.barrier_offset_bytes)};
  copies.begin();
  wait_for_previous_grid();
  load_span<T>(span, copies, params.x, memory);
  load_span<T>(span, copies, params.side, y_memory);
  copies.wait();
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
  __syncthreads();
  store_span<T>(params, span, memory);
}

}  // namespace flowk
