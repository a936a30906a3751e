// SPDX-License-Identifier: Apache-2.0
// What the elementwise kernels are told: plain values, filled in by elementwise.cuh or by a plan.
#pragma once

#include "flowk/detail/divider.h"

namespace flowk::detail {

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
  staged_rows,   // through shared memory, neighbours in memory at any place
  number,        // one element, which stands in ElementwiseOperand::number itself
  cycled_packs,  // neighbours in memory, from the start again after `period`, which whole packs divide
  cycled,        // the same after any period
  cycled_table,  // the same after a short one: from a copy in shared memory, a pack longer than the period
  repeated,      // each element `repeat` times, then the next one, from the start again after `period` of them
};
constexpr int num_elementwise_accesses = 11;

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

// The flat form: all operands are linear or one element. Operand 0 is out. `data` of linear operands is the place of
// the first whole pack, which is aligned in out; packs follow one another, and `num_edges` elements have a thread each:
// `head` before the packs, the others after them.
template <int kOperands>
struct ElementwiseParams {
  ElementwiseOperand operands[kOperands];
  int64_t num_packs;
  int32_t head;
  int32_t num_edges;
  int32_t packs;  // that a thread owns
};

// The words that hold 8 bytes at any place.
constexpr int window_bytes = 12;

// The periodic form: out is linear, and so is an input, or element i of it is element (i / repeat) % period.
struct ElementwisePeriod {
  Divider repeat;
  Divider period;
  uint32_t head;  // elements before the first pack
  // Where an element repeats within a pack of 16 bytes: the elements that a pack may have, if they are 8 bytes at the
  // most, and the places of its bytes among those 8, of 4 bits each, for a pack that begins with an element's first.
  uint32_t window_elements;
  uint32_t spread[4];
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

// Tiles of rows of one more dimension and columns of the innermost one, for inputs that are staged: their neighbours
// stand along the rows. Shared memory holds each as `halo` + columns runs of rows. Where rows of out are not aligned, a
// row's packs start up to `halo` columns before the tile, so that they are: halo + 1 is a power of two then.
template <int kOperands>
struct ElementwiseTile {
  int32_t halo;
  Divider tiles_per_row;     // along the innermost dimension
  Divider tiles_per_column;  // along the other one
  uint32_t column_elements;  // extent of the other dimension
  int64_t row_strides[kOperands];
  int32_t walked_rows;              // of a thread, where there are no tiles but columns of packs
  int64_t pass_strides[kOperands];  // of as many rows as a block's threads walk at once
  int32_t shared_offset[kOperands];
  // Of tiles of any alignment: between runs in shared memory, and the bits of a place that its vector is XORed with.
  int32_t pitch[kOperands];
  int32_t swizzle_shift[kOperands];
  int32_t swizzle_bits[kOperands];
};

template <int kOperands>
struct StridedElementwiseParams {
  ElementwiseOperand operands[kOperands];
  int64_t count;  // elements of out
  int32_t lead;   // where out is linear: elements that pack 0 lacks at its front, so that all others are aligned
  ElementwiseRows<kOperands> rows;
  ElementwiseTile<kOperands> tile;
};

// A block's tile, by a pack's elements: a thread owns `rows_per_thread` packs of 16 bytes of the widest operand. Of any
// alignment, 2 packs reach 0.53-0.67 of a copy, 4 0.65-0.83, 8 0.61-0.84, and fewer waves of blocks.
template <int kN>
struct ElementwiseTileShape {
  static constexpr int columns = kN >= 8 ? 128 : 16 * kN;
  static constexpr int rows_per_thread = 4;
  static constexpr int packs_per_row = columns / kN;
  static constexpr int rows_per_pass = elementwise_threads / packs_per_row;
  static constexpr int rows = rows_per_pass * rows_per_thread;
  // Neighbours among a thread's rows, which stand in one word of a staged run of the widest operand.
  static constexpr int rows_per_word = kN < 8 ? 1 : kN / 4;
};

// What runs and rows of tiles of any alignment stand in shared memory modulo, as they do in memory: of a sector, so
// that it is read at once.
constexpr int sector_bytes = 32;

// Packs that a thread of a linear out owns at the most: more would take more than 64 registers.
FLOWK_HOST_DEVICE constexpr int most_packs(int pack_elements, int num_inputs) {
  return pack_elements >= 16 || pack_elements * num_inputs > 16 ? 1 : 2;
}

#ifndef __CUDACC_RTC__

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

// An operand of `count` elements from `data` on, or of one element for all.
inline ElementwiseOperand linear_operand(const void* data, int64_t count, bool is_one_element, int32_t dtype,
                                         int32_t element_shift) {
  const int64_t element_bytes = int64_t{1} << element_shift;
  ElementwiseOperand operand = {};
  operand.data = static_cast<unsigned char*>(const_cast<void*>(data));
  operand.begin = operand.data;
  operand.end = operand.data + (is_one_element ? 1 : count) * element_bytes;
  operand.step = is_one_element ? 0 : element_bytes;
  operand.dtype = dtype;
  operand.element_shift = element_shift;
  operand.access = is_one_element ? ElementwiseAccess::splat : ElementwiseAccess::aligned;
  operand.is_linear = !is_one_element;
  return operand;
}

// Cuts `count` elements into whole packs and edges, and brings the linear operands to the first pack. `packs` is what a
// thread is to own. Returns the blocks that it takes.
template <int kOperands>
int64_t cut_into_packs(int64_t count, int32_t pack_elements, int32_t packs, ElementwiseParams<kOperands>* params,
                       int num_operands = kOperands) {
  const int32_t lead = lead_of(params->operands[0].data, params->operands[0].element_shift, pack_elements);
  int64_t head = (pack_elements - lead) % pack_elements;
  if (head > count) head = count;
  int64_t num_packs = (count - head) / pack_elements;
  bool is_shifted = false, reads_before = false, reads_after = false;
  for (int k = 0; k < num_operands; ++k) {
    ElementwiseOperand& operand = params->operands[k];
    if (!operand.is_linear) continue;
    const int64_t pack_bytes = int64_t{pack_elements} << operand.element_shift;
    const int64_t width = pack_bytes < 16 ? pack_bytes : 16;
    const int64_t shift = (reinterpret_cast<intptr_t>(operand.data) + (head << operand.element_shift)) % width;
    operand.access = shift == 0 ? ElementwiseAccess::aligned : ElementwiseAccess::shifted;
    if (shift == 0) continue;
    is_shifted = true;
    if (pack_bytes < 4) continue;
    // The accesses that hold the first pack, or the last one, may go past the operand's ends.
    reads_before |= (head << operand.element_shift) < shift;
    reads_after |= ((count - head - num_packs * pack_elements) << operand.element_shift) < width - shift;
  }
  if (reads_before && num_packs > 0) {
    head += pack_elements;
    --num_packs;
  }
  if (reads_after && num_packs > 0) --num_packs;
  for (int k = 0; k < num_operands; ++k)
    if (params->operands[k].is_linear) params->operands[k].data += head << params->operands[k].element_shift;
  params->num_packs = num_packs;
  params->head = static_cast<int32_t>(head);
  params->num_edges = static_cast<int32_t>(count - num_packs * pack_elements);
  params->packs = is_shifted ? 1 : packs;
  const int64_t block_items = int64_t{elementwise_threads} * params->packs;
  return (num_packs + params->num_edges + block_items - 1) / block_items;
}

#endif

}  // namespace flowk::detail
