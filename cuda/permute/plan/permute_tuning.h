// SPDX-License-Identifier: Apache-2.0
// What was found by measurement. bench/tuning/permute_h200.json has the figures.
#pragma once

#include <cstdint>

#include "core/iteration_space.h"
#include "core/namespaces.h"

namespace flowk::permute {

// Rows of up to max_rank dimensions are copied one by one from min_row_bytes on.
struct CopyRowsBound {
  int max_rank;
  int64_t min_row_bytes;
};

// The terms of the time of an aligned_tile or general_tile, relative to a copy of the same bytes.
struct TileCosts {
  float copy;
  float src_sectors;       // 32-byte sectors of src touched twice, over those needed
  float dst_lines;         // 128-byte lines of dst touched twice, over those needed
  float dst_sectors;       // sectors of dst stored in parts
  float src_line_ends;     // lines of src that a run ends in
  float short_src_run;     // below 256 bytes
  float shortest_src_run;  // one line or less
  float halo;              // over the block
  float block;             // the start of a block, over the tile's KB
  float unaligned_load;    // passes of the block's threads over the tile, over its KB
  float row_of_dims;       // more if source rows have three dimensions or more
  float dst_row;           // over the table of destination rows
  float store;
  float element_gather;  // for each element of a vector, except in aligned_tile
  float convert_gather;  // more if it is converted
  float partial_store;
  float table;  // KB of table
  float few_bytes_in_flight;
  float idle;        // blocks that the last wave leaves out
  float padding;     // of tiles at the edge, over the tensor
  float conflicts;   // for each bit that the swizzle lacks
  float below_8_kb;  // by the tile's size; terms add up
  float below_11_kb;
  float below_14_kb;
  float above_17_kb;
  float above_20_kb;
  float above_25_kb;
  float above_33_kb;
};

// The terms of a byte_tile's time, in the unit of TileCosts. Per pass of a block's threads, unless the comment says
// otherwise.
struct ByteTileCosts {
  float copy;
  float block;        // the start of a block
  float load;         // vectors of src
  float table;        // entries of the table, of runs of several dimensions
  float row;          // entries of the table of rows
  float item;         // items of 4 x 16 bytes
  float src_shift;    // more if source rows do not start on words
  float part;         // more for every half or byte of a word that is stored alone
  float store;        // vectors of dst
  float dst_shift;    // more if destination rows do not start on words
  float end;          // heads and tails
  float src_sectors;  // parts of sectors at the ends of a source run, over the run
  float dst_sectors;  // of a destination row: stores of 32 sectors hold up shared memory
  float padding;
  float idle;  // blocks that the last wave leaves out
};

#include "permute/plan/permute_tuning.inc"

}  // namespace flowk::permute
