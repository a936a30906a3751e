// SPDX-License-Identifier: Apache-2.0
// What the kernels of softmax get: their parameters, what they are compiled for, and limits that plans keep.
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "core/iteration_space.h"
#include "flowk/flowk.h"
#include "softmax/softmax_kernel_table.h"

namespace flowk::softmax {

// Operands with one element per row.
enum SoftmaxOperand : int {
  softmax_x,        // forward: x; backward: dy
  softmax_out,      // forward: y; backward: dx
  softmax_side,     // forward: the bias; backward: y
  softmax_dense,    // the dense mask
  softmax_lengths,  // one length per row
  softmax_row,      // no memory: the row's index among its q rows, for causal and window
  num_softmax_operands
};

// One dimension of the rows, innermost first: index = row % extent, row /= extent.
struct SoftmaxRowDim {
  Divider divider;     // used where the number of rows fits 31 bits
  int64_t extent = 1;  // used otherwise
  int64_t strides[num_softmax_operands] = {};
  friend bool operator==(const SoftmaxRowDim&, const SoftmaxRowDim&) = default;
};

// One more than a request has: one dimension may be split into L2 tiles.
constexpr int max_softmax_dims = max_rank + 1;

struct SoftmaxParams {
  const unsigned char* x = nullptr;  // as SoftmaxOperand
  unsigned char* out = nullptr;
  const unsigned char* side = nullptr;
  const unsigned char* dense = nullptr;
  const unsigned char* lengths = nullptr;
  const unsigned char* dense_first = nullptr;  // [dense_first, dense_end) has all bytes of the mask
  const unsigned char* dense_end = nullptr;
  int64_t num_rows = 0;  // of the grid; includes those that the last L2 tile lacks
  int32_t rank = 0;
  bool wide_rows = false;  // num_rows >= 2^31
  // A dense mask is the only mask, there are no L2 tiles, and the rows of x and of out are equally far apart.
  bool seeks_dense_alone = false;
  bool has_interval = false;  // lengths, causal or window
  bool lengths_from_right = false;
  bool log_softmax = false;
  bool negates_x = false;  // scale < 0
  bool bias_is_float32 = false;
  bool bias_is_aligned = false;  // the columns of one vector of x are whole vectors of the bias
  int32_t lengths_bytes = 0;     // of one length, 4 or 8; 0: no lengths
  bool has_diagonal = false;
  int64_t diagonal_begin = 0;
  int64_t diagonal_end = 0;
  // L2 tiles: a dimension of l2_tile_extent rows is split in two, dims[0] of l2_tile_rows and dims[l2_tile_dim]. The
  // row's index is i = index[0] + l2_tile_rows * index[l2_tile_dim]; rows with i >= l2_tile_extent do not exist.
  int32_t l2_tile_dim = 0;  // 0: no L2 tiles
  int32_t l2_tile_rows = 0;
  int64_t l2_tile_extent = 0;
  int32_t columns = 0;
  double scale = 1;  // forward without a bias |scale|; the sign is negates_x
  float scale32 = 1;
  float scale32_base_2 = 1;   // scale * log2(e)
  int32_t lanes_per_row = 0;  // threads per block that work on one row
  int32_t rows_per_block = 1;
  int32_t rows_shift = 0;        // log2(lanes_per_row) where lanes_per_row <= 32
  int32_t cluster_shift = 0;     // log2 of the blocks per row: of a cluster, or of split_row's slices
  bool has_tails = false;        // some row has a head or a tail: columns outside whole 16-byte vectors
  bool starts_on_lines = false;  // threads take vectors from the start of the row's first 128-byte line
  int32_t row_vectors = 0;       // whole vectors per row, and per block
  int32_t block_vectors = 0;
  // two_pass_row:
  flowk_dtype out_dtype = FLOWK_FLOAT32;
  bool out_is_x_type = false;
  bool reads_vectors = false;  // false: reads single columns
  int64_t first_row = 0;       // split_row: of this launch
  // Byte offsets in shared memory. row_in_shared, persistent_rows: a block's vectors. staged_rows: the mask, bias or y,
  // and the barriers of the copies.
  int32_t block_offset_bytes = 0;
  int32_t side_offset_bytes = 0;
  int32_t barrier_offset_bytes = 0;
  bool has_unit_edges = false;  // staged_rows: some row starts or ends inside a unit
  int32_t thread_units = 0;     // staged_rows: units per thread; some threads have one less
  // persistent_rows, see PersistentRing:
  int32_t row_batches = 0;   // per row
  int32_t held_batches = 0;  // of those: loaded once, the others twice
  int32_t ring_batches = 0;
  SoftmaxRowDim dims[max_softmax_dims];
  friend bool operator==(const SoftmaxParams&, const SoftmaxParams&) = default;
};

// Below these scales, of float64 and of the other types, and above that one for float16 without a bias, only
// two_pass_row computes exponents that are right for all finite scores.
constexpr double least_float64_scale = 0x1p-900;
constexpr double least_float32_scale = 0x1p-100;
constexpr double most_float16_scale = 0x1p12;

}  // namespace flowk::softmax
