// SPDX-License-Identifier: Apache-2.0
// The parameters of the elementwise kernels: plain values that elementwise.cuh or a plan fills in.
//
// A pack is a few neighbouring elements that one thread loads, computes and stores together. All operands of a kernel
// have packs of the same number of elements, 16 bytes of the widest operand or fewer.
#pragma once

#include "flowk/detail/divider.h"
#include "flowk/detail/sizes.h"

namespace flowk::detail {

// The version of the parameters' layout and meaning. flowk_functor_plan() refuses a kernel that was compiled with
// another version than the library's. Raise it, and FLOWK_FUNCTOR_PARAMS_VERSION, with every change of a struct, an
// enum or a constant of this file.
constexpr int elementwise_params_version = 4;

// Threads per block. Blocks that each write 4 KB once, in memory order, are as fast as a memcpy.
constexpr int elementwise_threads = 256;
// The most dimensions of a shape without the innermost one.
constexpr int elementwise_max_dims = 31;

// The kernels. The values are flowk_functor_launch::kernel.
enum class ElementwiseKernel : int32_t {
  contiguous,
  strided,
  broadcast,
  aligned_tiles,
  shifted_tiles,
  broadcast_rows,
};
constexpr int num_elementwise_kernels = 6;

// How a thread loads its pack of an operand, or stores it. A pack that is not whole, or that is cut by the end of a
// row, is moved element by element instead.
enum class ElementwiseAccess : int32_t {
  aligned,            // neighbours in memory, at a multiple of the pack's bytes
  shifted,            // neighbours in memory at any address: cut from the aligned accesses that hold them
  one_element,        // one element for the whole row
  gather,             // elements at a distance of `step`, one by one
  staged,             // through shared memory: the neighbours lie along another dimension
  staged_rows,        // through shared memory: neighbours in memory at any address
  number,             // one element, held in ElementwiseOperand::number
  repeated_packs,     // a run of `period` elements that repeats, and consists of whole aligned packs
  repeated_run,       // the same at any length and address
  repeated_table,     // the same from a copy in shared memory, which is a pack longer than the run
  repeated_elements,  // each element of a run `repeat` times, then the next one; after `period` elements the run
                      // repeats
};
constexpr int num_elementwise_accesses = 11;

// An operand's elements in memory. Steps and strides are in bytes.
struct ElementwiseOperand {
  unsigned char* data;  // the element with all indices 0; in contiguous kernels the first element of a whole pack
  const unsigned char* begin;  // the bytes of all elements lie in [begin, end)
  const unsigned char* end;
  int64_t step;           // between neighbours of the innermost dimension
  int32_t dtype;          // a flowk_dtype, where the kernel takes several
  int32_t element_shift;  // log2 of an element's bytes
  ElementwiseAccess access;
  int32_t is_linear;   // the elements follow one another in C order of the whole shape
  uint32_t number[2];  // the bytes of an element that is not in memory
};

// The whole packs of a linear out, operand 0. They are aligned in out and follow one another. The `num_edges` elements
// around them, `head` before and the others after, have one thread each.
struct LinearPacks {
  int64_t num_packs;
  int32_t head;
  int32_t num_edges;
  int32_t packs;  // per thread
};

// Parameters end with the operands: parameters of two operands are the first bytes of parameters of three.

// elementwise_contiguous: every operand is linear or one element.
template <int kOperands>
struct ContiguousElementwiseParams : LinearPacks {
  ElementwiseOperand operands[kOperands];
};

// A pack of repeated elements takes each of its bytes from spread_bytes neighbours, by an index of spread_index_bits.
// At any address, words of spread_load_bytes in all hold the neighbours.
constexpr int spread_bytes = 8, spread_index_bits = 4;
constexpr int spread_load_bytes = 12;

// If the blocks of repetitions take turns, this many neighbours have a turn. With packs of 16 elements they take no
// turns, because the kernel would be slower for all inputs.
constexpr uint32_t broadcast_group_blocks = 32;
constexpr int max_turns_pack_elements = 8;

// elementwise_broadcast: out is linear, and every input is linear, one element, or repeated: element i of out takes
// element (i / repeat) % period.
struct RepeatedOperand : ElementwiseOperand {
  Divider repeat;
  Divider period;
  uint32_t head;  // elements before the first pack
  // For a pack of 16 bytes whose different elements fit into 8 bytes: the largest number of these, or 0 if they do not
  // fit. For each byte of a pack that begins with the first repetition of an element: its index among the 8, in 4 bits.
  uint32_t spread_elements;
  uint32_t spread[4];
  int32_t table_offset;  // of a repeated_table in shared memory
  uint32_t table_elements;
};
template <int kOperands>
struct BroadcastElementwiseParams : LinearPacks {
  int32_t has_tables;
  // If an input repeats a run that is too long for the L2 cache, there are `num_runs` repetitions of `run_blocks`
  // blocks each. Groups of their blocks take turns, so that blocks that read the same part of the run follow one
  // another. Otherwise run_blocks is 0.
  uint32_t run_blocks;
  Divider num_runs;
  RepeatedOperand operands[kOperands];
};

// An operand in rows of the innermost dimension. For inputs of elementwise_strided `begin` and `end` are the first and
// the last address at which two accesses are within the operand.
struct StridedOperand : ElementwiseOperand {
  int64_t strides[elementwise_max_dims];  // along ElementwiseRows::dims
  // Along the dimension of a tile's rows: from row to row, and from the rows that a block computes at once to the next.
  int64_t row_stride;
  int64_t pass_stride;
  int64_t pack_stride;  // elementwise_strided: from pack to pack of a thread
  // Tiles: the operand's place in shared memory, the distance of its runs there, and the swizzle: byte offset b is
  // stored at b ^ (b >> swizzle_shift & swizzle_bits).
  int32_t shared_offset;
  int32_t pitch;
  int32_t swizzle_shift;
  int32_t swizzle_bits;
};

// The rows, in C order of the other dimensions. The dimension of a tile's rows is not one of these.
struct ElementwiseRows {
  Divider row_elements;
  Divider items_per_row;  // elementwise_strided: threads
  uint32_t num_items;     // threads of all rows
  int32_t packs;          // per thread; elementwise_broadcast_rows: one in each row
  // elementwise_strided: a thread's packs are this far apart, along their row or along the outermost dimension.
  int32_t pack_columns;
  int32_t pack_rows;
  // elementwise_strided: loads the sectors that a row's ends share with other data into the L2 cache before it writes
  // to them. A sector that was written in part leaves the cache slowly unless the cache holds all of it.
  int32_t prefetches_ends;
  int32_t num_dims;                    // at least 1: without other dimensions, dimension 0 has one index
  Divider dims[elementwise_max_dims];  // extents: the outermost dimension, then the others from the innermost on
};

// Tiles of one other dimension (rows) by the innermost one (columns). Staged inputs have their neighbours along the
// rows: shared memory holds `halo` + columns runs of them. If the packs of out are not aligned, the first pack of a row
// starts up to `halo` columns before the tile, at a sector of out; halo + 1 is a power of two, at most two packs.
struct ElementwiseTile {
  int32_t halo;
  Divider tiles_per_row;     // along the innermost dimension
  Divider tiles_per_column;  // along the other one
  uint32_t column_elements;  // extent of the other dimension
};

// elementwise_strided, elementwise_broadcast_rows and both kernels of tiles.
template <int kOperands>
struct StridedElementwiseParams {
  ElementwiseRows rows;
  ElementwiseTile tile;
  StridedOperand operands[kOperands];
};

// The tile of a block for packs of kN elements. A thread computes `rows_per_thread` packs. 2 are slower; 8 make
// fewer waves of blocks.
template <int kN>
struct ElementwiseTileShape {
  static constexpr int columns = kN >= 8 ? 128 : 16 * kN;
  static constexpr int rows_per_thread = 4;
  static constexpr int packs_per_row = columns / kN;
  static constexpr int rows_per_pass = elementwise_threads / packs_per_row;
  static constexpr int rows = rows_per_pass * rows_per_thread;
  // Neighbouring rows of one thread, whose elements share a word of a staged run of the widest operand.
  static constexpr int rows_per_word = kN < 8 ? 1 : kN / 4;
};

// Bytes from one run of an aligned tile to the next in shared memory: at least one line of all banks.
FLOWK_HOST_DEVICE constexpr int aligned_run_bytes(int rows, int element_bytes) {
  return rows * element_bytes < line_bytes ? line_bytes : rows * element_bytes;
}

// Elements of a repeated_table. A pack may start at the run's last element, and the words that it is cut from end after
// it.
FLOWK_HOST_DEVICE constexpr uint32_t table_elements_of(uint32_t run_elements, uint32_t pack_elements) {
  return run_elements + pack_elements + 4;
}

// Elements in a pack of elementwise_strided, at most.
constexpr int max_strided_pack_elements = 8;  // not measured

// The most packs per thread of a contiguous kernel: more would need more than 64 registers.
FLOWK_HOST_DEVICE constexpr int max_packs(int pack_elements, int num_inputs) {
  return pack_elements >= 16 || pack_elements * num_inputs > 16 ? 1 : 2;
}

#ifndef __CUDACC_RTC__

// The access of packs of `pack_bytes` that begin at `address` and follow one another.
inline ElementwiseAccess contiguous_access(int64_t address, int64_t pack_bytes) {
  if (address % (pack_bytes < 16 ? pack_bytes : 16) == 0) return ElementwiseAccess::aligned;
  return pack_bytes < 4 ? ElementwiseAccess::gather : ElementwiseAccess::shifted;
}

// The elements that pack 0 lacks at its front so that all others are aligned in out.
inline int32_t misalignment_of(const void* out, int32_t element_shift, int32_t pack_elements) {
  return static_cast<int32_t>((reinterpret_cast<uintptr_t>(out) >> element_shift) %
                              static_cast<uintptr_t>(pack_elements));
}

// An operand of `count` elements from `data` on, or of one element for all indices.
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
  operand.access = is_one_element ? ElementwiseAccess::one_element : ElementwiseAccess::aligned;
  operand.is_linear = !is_one_element;
  return operand;
}

// Divides `count` elements into whole packs and edges, and moves the linear operands to the first pack. `packs` is the
// wanted number of packs per thread. Returns the number of blocks.
template <template <int> class Params, int kOperands>
int64_t cut_into_packs(int64_t count, int32_t pack_elements, int32_t packs, Params<kOperands>* params,
                       int num_operands = kOperands) {
  const int32_t misalignment =
      misalignment_of(params->operands[0].data, params->operands[0].element_shift, pack_elements);
  int64_t head = (pack_elements - misalignment) % pack_elements;
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
    // The accesses that hold the first or the last pack may go past the operand's ends: those packs become edges.
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
