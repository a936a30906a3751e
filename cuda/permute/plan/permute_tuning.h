// SPDX-License-Identifier: Apache-2.0
// What was found by measurement. bench/tuning/permute_h200.json has the figures.
#pragma once

#include <cstdint>

#include "core/iteration_space.h"
#include "core/namespaces.h"

namespace flowk::permute {

// Rows of up to max_rank dimensions are copied one by one from min_row_bytes on, or, if they are joined in dst, from
// min_joined_row_bytes on.
struct CopyRowsBound {
  int max_rank;
  int64_t min_row_bytes;
  int64_t min_joined_row_bytes;
};

// The terms of the time of an aligned_tile or general_tile, relative to a copy of the same bytes.
struct TileCosts {
  float copy;
  float block;           // the start of a block, over the tile's KB
  float src_sectors;     // bytes of sectors that are loaded twice, over the run
  float src_requests;    // bytes of lines at the ends of a run that it does not fill, over the run
  float dst_sectors;     // of sectors that are stored in parts
  float dst_requests;    // of lines that a segment does not fill
  float halo;            // over the block
  float unaligned_load;  // passes of the block's threads over the tile, over its KB
  float dst_row;         // over the table of destination rows
  float store;
  float element_gather;  // for each element of a vector; in aligned_tile if it is converted
  float partial_store;
  float table;        // KB of table
  float idle;         // blocks that the last wave leaves out
  float padding;      // of tiles at the edge, over the tensor
  float below_14_kb;  // by the tile's size; terms add up
  float above_20_kb;
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
  float src_shift;    // more if source rows do not start on words
  float part;         // more for every half or byte of a word that is stored alone
  float store;        // vectors of dst
  float end;          // heads and tails
  float src_sectors;  // parts of sectors at the ends of a source run, over the run
  float dst_sectors;  // of a destination row: stores of 32 sectors hold up shared memory
  float padding;
  float idle;  // blocks that the last wave leaves out
};

#include "permute/plan/permute_tuning.inc"

}  // namespace flowk::permute
