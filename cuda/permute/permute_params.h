// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of permute. All strides and steps are in bytes.
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "core/iteration_space.h"

namespace flowk::permute {

constexpr int64_t vector_bytes = 16;  // the widest access of one thread

// A dimension of the rows of a copy, innermost first.
struct CopyDim {
  Divider divider;     // where the index of a unit fits 31 bits
  int64_t extent = 0;  // otherwise
  int64_t src_stride = 0;
  int64_t dst_stride = 0;
  friend bool operator==(const CopyDim&, const CopyDim&) = default;
};

struct CopyParams {
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  const unsigned char* src_end = nullptr;  // one past the last byte of src's elements
  int64_t num_units = 0;           // of all rows: of unit_bytes each, or of 16-byte vectors that a dst row may touch
  Divider units_per_row;           // used where rank > 0, and only where the index of a unit fits 31 bits
  int64_t wide_units_per_row = 0;  // otherwise
  int64_t row_bytes = 0;
  int32_t rank = 0;         // dimensions of the rows; 0: one row
  bool wide_index = false;  // 2^31 units and more
  CopyDim dims[max_rank];
  friend bool operator==(const CopyParams&, const CopyParams&) = default;
};

// One dimension that a tile index is taken apart into, innermost first: a step is one tile along it.
struct GridDim {
  Divider divider;
  int64_t src_step = 0;
  int64_t dst_step = 0;
  int32_t src_blocks = 0;  // of the cut dimensions: 1 where this is the one
  int32_t dst_blocks = 0;
  friend bool operator==(const GridDim&, const GridDim&) = default;
};

// One dimension of the rows of a tile on either side, innermost first.
struct TileRowDim {
  Divider divider;          // by the rows' extent along it
  int32_t shared_step = 0;  // between neighbours in shared memory
  int64_t stride = 0;       // between neighbours in src (source rows) or dst (destination rows)
  friend bool operator==(const TileRowDim&, const TileRowDim&) = default;
};

// A step over rows of one or two dimensions, and what comes on top where it leaves the innermost one's end behind.
struct TileRowPass {
  int64_t step = 0;  // bytes in src or dst
  int32_t shared_step = 0;
  uint32_t innermost = 0;     // indices of the innermost dimension
  uint32_t end = UINT32_MAX;  // its extent; of one dimension no end
  int32_t wrap_shared_step = 0;
  int64_t wrap_step = 0;
  friend bool operator==(const TileRowPass&, const TileRowPass&) = default;
};

// One dimension of the destination run, innermost first.
struct TileTableDim {
  Divider divider;
  int32_t shared_step = 0;
  friend bool operator==(const TileTableDim&, const TileTableDim&) = default;
};

// Offsets in shared memory, of which the gathers keep two in a word: a tile and its table take less than 64 KB.
using TileTableEntry = uint16_t;
constexpr int64_t max_tile_span_bytes = 65536;
constexpr int64_t dst_row_bytes = 16;  // of an entry of the table of destination rows
constexpr int64_t tile_offsets_bytes = 32;

// The most dimensions that the rows of one side, or a run, are made of.
constexpr int max_tile_dims = 8;

// How many rows, bytes or elements of a tile lie inside the tensor: `per_index` for each index of a cut dimension that
// does.
struct TileCount {
  enum Cut : int32_t { whole, of_src_cut, of_dst_cut };
  int32_t per_index = 0;
  Cut cut = whole;
  int32_t shift = 0;  // the product is divided by 2^shift: rows in groups
  friend bool operator==(const TileCount&, const TileCount&) = default;
};

// A tile is a box of elements. In src it is `src_rows` rows of one contiguous run each, in dst `dst_rows` rows of
// another: the source run is made of the dimensions that src has innermost, the destination run of those that dst has
// innermost, and the rows of a side of what the other side's run has besides. Only the outermost dimension of each run
// is cut into blocks; at the tensor's edge its last block is shorter, and the tile has fewer rows on one side and
// shorter runs on the other. Where both runs are whole and short, further dimensions are rows on both sides.
struct TileParams {
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  const unsigned char* src_end = nullptr;  // one past the last byte of src's elements
  int32_t grid_rank = 0;
  int32_t tile_offsets_offset_bytes = 0;  // of what a block's threads know of its tile together, in shared memory

  // The cut dimensions, as blocks; one block where there is none.
  int32_t num_src_blocks = 1;
  int32_t num_dst_blocks = 1;
  int32_t src_block = 1;
  int32_t dst_block = 1;
  int32_t src_last_block = 1;       // indices of the last block
  int32_t dst_last_end = 1;         // the same with the halo, which may leave the last block with less than that
  int32_t dst_second_last_end = 1;  // and the one before it with less than all
  int32_t halo = 0;  // indices of dst's cut dimension before the block, so that rows can start on a granule
  TileCount src_run_bytes;
  TileCount src_rows;
  TileCount dst_run_elements;
  TileCount dst_rows;  // or groups of as many as one thread stores together

  // Loading: item = (source row, vector of its run).
  Divider vectors_per_src_row;
  uint32_t src_rows_per_pass = 0;  // rows that the threads of a block load at once
  int32_t src_row_rank = 0;
  bool src_row_is_wide = false;  // a row has more vectors than a block threads
  bool has_plain_rows = false;   // aligned_tile: rows of one dimension on both sides, no wider than a block, no halo
  // Bits 4-6 of a offset in shared memory are XORed with, in aligned_tile, (source row >> shift) * step & bits, in
  // general_tile with (offset >> shift) & bits.
  int32_t swizzle_shift = 0;
  uint32_t swizzle_step = 0;
  int32_t swizzle_bits = 0;        // 0: no swizzle
  uint32_t shift_mask = 0;         // bytes of src modulo which shared addresses agree with global ones, less 1
  int32_t shared_lead_bytes = 0;   // from the start of shared memory to source row 0: < 0 where rows are skipped
  TileRowPass src_pass;            // from one pass to the next
  int64_t src_tile_bytes = 0;      // from a whole tile's start past the last vector that it loads
  int64_t src_element_stride = 0;  // strided_tile: bytes between elements of the source run

  // Storing: item = (group of vectors, destination row, vector in the group).
  uint32_t num_store_vectors = 0;     // of a row, in whole groups
  uint32_t store_items_per_pass = 0;  // (group, row) pairs that the threads of a block take at once
  uint32_t store_pass_vectors = 0;    // from one pass to the next
  uint32_t store_pass_rows = 0;
  Divider vectors_per_group;  // vectors of one row that neighbouring threads store; strided_tile: elements of the run
  Divider num_dst_rows;       // of a whole tile
  int32_t dst_row_rank = 0;
  int32_t rows_offset_bytes = 0;  // of the table of destination rows in shared memory
  int64_t dst_row_step = 0;  // between destination rows that one thread stores together (elements of 1 and 2 bytes)
  int64_t dst_element_stride = 0;  // strided_tile: bytes between elements of the destination run
  int32_t dst_granule = 16;        // the bytes that a destination row's vectors are aligned to
  int32_t window_start_bytes = 0;  // of the halo
  int32_t window_bytes = 0;        // of a destination row without the halo
  int32_t window_end = 0;          // its elements with the halo
  uint32_t window_mask = 0;        // the granule that rows of a tile with a halo end on, less 1
  int32_t skipped_elements = 0;    // the first of the halo, which no row needs and no block loads
  int32_t skipped_src_rows = 0;    // the source rows of those

  // Where element e of the destination run stands in shared memory: e * run_pitch, or by the table (table_rank > 0).
  int32_t run_pitch = 0;
  int32_t table_rank = 0;
  uint32_t num_table_entries = 0;
  Divider table_period;            // elements after which offsets repeat
  int32_t period_step = 0;         // bytes further on in shared memory
  int32_t table_offset_bytes = 0;  // of the table in shared memory

  // byte_tile. Item = (16 columns, word of the destination run): 4 source rows, by 16 of their bytes. The columns
  // of word w start ((w >> skew_shift) & skew_mask) words to the left. Destination rows take the offset of the source
  // rows in shared memory.
  Divider words_per_run;  // of 4 elements
  uint32_t num_word_items = 0;
  int32_t skew_shift = 0;
  uint32_t skew_mask = 0;
  int32_t columns_pitch = 0;        // between destination rows in shared memory
  bool src_rows_are_words = false;  // they start as far inside a word as each other, and the tile's columns there
  int32_t rotation_shift = 0;       // of an element: threads take words in turns
  bool dst_rows_have_ends = false;  // they do not start and end on vectors
  // Destination runs that lie one after the other in dst are one destination row: of run_join's divisor, or where the
  // dimension that they follow along is cut of as many as the tile has columns over that.
  Divider run_join;
  bool joins_src_cut = false;
  Divider joined_run_bytes;    // used where rows have several runs
  int32_t joined_run_gap = 0;  // in shared memory, from the end of one to the next; 0: rows have one

  // Parameters come from memory line by line, and a line that is asked for late is waited for: what stores need stands
  // close to all else, and what only loads need, which is asked for before the previous grid's end, last.
  TileRowDim dst_row_dims[max_tile_dims];
  TileTableDim table[max_tile_dims];
  TileRowDim src_row_dims[max_tile_dims];
  GridDim grid[max_rank];
  friend bool operator==(const TileParams&, const TileParams&) = default;
};

// Threads a block of the copies: one unit a thread, blocks of 4 KB in memory order reach 1.00 of cudaMemcpyAsync from
// 32 MB, where 2 units reach 0.98 and 4 0.95 (H200).
constexpr int copy_threads = 256;

// Threads a block of the tiles: 128 are 1-2% slower over all cases (H200).
constexpr int tile_threads = 256;

// Of byte_tile, whose threads hold all its items: blocks of 128 threads for small tiles, of 256 for larger ones. So
// many resident threads leave a thread the registers for two.
constexpr int max_items_per_thread = 2;
constexpr int byte_tile_threads = 128;
constexpr int byte_tile_resident_threads = 1280;

// Threads a block of the channel kernels, at most; each owns 16 bytes of every plane. With 3 channels 128 reach
// 0.98-0.99 of copy putting planes together and 0.96-0.98 taking them apart, 256 0.98-1.00 and 0.95-0.97 (H200).
constexpr int max_channel_threads = 128;

// Planes of 16-byte vectors on one side; on the other the pixels, of num_channels neighbouring elements each, as one
// contiguous span a batch. A tile is the vectors of a plane that the threads of a block own one of each, in all planes.
struct ChannelParams {
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  int32_t num_channels = 0;   // 2, 3 or 4
  int64_t plane_stride = 0;   // between planes of neighbouring channels, of any sign
  int64_t plane_vectors = 0;  // of 16 bytes in a plane
  uint32_t num_tiles = 0;
  uint32_t tiles_per_block = 1;  // of 2^thread_bits threads each where there are several
  uint32_t thread_bits = 31;
  uint32_t tile_shared_vectors = 0;  // of 16 bytes, a tile's part of shared memory
  int32_t grid_rank = 0;
  GridDim grid[max_rank];  // the tiles of a plane, then the batch's dimensions in the order of dst
  friend bool operator==(const ChannelParams&, const ChannelParams&) = default;
};

// Conversions between these sizes have kernels of their own among the tiles; all others share general_tile's.
constexpr bool has_own_kernels(int src_bytes, int dst_bytes, bool in_double) {
  return in_double ? src_bytes == 8 && dst_bytes == 4 : src_bytes != 4 || dst_bytes != 4;
}

// The elements of src that one thread of copy_rows() converts together.
FLOWK_HOST_DEVICE constexpr int convert_group_elements(int src_bytes, int dst_bytes) {
  const int wider = src_bytes > dst_bytes ? src_bytes : dst_bytes;
  const int narrower = src_bytes > dst_bytes ? dst_bytes : src_bytes;
  const int by_wider = 16 / wider, by_narrower = 4 / narrower;
  return by_wider > by_narrower ? by_wider : by_narrower;
}

}  // namespace flowk::permute
