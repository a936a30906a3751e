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
  // From `shift` bits after the start of a word. Reads one word more.
  static __device__ __forceinline__ Unit load_shifted(const unsigned char* address, unsigned shift) {
    Unit unit;
    const uint32_t* const from = reinterpret_cast<const uint32_t*>(address);
    uint32_t word = from[0];
#pragma unroll
    for (int i = 0; i < unit_words<T>; ++i) {
      if constexpr (sizeof(T) == 4) {
        unit.words[i] = from[i];
      } else {
        const uint32_t next = from[i + 1];
        unit.words[i] = __funnelshift_r(word, next, shift);
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

// A number that the compiler keeps in a register, rather than compute it again for each use.
__device__ __forceinline__ int held(int number) {
#ifndef FLOWK_SIMT
  asm volatile("" : "+r"(number));
#endif
  return number;
}

// Word i of a unit's bit mask: 1 from column `columns` on.
template <class T>
__device__ __forceinline__ uint32_t ones_past(int columns, int i) {
  const int shift = columns * 8 * static_cast<int>(sizeof(T)) - 32 * i;
  return ones_from(shift > 0 ? shift : 0);
}

// The units of one thread. A row is read as the aligned units that contain it, dealt to `lanes` threads in turn, so
// that the row's last unit is the last unit of the last thread. All threads have units_per_thread units, kMin <=
// units_per_thread <= kMax, but the threads before the row's first unit have no first one. The row's first unit is the
// first or the second unit of its thread. The first and the last unit of a row may have columns of neighbouring rows.
template <class T, int kMax, int kMin>
struct ThreadUnits {
  static_assert(kMin >= 3);
  int first;  // byte of shared memory of the first unit
  int step;   // bytes
  int step_columns;
  int last;             // the index of the last unit
  int first_column;     // of the first unit; below 0: columns before the row
  int left;             // columns of the last unit up to the row's end, or more than it has
  bool exists;          // is there such a row?
  bool may_start_late;  // may the second unit of a thread be a row's first one?

  __device__ __forceinline__ ThreadUnits(const SoftmaxParams& params, const StagedRows& staged,
                                         const RowSegment& segment, int row_in_block, int lane) {
    const int lanes = params.lanes_per_row, units = staged.units_per_thread;
    const int start = segment.shift + row_in_block * params.columns * static_cast<int>(sizeof(T));
    const int misaligned = start & (unit_bytes<T> - 1);
    const int phase = misaligned / static_cast<int>(sizeof(T));
    const int row_units = (phase + params.columns + unit_columns - 1) / unit_columns;
    const int first_unit = lane + row_units - lanes * units;
    first = held(start - misaligned + first_unit * unit_bytes<T>);
    step = lanes * unit_bytes<T>;
    step_columns = lanes * unit_columns;
    last = units - 1;
    first_column = held(first_unit * unit_columns - phase);
    left = params.columns - first_column - last * step_columns;
    exists = row_in_block < segment.num_rows;
    may_start_late = params.columns <= last * step_columns;
  }
  // Do the threads have an i-th unit? Only the first one may be missing in some of them.
  __device__ __forceinline__ bool any_has(int i) const { return i < kMin || i <= last; }
  __device__ __forceinline__ bool has(int i) const { return i > 0 || first_column > -unit_columns; }
  __device__ __forceinline__ bool is_last(int i) const { return i >= kMin - 1 && i == last; }
  __device__ __forceinline__ int at(int i) const { return first + i * step; }
  __device__ __forceinline__ int column(int i) const { return first_column + i * step_columns; }

  __device__ __forceinline__ void load(const unsigned char* memory, Unit<T> (&units)[kMax]) const {
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!any_has(i)) break;
      units[i] = has(i) ? Unit<T>::load(memory + at(i)) : Unit<T>::of(0u);
    }
  }

  // Loads the same columns of another row in shared memory; `from` is the column of the first unit's first one.
  __device__ __forceinline__ void load_same_columns(const unsigned char* from, Unit<T> (&units)[kMax]) const {
    const auto load_units = [&](auto load) {
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        if (!any_has(i)) break;
        units[i] = has(i) ? load(i * step) : Unit<T>::of(0u);
      }
    };
    if ((reinterpret_cast<uintptr_t>(from) & (unit_bytes<T> - 1)) == 0) {
      load_units([&](int offset) { return Unit<T>::load(from + offset); });
    } else {
      const auto shift = static_cast<unsigned>(reinterpret_cast<uintptr_t>(from)) & 3;
      load_units([&](int offset) { return Unit<T>::load_shifted(from - shift + offset, 8 * shift); });
    }
  }

  // Units of a thread, and the word that their masked columns get.
  struct Cleared {
    Unit<T> (&units)[kMax];
    uint32_t word;
    __device__ __forceinline__ void select(int i, const uint32_t (&mask)[unit_words<T>]) const {
      units[i].select(mask, word);
    }
  };

  // Sets columns of other rows, and units that this thread does not have.
  template <class... C>
  __device__ __forceinline__ void clear_others(const StagedRows& staged, const C&... cleared) const {
    if (!staged.has_unit_edges) {
      (cleared.units[0].take_if(!has(0), Unit<T>::of(cleared.word)), ...);
      return;
    }
    uint32_t mask[unit_words<T>];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i == 1 && !may_start_late) break;
#pragma unroll
      for (int w = 0; w < unit_words<T>; ++w) mask[w] = ~ones_past<T>(-column(i), w);
      (cleared.select(i, mask), ...);
    }
    // By masks: with a branch the compiler moves the units to local memory.
#pragma unroll
    for (int i = kMin - 1; i < kMax; ++i) {
      if (!any_has(i)) break;
#pragma unroll
      for (int w = 0; w < unit_words<T>; ++w) mask[w] = is_last(i) ? ones_past<T>(left, w) : 0u;
      (cleared.select(i, mask), ...);
    }
  }

  // Sets columns outside the row's interval.
  template <class... C>
  __device__ __forceinline__ void clear_outside(const SoftmaxRow& row, const C&... cleared) const {
    const auto clear = [&](int i, int columns, uint32_t inverted) {
      uint32_t outside[unit_words<T>];
#pragma unroll
      for (int w = 0; w < unit_words<T>; ++w) outside[w] = inverted ^ ones_past<T>(columns - column(i), w);
      (cleared.select(i, outside), ...);
    };
    clear(0, row.begin, ~0u);
    clear(1, row.begin, ~0u);
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!any_has(i)) break;
      clear(i, row.end, 0u);
    }
    if (row.begin <= 0) return;
#pragma unroll
    for (int i = 2; i < kMax; ++i) {
      if (!any_has(i)) break;
      clear(i, row.begin, ~0u);
    }
  }

  // Sets columns of other rows, masked columns and units that this thread does not have.
  template <class... C>
  __device__ __forceinline__ void clear_masked(const SoftmaxParams& params, const StagedRows& staged,
                                               const SoftmaxRow& row, const C&... cleared) const {
    if (params.interval.exists)
      clear_outside(row, cleared...);
    else
      clear_others(staged, cleared...);
  }

  // Stores the row's columns. Call it after a barrier: other threads read the neighbouring columns of the same units.
  __device__ __forceinline__ void store(const StagedRows& staged, const Unit<T> (&units)[kMax],
                                        unsigned char* memory) const {
    if (!exists) return;
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (!any_has(i)) break;
      const bool is_whole = i < 2 ? column(i) >= 0 : !is_last(i) || left >= unit_columns;
      if (is_whole) units[i].store(memory + at(i));
    }
    if (!staged.has_unit_edges) return;
    const int head = has(0) ? 0 : 1;
    if (column(head) < 0) {
      Unit<T> unit = units[1];
      unit.take_if(head == 0, units[0]);
      unit.store_columns(memory + at(head), -column(head), unit_columns);
    }
    if (left < unit_columns) {
      Unit<T> unit = units[kMin - 1];
#pragma unroll
      for (int i = kMin; i < kMax; ++i) {
        if (!any_has(i)) break;
        unit.take_if(is_last(i), units[i]);
      }
      unit.store_columns(memory + at(last), 0, left);
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
