// SPDX-License-Identifier: Apache-2.0
// The parameters of the kernels of permute. All strides and steps are in bytes.
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "core/iteration_space.h"
#include "flowk/detail/sizes.h"

namespace flowk::permute {

// The items of one row of a copy.
struct CopyItems {
  Divider divider;     // if the index of an item fits 31 bits
  int64_t extent = 0;  // otherwise
  friend bool operator==(const CopyItems&, const CopyItems&) = default;
};

// A dimension of the rows of a copy, innermost first.
struct CopyDim {
  Divider divider;
  int64_t extent = 0;
  int64_t src_stride = 0;
  int64_t dst_stride = 0;
  friend bool operator==(const CopyDim&, const CopyDim&) = default;
};

// An item of a copy is what one thread moves: a unit, a pack of converted elements, or the part of a row in one aligned
// 16-byte vector of dst.
struct CopyParams {
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  const unsigned char* src_end = nullptr;  // one past the last byte of src's elements
  int64_t num_items = 0;                   // of all rows
  CopyItems row_items;
  int64_t row_bytes = 0;
  int32_t rank = 0;         // dimensions of the rows; 0: one row
  bool wide_index = false;  // 2^31 items and more
  uint8_t num_pairs = 1;    // of src and dst
  CopyDim dims[max_rank];
  friend bool operator==(const CopyParams&, const CopyParams&) = default;
};

// One dimension of the grid of tiles, innermost first. A step is one tile along it.
struct GridDim {
  Divider divider;
  int64_t src_step = 0;
  int64_t dst_step = 0;
  int32_t src_slices = 0;  // 1 if this dimension cuts the source run
  int32_t dst_slices = 0;
  friend bool operator==(const GridDim&, const GridDim&) = default;
};

// One dimension of a tile's source rows or destination rows, innermost first.
struct TileRowDim {
  Divider divider;          // by the rows' extent along it
  int32_t shared_step = 0;  // between neighbours in shared memory
  int64_t stride = 0;       // between neighbours in src (source rows) or dst (destination rows)
  friend bool operator==(const TileRowDim&, const TileRowDim&) = default;
};

constexpr int max_tile_dims = 8;  // of a tile's rows, or of a run

// How many rows, bytes or elements of a tile are inside the tensor: a constant, or a number for each index of a cut
// dimension that is inside.
struct TileCount {
  int32_t constant = 0;  // 0 if a dimension is cut
  int32_t per_src_index = 0;
  int32_t per_dst_index = 0;
  friend bool operator==(const TileCount&, const TileCount&) = default;

  FLOWK_HOST_DEVICE int32_t total(int32_t src_indices, int32_t dst_indices) const {
    return constant + per_src_index * src_indices + per_dst_index * dst_indices;
  }
};

// What all tile kernels read. A tile is a box of elements. In src it is `src_rows` rows of one contiguous run each, in
// dst `dst_rows` rows of another run. The source run consists of src's innermost dimensions, the destination run of
// dst's. The source rows are the dimensions that only the destination run has, and the destination rows are those that
// only the source run has. Only the outermost dimension of a run is cut, into slices. The last slice may be shorter:
// that tile has fewer rows in one tensor and shorter runs in the other. If both runs are whole and short, further
// dimensions are rows in both tensors.
struct TileParams {
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  const unsigned char* src_end = nullptr;  // one past the last byte of src's elements
  int8_t grid_rank = 0;
  int8_t dst_row_shift = 0;               // log2 of the destination rows that one thread stores together
  int16_t num_pairs = 1;                  // of src and dst
  int32_t tile_offsets_offset_bytes = 0;  // of the block's TileOffsets in shared memory

  // The slices of the cut dimensions; one slice if no dimension is cut.
  int32_t num_src_slices = 1, num_dst_slices = 1;
  int32_t src_slice = 1, dst_slice = 1;  // indices
  int32_t src_last_slice = 1;            // indices of the last slice of src
  int32_t dst_last_end = 1;              // indices of the last slice of dst, with the halo
  int32_t dst_second_last_end = 1;       // of the slice before, which may be shorter because of the halo
  int32_t halo = 0;  // indices of dst's cut dimension before the slice, so that rows can start on a granule
  TileCount src_run_bytes;
  TileCount src_rows;
  TileCount dst_run_elements;
  TileCount dst_rows;
  int32_t src_row_rank = 0;
  int32_t dst_row_rank = 0;
  int32_t skipped_elements = 0;  // elements at the start of the halo that no row needs: not loaded
  int32_t skipped_src_rows = 0;  // their source rows

  // The order matters, because parameters are read from memory line by line. The parameters of the store follow the
  // scalars. The parameters of the load come last, because a kernel reads them while it waits for the previous grid. So
  // TileParams is the last member of a kernel's parameters.
  TileRowDim dst_row_dims[max_tile_dims];
  TileRowDim src_row_dims[max_tile_dims];
  GridDim grid[max_rank];
  friend bool operator==(const TileParams&, const TileParams&) = default;

  // The count of a tile that is not at the edge of the tensor, with its halo.
  int32_t whole_count(const TileCount& count) const { return count.total(src_slice, dst_slice + halo); }
};

// A step over rows of one or two dimensions, and a second one if the first passes the end of the innermost.
struct TileRowPass {
  int64_t step = 0;  // bytes in src or dst
  int32_t shared_step = 0;
  uint32_t innermost = 0;     // indices of the innermost dimension
  uint32_t end = UINT32_MAX;  // its extent; UINT32_MAX if the rows have one dimension
  int32_t wrap_shared_step = 0;
  int64_t wrap_step = 0;
  friend bool operator==(const TileRowPass&, const TileRowPass&) = default;
};

// Loading whole vectors: item = (source row, vector of its run).
struct TileLoad {
  Divider vectors_per_row;
  uint32_t rows_per_pass = 0;      // rows that a block loads at once
  bool row_is_wide = false;        // a row has more vectors than a block has threads
  uint32_t shift_mask = 0;         // shared and global addresses agree modulo shift_mask + 1
  int32_t start_offset_bytes = 0;  // of source row 0 in shared memory: < 0 if rows are skipped
  TileRowPass pass;                // from one pass to the next
  int64_t tile_bytes = 0;          // from the start of a whole tile to the end of the last vector that it loads
  friend bool operator==(const TileLoad&, const TileLoad&) = default;
};

// Storing whole vectors: item = (segment of a row, destination row, vector in the segment). A tile stores a span of
// each destination row. With a halo the span begins and ends on multiples of span_end_mask + 1 bytes.
struct TileStore {
  Divider num_rows;             // of a whole tile
  Divider vectors_per_segment;  // vectors of one row that neighbouring threads store
  uint32_t num_vectors = 0;     // of a row, in whole segments
  uint32_t items_per_pass = 0;  // (segment, row) pairs that the threads of a block take at once
  uint32_t pass_vectors = 0;    // from one pass to the next
  uint32_t pass_rows = 0;
  int32_t span_bytes = 0;  // without the halo
  uint32_t span_end_mask = 0;
  friend bool operator==(const TileStore&, const TileStore&) = default;
};

// The offsets of a destination run's elements in shared memory, as a table that a block makes there. An offset has 16
// bits, because a gather keeps two in one word: a tile and its table take less than 64 KB.
using RunTableEntry = uint16_t;
constexpr int64_t max_tile_span_bytes = 65536;
constexpr int64_t max_table_copies = 16 / int64_t{sizeof(RunTableEntry)};  // the entries in a vector
struct RunTableDim {
  Divider divider;
  int32_t shared_step = 0;
  friend bool operator==(const RunTableDim&, const RunTableDim&) = default;
};
struct RunTable {
  int8_t rank = 0;  // 0: no table
  // Copy c starts at entry c, so that each entry is aligned to a vector in one copy.
  uint8_t num_copies = 1;
  uint16_t copy_bytes = 0;
  uint32_t num_entries = 0;
  int32_t offset_bytes = 0;  // in shared memory
  RunTableDim dims[max_tile_dims];
  friend bool operator==(const RunTable&, const RunTable&) = default;
};

constexpr int64_t dst_row_bytes = 16;  // one entry of the table of destination rows in shared memory
constexpr int64_t tile_offsets_bytes = 32;

struct AlignedTileParams {
  bool has_plain_rows = false;  // rows of one dimension in both tensors, no wider than a block, and no halo
  int32_t run_pitch = 0;        // element e of the destination run stands at e * run_pitch in shared memory
  // Bits 4-6 of an offset in shared memory are XORed with a key: (source row >> shift) * step & bits.
  int32_t swizzle_shift = 0;
  uint32_t swizzle_step = 0;
  int32_t swizzle_bits = 0;  // 0: no swizzle
  int32_t halo_bytes = 0;    // of a destination row
  int64_t dst_row_step = 0;  // between destination rows that one thread stores together (elements of 1 and 2 bytes)
  TileLoad load;
  TileStore store;
  TileParams tile;
  friend bool operator==(const AlignedTileParams&, const AlignedTileParams&) = default;
};

struct GeneralTileParams {
  // Bits 4-6 of an offset in shared memory are XORed with three higher ones: (offset >> shift) & bits.
  int32_t swizzle_shift = 0;
  int32_t swizzle_bits = 0;        // 0: no swizzle
  uint16_t dst_granule = 16;       // the bytes that a destination row's vectors are aligned to
  bool dst_rows_have_ends = true;  // rows may fill vectors partly
  int32_t halo_elements = 0;       // of a destination row
  int32_t rows_offset_bytes = 0;   // of the table of destination rows in shared memory
  // Element e of the destination run stands at e * run_pitch, or as the table says.
  int32_t run_pitch = 0;
  Divider table_period;     // elements after which the table's offsets repeat
  int32_t period_step = 0;  // bytes further on in shared memory
  RunTable table;
  TileLoad load;
  TileStore store;
  TileParams tile;
  friend bool operator==(const GeneralTileParams&, const GeneralTileParams&) = default;
};

// The tile's columns are its destination rows, in the order of src; if they have a second dimension, that is `outer`. A
// thread's item is 4 source rows by up to 16 columns: one word of the destination run in each of these columns. In
// shared memory the columns replace the source rows.
struct ByteTileParams {
  Divider words_per_run;   // of 4 elements
  Divider sets_per_outer;  // of an item's columns, in one index of the outer dimension
  uint32_t num_items = 0;
  int32_t words_per_item = 4;       // of 4 columns each
  int32_t store_bytes = 4;          // an item stores 4, 2 or 1 bytes of a column at once
  bool src_rows_are_words = false;  // all source rows start at the same offset in a word
  int32_t rotation_shift = 0;       // if so, a thread's first word = element >> rotation_shift & 3; or no_rotation
  // Otherwise the columns of word w start ((w >> skew_shift) & skew_mask) words to the left.
  int32_t skew_shift = 0;
  uint32_t skew_mask = 0;
  bool has_outer = false;
  Divider inner_columns;       // in one index of the outer dimension
  int32_t src_outer_step = 0;  // in shared memory, of source rows and of columns
  int32_t dst_outer_step = 0;
  int32_t columns_pitch = 0;          // between columns in shared memory
  bool dst_rows_are_aligned = false;  // a destination row has the same offset in a vector in dst and in shared memory
  bool dst_rows_have_ends = false;    // rows have a head or a tail: bytes outside of whole vectors
  int32_t dst_granule = 16;           // the bytes that the segments of a destination row are aligned to
  int32_t halo_bytes = 0;             // of a destination row
  int32_t rows_offset_bytes = 0;      // of the table of destination rows in shared memory
  // Destination runs that lie one after the other in dst are joined to one destination row. The divisor is the number
  // of runs per row; with joins_src_cut it is the number of rows.
  Divider run_join;
  bool joins_src_cut = false;
  RunTable table;  // of rank 1: element e of the destination run stands at e * its step, and there is no table
  TileLoad load;
  TileStore store;
  TileParams tile;
  friend bool operator==(const ByteTileParams&, const ByteTileParams&) = default;
};

// Both runs are one dimension of any stride.
struct StridedTileParams {
  Divider src_run_elements;
  Divider dst_run_elements;
  int32_t run_pitch = 0;           // element e of the destination run stands at e * run_pitch in shared memory
  int64_t src_element_stride = 0;  // between elements of the source run in src
  int64_t dst_element_stride = 0;
  TileParams tile;
  friend bool operator==(const StridedTileParams&, const StridedTileParams&) = default;
};

// Threads per block of the copies, with one item each: blocks of 4 KB in memory order. bench/tuning/permute_h200.json
// has the measurements of the threads per block here.
constexpr int copy_threads = 256;
// Rows at any alignment: 32 registers per thread, so that an SM's 2048 threads are resident.
constexpr int copy_resident_threads = 2048;

// Threads per block of the tiles.
constexpr int tile_threads = 256;

// Blocks of a tile kernel that are resident on a multiprocessor, at most.
constexpr int max_resident_tiles = 6;

// byte_tile: a block's threads hold all items of the tile, at most two each. Small tiles have blocks of 128 threads,
// larger tiles of 256. With 1280 resident threads each has enough registers for two items. Not measured.
constexpr int max_items_per_thread = 2;
constexpr int byte_tile_threads = 128;
constexpr int byte_tile_resident_threads = 1280;
constexpr int max_words_per_item = 4;  // of columns
constexpr int columns_per_word = 4;
constexpr int rows_per_item = 4;  // the bytes of a word
constexpr int no_rotation = 31;
constexpr int column_margin = 3;  // most columns before the tile's first that an item has, so that it starts on a word

// Threads per block of channels, at most; each owns 16 bytes of every plane.
constexpr int max_channel_threads = 128;
constexpr int min_channels = 2, min_converted_channels = 3, max_channels = 4;  // that have kernels

// One tensor has planes of 16-byte vectors. The other has one contiguous span of pixels per batch, and a pixel is
// num_channels neighbouring elements. A tile is the same range of vectors of all planes, one vector per thread and
// plane.
struct ChannelParams {
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  int16_t num_pairs = 1;      // of src and dst
  int16_t num_channels = 0;   // 2, 3 or 4
  int64_t plane_stride = 0;   // between planes of neighbouring channels, of any sign
  int64_t plane_vectors = 0;  // of 16 bytes in a plane
  uint32_t num_tiles = 0;
  uint32_t tiles_per_block = 1;  // of 2^thread_bits threads each if there are several
  uint32_t thread_bits = 31;
  uint32_t tile_shared_vectors = 0;  // of 16 bytes, a tile's part of shared memory
  int32_t grid_rank = 0;
  GridDim grid[max_rank];  // the tiles of a plane, then the batch's dimensions in the order of dst
  friend bool operator==(const ChannelParams&, const ChannelParams&) = default;
};

// aligned_tile: log2 of the destination rows that one thread stores together, because elements of 1 and 2 bytes are
// read as words.
FLOWK_HOST_DEVICE constexpr int log2_rows_of_word(int element_bytes) {
  return element_bytes == 1 ? 2 : element_bytes == 2 ? 1 : 0;
}

// Pairs of src and dst in one launch, at most. Not measured.
constexpr int max_launch_pairs = 16;

// The pointers, pairs and grid of a mechanism's parameters.
template <class Params>
auto& launch_params(Params& params) {
  if constexpr (requires { params.tile; })
    return params.tile;
  else
    return params;
}

// If a launch has several pairs, pair i is at offsets in bytes from the parameters' src and dst. The offsets are kept
// in the steps of the last dimensions, which such a launch must not have, because more parameters would make every
// launch slower.
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

// Does a conversion between elements of these sizes have kernels of the mechanism? aligned_tile has them if it is
// faster than general_tile. channels has those that images need: computed in float32, between two sizes, and with
// elements of 1 byte in pixels only.
FLOWK_HOST_DEVICE constexpr bool converts_aligned_tiles(int src_bytes, int dst_bytes, bool in_double) {
  return in_double ? src_bytes == 8 && dst_bytes == 4 : src_bytes * dst_bytes == 2;
}
FLOWK_HOST_DEVICE constexpr bool converts_channels(int planar_bytes, int pixel_bytes, bool in_double) {
  return !in_double && planar_bytes > 1 && planar_bytes != pixel_bytes;
}

// The elements of src that one thread of copy_rows() converts together.
FLOWK_HOST_DEVICE constexpr int convert_pack_elements(int src_bytes, int dst_bytes) {
  const int wider = src_bytes > dst_bytes ? src_bytes : dst_bytes;
  const int narrower = src_bytes > dst_bytes ? dst_bytes : src_bytes;
  const int by_wider = 16 / wider, by_narrower = 4 / narrower;
  return by_wider > by_narrower ? by_wider : by_narrower;
}

// Does a conversion between elements of these sizes have a copy_rows() of its own? A thread of it takes two packs, one
// block's threads apart: it loads both before it waits for the first.
FLOWK_HOST_DEVICE constexpr bool converts_rows(int src_bytes, int dst_bytes, bool in_double, bool wide_index) {
  return !in_double && !wide_index && src_bytes != dst_bytes;
}
constexpr int converted_packs_per_thread = 2;

}  // namespace flowk::permute
