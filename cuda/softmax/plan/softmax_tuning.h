// SPDX-License-Identifier: Apache-2.0
// Declares the tables and constants that were found by measurement; bench/tuning/softmax_h200.json has the figures.
#pragma once

#include <cstdint>

namespace flowk::softmax {

struct SoftmaxCall;

// How rows of up to max_row_bytes are held.
struct SoftmaxTuningRow {
  int64_t max_row_bytes;
  int32_t vectors_per_thread;     // of 16 bytes, in registers
  int32_t cluster_blocks;         // blocks per row
  int32_t shared_threads = 0;     // row_in_shared: threads per block; 0: row_in_registers
  int32_t resident_blocks = 0;    // the most blocks per multiprocessor at a time; 0: no limit
  int32_t persistent_blocks = 0;  // persistent_rows, if it fits: blocks per cluster; 0: not used
};

// See enough_of_4_vectors(): the percentage by the kind of mask, for rows with and without tails.
struct SoftmaxFillRow {
  int64_t max_lanes;  // that hold a row in 4 vectors each
  int32_t plain;
  int32_t plain_tails;
  int32_t dense;
  int32_t dense_tails;
  int32_t bias;
  int32_t bias_tails;
};

// Threads per row and per block of framed_rows.
struct SoftmaxFramedRow {
  int64_t max_row_bytes;
  int32_t lanes_per_row;
  int32_t block_threads;
};

// Bytes of mask and bias per L2 tile, see tile_rows().
struct SoftmaxL2TileRow {
  int64_t max_columns;
  int64_t l2_tile_bytes;
};

#include "softmax/plan/softmax_tuning.inc"

// The first row with a bound of at least `key`; the last row has none.
template <class Row, int kRows>
const Row& find_tuning_row(const Row (&table)[kRows], int64_t Row::* bound, int64_t key) {
  const Row* row = table;
  while (key > row->*bound) ++row;
  return *row;
}

const SoftmaxTuningRow& find_tuning_row(const SoftmaxCall& call);

}  // namespace flowk::softmax
