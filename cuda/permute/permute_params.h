// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of permute. All strides and steps are in bytes.
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "core/iteration_space.h"
#include "flowk/detail/sizes.h"

namespace flowk::permute {

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
  uint8_t num_pairs = 1;    // of src and dst
  CopyDim dims[max_rank];
  friend bool operator==(const CopyParams&, const CopyParams&) = default;
};

// One dimension of the grid of tiles, innermost first. A step is one tile along it.
struct GridDim {
  Divider divider;
  int64_t src_step = 0;
  int64_t dst_step = 0;
  int32_t src_blocks = 0;  // 1 where this dimension cuts the source run
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

// A step over rows of one or two dimensions, and a second one where the first passes the end of the innermost.
struct TileRowPass {
  int64_t step = 0;  // bytes in src or dst
  int32_t shared_step = 0;
  uint32_t innermost = 0;     // indices of the innermost dimension
  uint32_t end = UINT32_MAX;  // its extent; UINT32_MAX where the rows have one dimension
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

// An offset in shared memory. A gather keeps two in one word, so a tile and its table take less than 64 KB.
using TileTableEntry = uint16_t;
constexpr int64_t max_tile_span_bytes = 65536;
constexpr int64_t dst_row_bytes = 16;  // one entry of the table of destination rows
constexpr int64_t tile_offsets_bytes = 32;

// Dimensions of the rows of one side, or of a run, at most.
constexpr int max_tile_dims = 8;

// Rows, bytes or elements of a tile inside the tensor: per_index * (indices of the cut dimension inside) >> shift.
struct TileCount {
  enum Cut : int32_t { whole, of_src_cut, of_dst_cut };
  int32_t per_index = 0;
  Cut cut = whole;
  int32_t shift = 0;  // log2 of the rows in a group
  friend bool operator==(const TileCount&, const TileCount&) = default;
};

// A tile is a box of elements. In src it is `src_rows` rows of one contiguous run each, in dst `dst_rows` rows of
// another. The source run consists of src's innermost dimensions, the destination run of dst's. The rows of a side are
// the dimensions that only the other side's run has. Only the outermost dimension of a run is cut into blocks. Its last
// block is shorter: that tile has fewer rows on one side and shorter runs on the other. Where both runs are whole and
// short, further dimensions are rows on both sides.
struct TileParams {
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  const unsigned char* src_end = nullptr;  // one past the last byte of src's elements
  int16_t grid_rank = 0;
  int16_t num_pairs = 1;                  // of src and dst
  int32_t tile_offsets_offset_bytes = 0;  // of the block's TileOffsets, in shared memory

  // The blocks of the cut dimensions; one block where no dimension is cut.
  int32_t num_src_blocks = 1, num_dst_blocks = 1;
  int32_t src_block = 1, dst_block = 1;  // indices
  int32_t src_last_block = 1;            // indices of the last block
  int32_t dst_last_end = 1;              // the same with the halo
  int32_t dst_second_last_end = 1;       // of the block before the last, which the halo may shorten too
  int32_t halo = 0;  // indices of dst's cut dimension before the block, so that rows can start on a granule
  TileCount src_run_bytes;
  TileCount src_rows;
  TileCount dst_run_elements;
  TileCount dst_rows;  // or groups of rows, where one thread stores several

  // Loading: item = (source row, vector of its run).
  Divider vectors_per_src_row;
  uint32_t src_rows_per_pass = 0;  // rows that a block loads at once
  int32_t src_row_rank = 0;
  bool src_row_is_wide = false;  // a row has more vectors than a block has threads
  bool has_plain_rows = false;   // aligned_tile: rows of one dimension on both sides, no wider than a block, no halo
  // Swizzle: bits 4-6 of an offset in shared memory are XORed with a key.
  //   aligned_tile   key = (source row >> shift) * step & bits
  //   general_tile   key = (offset >> shift) & bits
  int32_t swizzle_shift = 0;
  uint32_t swizzle_step = 0;
  int32_t swizzle_bits = 0;        // 0: no swizzle
  uint32_t shift_mask = 0;         // shared and global addresses agree modulo shift_mask + 1
  int32_t shared_lead_bytes = 0;   // from the start of shared memory to source row 0: < 0 where rows are skipped
  TileRowPass src_pass;            // from one pass to the next
  int64_t src_tile_bytes = 0;      // from the start of a whole tile to the end of the last vector that it loads
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
  uint32_t window_mask = 0;        // with a halo rows end on multiples of window_mask + 1 bytes
  int32_t skipped_elements = 0;    // elements at the start of the halo that no row needs: not loaded
  int32_t skipped_src_rows = 0;    // the source rows of those elements

  // Where element e of the destination run stands in shared memory: e * run_pitch, or by the table (table_rank > 0).
  int32_t run_pitch = 0;
  int32_t table_rank = 0;
  uint32_t num_table_entries = 0;
  Divider table_period;            // elements after which offsets repeat
  int32_t period_step = 0;         // bytes further on in shared memory
  int32_t table_offset_bytes = 0;  // of the table in shared memory

  // byte_tile. Item = (16 columns, word of the destination run): 4 source rows, by 16 of their bytes. The columns
  // of word w start ((w >> skew_shift) & skew_mask) words to the left. Destination rows replace the source rows in
  // shared memory.
  Divider words_per_run;  // of 4 elements
  uint32_t num_word_items = 0;
  int32_t skew_shift = 0;
  uint32_t skew_mask = 0;
  int32_t columns_pitch = 0;        // between destination rows in shared memory
  bool src_rows_are_words = false;  // all source rows start at the same offset in a word
  int32_t rotation_shift = 0;       // lane's first word = element >> rotation_shift & 3
  bool dst_rows_have_ends = false;  // rows have a head or a tail: bytes outside of whole vectors
  // Destination runs that lie one after the other in dst are joined to one destination row.
  //   runs per row = run_join's divisor; with joins_src_cut: columns of the tile / run_join's divisor
  Divider run_join;
  bool joins_src_cut = false;
  Divider joined_run_bytes;    // used where rows have several runs
  int32_t joined_run_gap = 0;  // from the end of a run to the next in shared memory; 0: one run per row

  // Order matters: parameters are read from memory line by line. Those of the store stand beside the scalars, those of
  // the load last, because the load asks for them while it waits for the previous grid.
  TileRowDim dst_row_dims[max_tile_dims];
  TileTableDim table[max_tile_dims];
  TileRowDim src_row_dims[max_tile_dims];
  GridDim grid[max_rank];
  friend bool operator==(const TileParams&, const TileParams&) = default;
};

// Threads per block of the copies, with one unit each: blocks of 4 KB in memory order. bench/tuning/permute_h200.json
// has the figures of the sizes here.
constexpr int copy_threads = 256;
// Rows at any alignment: 32 registers per thread, so that an SM's 2048 threads are resident.
constexpr int copy_resident_threads = 2048;

// Threads per block of the tiles.
constexpr int tile_threads = 256;

// byte_tile: a block's threads hold all items of the tile, at most two each. Small tiles have blocks of 128 threads,
// larger ones of 256. 1280 resident threads leave each thread the registers for two items.
constexpr int max_items_per_thread = 2;
constexpr int byte_tile_threads = 128;
constexpr int byte_tile_resident_threads = 1280;

// Threads per block of channels, at most; each owns 16 bytes of every plane.
constexpr int max_channel_threads = 128;

// Planes of 16-byte vectors on one side; on the other one contiguous span of pixels per batch, num_channels
// neighbouring elements per pixel. A tile is the same range of vectors of all planes, one vector per thread and plane.
struct ChannelParams {
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  int16_t num_pairs = 1;      // of src and dst
  int16_t num_channels = 0;   // 2, 3 or 4
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

// Pairs of src and dst in one launch, at most.
constexpr int max_launch_pairs = 16;

// Where a launch has several pairs, pair i stands so many bytes after the parameters' src and dst. The offsets lie in
// the steps of the last dimensions, which such a launch must not use: a longer list of parameters makes every launch
// slower.
FLOWK_HOST_DEVICE constexpr int pair_dim(int pair) { return max_rank - 1 - pair; }
template <class Params>
FLOWK_HOST_DEVICE auto& pair_src_offset(Params& params, int pair) {
  if constexpr (requires { params.dims; })
    return params.dims[pair_dim(pair)].src_stride;
  else
    return params.grid[pair_dim(pair)].src_step;
}
template <class Params>
FLOWK_HOST_DEVICE auto& pair_dst_offset(Params& params, int pair) {
  if constexpr (requires { params.dims; })
    return params.dims[pair_dim(pair)].dst_stride;
  else
    return params.grid[pair_dim(pair)].dst_step;
}

// The elements of src that one thread of copy_rows() converts together.
FLOWK_HOST_DEVICE constexpr int convert_group_elements(int src_bytes, int dst_bytes) {
  const int wider = src_bytes > dst_bytes ? src_bytes : dst_bytes;
  const int narrower = src_bytes > dst_bytes ? dst_bytes : src_bytes;
  const int by_wider = 16 / wider, by_narrower = 4 / narrower;
  return by_wider > by_narrower ? by_wider : by_narrower;
}

}  // namespace flowk::permute
