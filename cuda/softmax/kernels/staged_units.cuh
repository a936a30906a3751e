// SPDX-License-Identifier: Apache-2.0
// Units of 4 columns in shared memory: a thread's units of one row, which may start and end inside a unit.
#pragma once

#include "core/vector.cuh"
#include "softmax/kernels/staged_segment.cuh"

namespace flowk::softmax {

// 4 neighbouring columns, aligned to their bytes.
constexpr int unit_columns = staged_unit_columns;
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
  // From an address that is a multiple of an element's bytes. May read up to 4 bytes more on both sides.
  static __device__ __forceinline__ Unit load_anywhere(const unsigned char* address) {
    Unit unit;
    const auto shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(address)) & 3;
    const uint32_t* const from = reinterpret_cast<const uint32_t*>(address - shift);
    uint32_t word = from[0];
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) {
      if constexpr (sizeof(T) == 4) {
        unit.words[i] = from[i];
      } else {
        const uint32_t next = from[i + 1];
        unit.words[i] = __funnelshift_r(word, next, 8 * shift);
        word = next;
      }
    }
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
  __device__ __forceinline__ void widen(float* values) const { widen_words<T>(words, values); }
  static __device__ __forceinline__ Unit from(const float* values) {
    Unit unit;
    narrow_words<T>(values, unit.words);
    return unit;
  }
  static __device__ __forceinline__ Unit of(uint32_t word) {
    Unit unit;
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) unit.words[i] = word;
    return unit;
  }
  __device__ __forceinline__ void take_if(bool condition, const Unit& other) {
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) {
      const uint32_t word = other.words[i];
      words[i] = condition ? word : words[i];
    }
  }
  // Takes the bits of `other` that the mask has.
  __device__ __forceinline__ void select(const uint32_t (&mask)[unit_words<T>], uint32_t other) {
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) words[i] = (words[i] & ~mask[i]) | (other & mask[i]);
  }
};

// The units of one thread. A row is read as the aligned units that contain it, dealt to `lanes` threads in turn; its
// first and last unit may have columns of neighbouring rows. A thread has units_per_thread units or one less, kMin
// <= units_per_thread <= kMax.
template <class T, int kMax, int kMin>
struct ThreadUnits {
  static_assert(kMin >= 3);
  int first;      // byte of shared memory
  int step;       // bytes
  int max_units;  // of any thread
  int num_units;  // 0: there is no such row
  int phase;      // columns of the row's first unit that belong to the row before
  int before;     // the same for this thread's first unit
  int left;       // columns of the last unit up to the row's end, or more than it has

  __device__ __forceinline__ ThreadUnits(const SoftmaxParams& params, const StagedRows& staged,
                                         const RowSegment& segment, int row_in_block, int lane) {
    const int lanes = params.lanes_per_row;
    const int start = segment.shift + row_in_block * params.columns * static_cast<int>(sizeof(T));
    const int misaligned = start & (unit_bytes<T> - 1);
    phase = misaligned / static_cast<int>(sizeof(T));
    const int columns = phase + params.columns;
    const int row_units = (columns + unit_columns - 1) / unit_columns;
    first = start - misaligned + lane * unit_bytes<T>;
    step = lanes * unit_bytes<T>;
    max_units = staged.units_per_thread;
    num_units = row_in_block < segment.num_rows ? (row_units - lane + lanes - 1) >> params.rows_shift : 0;
    before = lane == 0 ? phase : 0;
    left = columns - unit_columns * (lane + lanes * (num_units - 1));
  }
  // Does some thread of the grid, or this one, have an i-th unit?
  __device__ __forceinline__ bool any_has(int i) const { return i < kMin || i < max_units; }
  __device__ __forceinline__ bool has(int i) const { return i < kMin - 1 || i < num_units; }
  __device__ __forceinline__ int at(int i) const { return first + i * step; }

  __device__ __forceinline__ void load(const unsigned char* memory, Unit<T> (&units)[kMax]) const {
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!any_has(i)) break;
      units[i] = has(i) ? Unit<T>::load(memory + at(i)) : Unit<T>::of(0u);
    }
  }

  // Loads the same columns of another row in shared memory; `from` is the column of the first unit's first one.
  __device__ __forceinline__ void load_same_columns(const unsigned char* from, Unit<T> (&units)[kMax]) const {
    const bool is_aligned = (reinterpret_cast<uintptr_t>(from) & (unit_bytes<T> - 1)) == 0;
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!any_has(i)) break;
      units[i] = !has(i)      ? Unit<T>::of(0u)
                 : is_aligned ? Unit<T>::load(from + i * step)
                              : Unit<T>::load_anywhere(from + i * step);
    }
  }

  // Word i of a unit's bit mask: 1 from column `columns` on.
  static __device__ __forceinline__ uint32_t ones_past(int columns, int i) {
    const int shift = columns * 8 * static_cast<int>(sizeof(T)) - 32 * i;
    return ones_from(shift > 0 ? shift : 0);
  }

  // Sets columns of other rows, and units that this thread does not have, to `word`.
  __device__ __forceinline__ void clear_others(const StagedRows& staged, Unit<T> (&units)[kMax], uint32_t word) const {
#pragma unroll
    for (int i = kMin - 1; i < kMax; ++i) {
      if (!any_has(i)) break;
      if (!has(i)) units[i] = Unit<T>::of(word);
    }
    if (!staged.has_unit_edges) return;
    uint32_t head[unit_words<T>], tail[unit_words<T>];
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) {
      head[i] = ~ones_past(before, i);
      tail[i] = ones_past(left, i);
    }
    units[0].select(head, word);
    if constexpr (kMin == kMax) {
      if (num_units == kMax)
        units[kMax - 1].select(tail, word);
      else
        units[kMax - 2].select(tail, word);
    } else {
#pragma unroll
      for (int i = kMin - 2; i < kMax; ++i) {
        if (!any_has(i)) break;
        // By masks: with a branch the compiler moves the units to local memory.
        uint32_t own_tail[unit_words<T>];
#pragma unroll
        for (int j = 0; j < unit_words<T>; ++j) own_tail[j] = i == num_units - 1 ? tail[j] : 0u;
        units[i].select(own_tail, word);
      }
    }
  }

  // The same for columns outside the row's interval; units[0] starts at column first_column of the row.
  __device__ __forceinline__ void clear_outside(const SoftmaxParams& params, const SoftmaxRow& row, int first_column,
                                                Unit<T> (&units)[kMax], uint32_t word) const {
    const auto clear = [&](int i, int columns, uint32_t inverted) {
      uint32_t outside[unit_words<T>];
#pragma unroll
      for (int w = 0; w < unit_words<T>; ++w)
        outside[w] = inverted ^ ones_past(columns - first_column - i * params.lanes_per_row * unit_columns, w);
      units[i].select(outside, word);
    };
    clear(0, row.begin, ~0u);
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!any_has(i)) break;
      clear(i, row.end, 0u);
    }
    if (row.begin <= 0) return;
#pragma unroll
    for (int i = 1; i < kMax; ++i) {
      if (!any_has(i)) break;
      clear(i, row.begin, ~0u);
    }
  }

  // Sets columns of other rows, masked columns and units that this thread does not have to `word`.
  __device__ __forceinline__ void clear_masked(const SoftmaxParams& params, const StagedRows& staged,
                                               const SoftmaxRow& row, int first_column, Unit<T> (&units)[kMax],
                                               uint32_t word) const {
    if (params.interval.exists)
      clear_outside(params, row, first_column, units, word);
    else
      clear_others(staged, units, word);
  }

  // Stores the row's columns. Call it after a barrier: other threads read the neighbouring columns of the same units.
  __device__ __forceinline__ void store(const StagedRows& staged, const Unit<T> (&units)[kMax],
                                        unsigned char* memory) const {
    if (num_units == 0) return;
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!any_has(i)) break;
      const bool is_whole =
          (i > 0 || before == 0) && (i < kMin - 2 || i < num_units - 1 || (i == num_units - 1 && left >= unit_columns));
      if (is_whole) units[i].store(memory + at(i));
    }
    if (!staged.has_unit_edges) return;
    if (before > 0) units[0].store_columns(memory + first, before, unit_columns);
    if (left < unit_columns) {
      Unit<T> last = units[kMin - 2];
#pragma unroll
      for (int i = kMin - 1; i < kMax; ++i) {
        if (!any_has(i)) break;
        last.take_if(i == num_units - 1, units[i]);
      }
      last.store_columns(memory + at(num_units - 1), 0, left);
    }
  }
};

// Sets the columns of a unit whose mask bytes are nonzero to -infinity; the bytes start at byte first_byte of words[0].
template <class T>
__device__ __forceinline__ void mask_unit(Unit<T>* unit, const uint32_t* words, int first_byte) {
  const uint32_t masked = nonzero_bytes(__funnelshift_r(words[0], words[1], static_cast<unsigned>(first_byte) * 8));
  uint32_t mask[unit_words<T>];
#pragma unroll
  for (int i = 0; i < unit_words<T>; ++i)
    mask[i] = spread_top_bits(masked, sizeof(T) == 4 ? i * 0x1111u : i == 0 ? 0x1100u : 0x3322u);
  unit->select(mask, infinity_word<T>);
}

}  // namespace flowk::softmax
