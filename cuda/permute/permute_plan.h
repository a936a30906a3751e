// SPDX-License-Identifier: Apache-2.0
// What flowk_permute() is to do (PermuteRequest) and how it will (PermutePlan). Pure host logic: no CUDA call, no
// allocation.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/device.h"
#include "core/divide.h"
#include "core/iteration_space.h"
#include "core/launch_config.h"
#include "core/status.h"

namespace flowk::permute {

// A checked call. `shape` runs over the dimensions of dst, outermost first, with each one's stride in src beside it.
// Every extent is >= 1 and no two elements of dst share memory.
struct PermuteRequest {
  const void* src = nullptr;
  void* dst = nullptr;
  int32_t element_bytes = 0;  // 1, 2, 4, 8 or 16
  int32_t alignment_bytes =
      0;  // what the pointers are known to be a multiple of: element_bytes, or less for complex types
  PairShape shape;
};

enum class PermuteKernel : int32_t {
  contiguous_copy,       // both sides are one run of aligned 16-byte units
  row_copy,              // the last dimension stays last: rows of aligned units, in dst order
  shifted_row_copy,      // the same for rows at any alignment: 16-byte stores built from two 16-byte loads
  reversed_row_copy,     // the same where dst walks the last dimension down
  tiled_transpose,       // a tile through shared memory, 16-byte aligned on both sides, swizzled
  two_sided_tile,        // the same for any extents and alignment, and for runs that share dimensions
  strided_tile,          // the same by single elements: a side has no dimension of stride 1
  channel_interleave,    // 2 to 4 planes become pixels of as many channels, 16-byte aligned on both sides
  channel_deinterleave,  // the other way round
  two_step_tile,         // two_sided_tile of 1-byte elements, transposed by words in registers
};
constexpr int num_permute_kernels = 10;
constexpr int64_t vector_bytes = 16;  // the widest access of one thread
const char* permute_kernel_name(PermuteKernel kernel);

// Kernel parameters. All strides and steps are in bytes.

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
  int32_t rank = 0;  // dimensions of the rows; 0: one row
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

// Places in shared memory, of which the gathers keep two in a word: a tile and its table take less than 64 KB.
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
  bool has_plain_rows = false;   // tiled_transpose: rows of one dimension on both sides, no wider than a block, no halo
  // Bits 4-6 of a place in shared memory are XORed with, in tiled_transpose, (source row >> shift) * step & bits, in
  // two_sided_tile with (place >> shift) & bits.
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
  Divider table_period;            // elements after which places repeat
  int32_t period_step = 0;         // bytes further on in shared memory
  int32_t table_offset_bytes = 0;  // of the table in shared memory

  // two_step_tile. Item = (16 columns, word of the destination run): 4 source rows, by 16 of their bytes. The columns
  // of word w start ((w >> skew_shift) & skew_mask) words to the left. Destination rows take the place of the source
  // rows in shared memory.
  Divider words_per_run;  // of 4 elements
  uint32_t num_word_items = 0;
  int32_t skew_shift = 0;
  uint32_t skew_mask = 0;
  int32_t columns_pitch = 0;        // between destination rows in shared memory
  bool src_rows_are_words = false;  // they start as far inside a word as each other, and the tile's columns there
  int32_t turn_shift = 0;           // of an element: threads take words in turns
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

// Of two_step_tile, whose threads hold all its items: blocks of 128 threads for small tiles, of 256 for larger ones. So
// many resident threads leave a thread the registers for two.
constexpr int max_items_per_thread = 2;
constexpr int two_step_threads = 128;
constexpr int two_step_resident_threads = 1280;

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

struct PermutePlan {
  PermuteKernel kernel = PermuteKernel::contiguous_copy;
  int32_t unit_bytes = 0;   // the element or unit that the kernel moves
  bool wide_index = false;  // copies of 2^31 units and more
  LaunchConfig launch;
  CopyParams copy;           // contiguous_copy, row_copy, shifted_row_copy, reversed_row_copy
  TileParams tile;           // tiled_transpose, two_sided_tile, strided_tile, two_step_tile
  ChannelParams channels;    // channel_interleave, channel_deinterleave
  float predicted_cost = 0;  // of the tile, relative to a copy of the same bytes
  friend bool operator==(const PermutePlan&, const PermutePlan&) = default;
};

// Chooses kernel, tile and launch. Never fails: every checked request has a plan.
void plan_permute(const PermuteRequest& request, const Device& device, PermutePlan* plan);

// The same plan from this thread's memory, which holds those of its last 32 shapes, strides and alignments: the search
// for a tile takes 3 to 12 us, this 0.1. Good until the thread's next call.
const PermutePlan& cached_plan(const PermuteRequest& request, const Device& device);

// Enqueues the plan.
Status run_permute(const PermutePlan& plan, flowk_stream stream);

// Writes the plan in words; as flowk_permute_explain().
void explain_permute(const PermutePlan& plan, const PermuteRequest& request, char* text, size_t text_bytes);

}  // namespace flowk::permute
