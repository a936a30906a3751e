// SPDX-License-Identifier: Apache-2.0
// Where rows and elements of a tile are in memory, for its kernels and for the planner, which counts bank conflicts.
#pragma once

#include "core/index_split.h"
#include "permute/permute_params.h"

namespace flowk::permute {

// The offsets of a row in global and in shared memory. Most tiles have rows of one or two dimensions.
FLOWK_HOST_DEVICE void locate_tile_row(const TileRowDim* dims, int rank, uint32_t row, int64_t* offset,
                                       int32_t* shared_offset) {
  *offset = 0;
  *shared_offset = 0;
  const auto enter = [&](int d, uint32_t index) {
    *offset += static_cast<int64_t>(index) * dims[d].stride;
    *shared_offset += static_cast<int32_t>(index) * dims[d].shared_step;
  };
  if (rank <= 1) return enter(0, row);  // rows of no dimension: steps of 0
  split_index<2>(row, dims, rank, enter);
}

// The offset in shared memory of an element of the destination run, by the table's dimensions.
FLOWK_HOST_DEVICE int32_t locate_run_element(const RunTable& table, uint32_t element) {
  int32_t shared_offset = 0;
  split_index<0>(element, table.dims, table.rank, [&](int d, uint32_t index) {
    shared_offset += static_cast<int32_t>(index) * table.dims[d].shared_step;
  });
  return shared_offset;
}

// byte_tile: how many columns further left an item starts because it has word `word` of the destination run.
FLOWK_HOST_DEVICE int32_t skew_of(uint32_t word, int32_t shift, uint32_t mask) {
  return static_cast<int32_t>(4 * (word >> shift & mask));
}

// byte_tile: which of its words of columns an item takes first, if it begins at element `element` of the destination
// run.
FLOWK_HOST_DEVICE int32_t first_word_of(int32_t element, int32_t rotation_shift) {
  return element >> rotation_shift & 3;
}

}  // namespace flowk::permute
