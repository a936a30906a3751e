// SPDX-License-Identifier: Apache-2.0
// What the elementwise kernels are told: plain values, filled in by elementwise.cuh or by a plan.
#pragma once

#include "flowk/divide.h"

namespace flowk {

// Threads a block: one-shot blocks of 4 KB an operand in memory order reach 1.00 of a memcpy (H200).
constexpr int elementwise_threads = 256;
// The most dimensions of a shape, besides the innermost one.
constexpr int elementwise_max_dims = 31;

// How a thread gets its pack of an operand. Where a pack is not whole, or is cut by the end of a row, its elements are
// moved one by one instead.
enum class ElementwiseAccess : int32_t {
  aligned,       // neighbours in memory, at a multiple of the pack's bytes
  shifted,       // neighbours in memory, at any place: cut from one access more
  splat,         // one element for the whole row
  gather,        // elements at a distance of `step`
  staged,        // through shared memory, because neighbours stand along another dimension
  number,        // one element, which stands in ElementwiseOperand::number itself
  cycled_packs,  // neighbours in memory, from the start again after `period`, which whole packs divide
  cycled,        // the same after any period
  cycled_table,  // the same after a short one: from a copy in shared memory, a pack longer than the period
  repeated,      // each element `repeat` times, then the next one, from the start again after `period` of them
};
constexpr int num_elementwise_accesses = 10;

// An operand's elements in memory. Steps and strides are in bytes.
struct ElementwiseOperand {
  unsigned char* data;         // the element with all indices 0
  const unsigned char* begin;  // all elements' bytes lie in [begin, end)
  const unsigned char* end;
  int64_t step;           // between neighbours of the innermost dimension
  int32_t dtype;          // a flowk_dtype, where the kernel takes several
  int32_t element_shift;  // log2 of an element's bytes
  ElementwiseAccess access;
  int32_t is_linear;   // its elements follow each other in C order of the whole shape
  uint32_t number[2];  // the bytes of an element, where there is no memory of it
};

// The flat form: all operands are linear or one element. Operand 0 is out.
template <int kOperands>
struct ElementwiseParams {
  ElementwiseOperand operands[kOperands];
  int64_t count;  // elements of out
  int32_t lead;   // elements that pack 0 lacks at its front, so that all others are aligned in out
  int32_t packs;  // that a thread owns, where its functor has packs_per_thread: 1 ... that many
};

// The periodic form: out is linear, and so is an input, or element i of it is element (i / repeat) % period.
struct ElementwisePeriod {
  Divider repeat;
  Divider period;
  uint32_t lead;         // a multiple of repeat * period, to be added to indices so that none is negative
  int32_t table_offset;  // of a cycled_table in shared memory
  uint32_t table_elements;
};
template <int kOperands>
struct PeriodicElementwiseParams : ElementwiseParams<kOperands> {
  ElementwisePeriod periods[kOperands];
  int32_t has_tables;
};

// The strided form: rows of the innermost dimension, in C order of the others.
template <int kOperands>
struct ElementwiseRows {
  Divider row_elements;
  Divider packs_per_row;               // where out is not linear: of the packs that a row may touch, at any alignment
  uint32_t num_packs;                  // where out is not linear: of all rows
  int32_t num_dims;                    // without the innermost one
  Divider dims[elementwise_max_dims];  // extents, innermost first
  int64_t strides[elementwise_max_dims][kOperands];
};

// A tile of `rows` x `columns` elements of one more dimension and the innermost one, for inputs that are staged: their
// neighbours stand along the rows. Shared memory holds each as `halo` + `columns` runs of `rows` elements. Where rows
// of out are not aligned, a row's packs start up to `halo` columns before the tile, so that they are.
template <int kOperands>
struct ElementwiseTile {
  int32_t rows;  // a power of two; 0: no tiles
  int32_t columns;
  int32_t halo;
  Divider tiles_per_row;     // along the innermost dimension
  Divider tiles_per_column;  // along the other one
  uint32_t column_elements;  // extent of the other dimension
  int64_t row_strides[kOperands];
  int32_t shared_offset[kOperands];
  int32_t pitch[kOperands];    // between runs in shared memory
  int32_t chunked[kOperands];  // runs stand at multiples of 16 bytes
};

template <int kOperands>
struct StridedElementwiseParams : ElementwiseParams<kOperands> {
  ElementwiseRows<kOperands> rows;
  ElementwiseTile<kOperands> tile;
};

// Tiles whose rows of out and staged runs are aligned, by a pack's elements: a block of elementwise_threads owns one in
// a single pass, a thread `rows_per_thread` packs of 16 bytes of the widest operand.
template <int kN>
struct AlignedTile {
  static constexpr int columns = kN >= 8 ? 128 : 16 * kN;
  static constexpr int rows_per_thread = kN == 2 ? 2 : 4;
  static constexpr int packs_per_row = columns / kN;
  static constexpr int row_groups = elementwise_threads / packs_per_row;
  static constexpr int rows = row_groups * rows_per_thread;
  // Neighbours among a thread's rows, which stand in one word of a staged run of the widest operand.
  static constexpr int rows_per_word = kN < 8 ? 1 : kN / 4;
};

#ifndef __CUDACC_RTC__

// Packs that a thread owns of `num_packs`, of a functor of up to `most`: one where the grid would not fill a GPU with
// 132 multiprocessors several times over.
constexpr int32_t packs_of(int64_t num_packs, int32_t most) { return num_packs < (int64_t{1} << 21) ? 1 : most; }

// How packs of `pack_bytes` of an operand with neighbours in memory are loaded, the first of which stands at `address`.
inline ElementwiseAccess contiguous_access(int64_t address, int64_t pack_bytes) {
  if (address % (pack_bytes < 16 ? pack_bytes : 16) == 0) return ElementwiseAccess::aligned;
  return pack_bytes < 4 ? ElementwiseAccess::gather : ElementwiseAccess::shifted;
}

// The elements that pack 0 lacks at its front, so that the others stand at multiples of a pack's bytes in out.
inline int32_t lead_of(const void* out, int32_t element_shift, int32_t pack_elements) {
  return static_cast<int32_t>((reinterpret_cast<uintptr_t>(out) >> element_shift) %
                              static_cast<uintptr_t>(pack_elements));
}

// Operand of the flat form: `count` elements from `data` on, or one element for all.
inline ElementwiseOperand flat_operand(const void* data, int64_t count, bool is_one_element, int32_t dtype,
                                       int32_t element_shift, int32_t pack_elements, int32_t lead) {
  const int64_t element_bytes = int64_t{1} << element_shift;
  ElementwiseOperand operand = {};
  operand.data = static_cast<unsigned char*>(const_cast<void*>(data));
  operand.begin = operand.data;
  operand.end = operand.data + (is_one_element ? 1 : count) * element_bytes;
  operand.step = is_one_element ? 0 : element_bytes;
  operand.dtype = dtype;
  operand.element_shift = element_shift;
  operand.access = is_one_element ? ElementwiseAccess::splat
                                  : contiguous_access(reinterpret_cast<intptr_t>(data) - lead * element_bytes,
                                                      pack_elements * element_bytes);
  operand.is_linear = !is_one_element;
  return operand;
}

#endif

}  // namespace flowk
