// SPDX-License-Identifier: Apache-2.0
// What the kernels of softmax get: the parameters of all, and a struct per mechanism.
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "core/iteration_space.h"
#include "flowk/flowk.h"
#include "softmax/softmax_layout.h"

namespace flowk::softmax {

// Operands with one element per row.
enum SoftmaxOperand : int {
  softmax_x,          // forward: x; backward: dy
  softmax_out,        // forward: y; backward: dx
  softmax_bias_or_y,  // forward: the bias; backward: y
  softmax_dense,      // forward: the dense mask; backward with a softcap: x; of bias_gradient: the gradient of the bias
  softmax_lengths,    // one length per row
  softmax_row,        // no memory: the row's index among its q rows, for causal and window
  softmax_lse,        // forward: the log-sum-exp, written; backward: its gradient
  num_softmax_operands
};

// One dimension of the rows, innermost first: index = row % extent, row /= extent.
struct SoftmaxRowDim {
  Divider divider;     // used if the number of rows fits 31 bits
  int64_t extent = 1;  // used otherwise
  int64_t strides[num_softmax_operands] = {};
  friend bool operator==(const SoftmaxRowDim&, const SoftmaxRowDim&) = default;
};

// One more than a request has: one dimension may be split into L2 tiles.
constexpr int max_softmax_dims = max_rank + 1;

// Operands with one number per row, which few kernels read. Their strides count elements.
enum RowNumber : int { row_sink, row_scale, num_row_numbers };

struct RowNumberStrides {
  int32_t of[num_row_numbers] = {};
  friend bool operator==(const RowNumberStrides&, const RowNumberStrides&) = default;
};

// The bytes from each row to the next in the grid's order, of lse and of the numbers, if they are always the same and
// fit.
constexpr uint32_t no_row_step = UINT32_MAX;
struct RowSteps {
  uint32_t lse = no_row_step;
  uint32_t numbers[num_row_numbers] = {no_row_step, no_row_step};
  friend bool operator==(const RowSteps&, const RowSteps&) = default;
};

// The rows of a call in the fewest dimensions, in the order in which blocks take them. Dimensions innermost first; none
// has extent 1, and no two neighbours are one dimension to every operand.
struct SoftmaxRows {
  int64_t num_rows = 1;  // with the rows that would fill the last L2 tile
  int32_t rank = 0;
  bool is_wide = false;  // num_rows >= 2^31
  // L2 tiles: a dimension of l2_tile_extent rows is split in two, dims[0] of l2_tile_rows and dims[l2_tile_dim]. The
  // row's index is i = index[0] + l2_tile_rows * index[l2_tile_dim]; rows with i >= l2_tile_extent do not exist.
  int32_t l2_tile_dim = 0;  // 0: no L2 tiles
  int32_t l2_tile_rows = 0;
  int64_t l2_tile_extent = 0;
  SoftmaxRowDim dims[max_softmax_dims];
  RowNumberStrides numbers[max_softmax_dims];  // of each dimension
  friend bool operator==(const SoftmaxRows&, const SoftmaxRows&) = default;
};

// The masks that leave an interval of a row's columns: lengths, causal and window.
struct SoftmaxInterval {
  bool exists = false;
  const unsigned char* lengths = nullptr;
  int32_t lengths_bytes = 0;  // of one length, 4 or 8; 0: no lengths
  bool lengths_from_right = false;
  // causal and window keep columns [row + diagonal_begin, row + diagonal_end).
  bool has_diagonal = false;
  int64_t diagonal_begin = 0;
  int64_t diagonal_end = 0;
  friend bool operator==(const SoftmaxInterval&, const SoftmaxInterval&) = default;
};

// What kernels with row values read besides lse: float32 numbers, of a float64 x float64.
struct SoftmaxExtras {
  const unsigned char* numbers[num_row_numbers] = {};
  unsigned char* dsinks = nullptr;           // backward, strides as lse: each row's part of the sinks' gradients
  const unsigned char* saved_lse = nullptr;  // backward with dsinks: what the forward call wrote
  const unsigned char* x = nullptr;          // backward with a softcap
  double softcap = 0;                        // 0: none
  float softcap32 = 0;
  float slope32 = 0;  // RowScore::slope of a scale of 1
  friend bool operator==(const SoftmaxExtras&, const SoftmaxExtras&) = default;
};

// What every kernel gets, after its mechanism's parameters. All that threads read first is in a few lines of the
// constant cache: behind the dimensions, each line is a miss that a small kernel waits for.
struct SoftmaxParams {
  const unsigned char* x = nullptr;  // as SoftmaxOperand
  unsigned char* out = nullptr;
  const unsigned char* bias_or_y = nullptr;
  const unsigned char* dense = nullptr;
  const unsigned char* dense_first = nullptr;  // [dense_first, dense_end) has all bytes of the mask
  const unsigned char* dense_end = nullptr;
  SoftmaxInterval interval;
  // A dense mask is the only mask, there are no L2 tiles, and the rows of x and of out are equally far apart.
  bool seeks_dense_alone = false;
  bool bias_is_float32 = false;
  bool bias_is_aligned = false;  // the columns of one vector of x are whole vectors of the bias
  bool log_softmax = false;
  bool negates_x = false;  // scale < 0
  double scale = 1;        // forward without a bias |scale|; the sign is negates_x
  float scale32 = 1;
  float scale32_base_2 = 1;  // scale * log2(e)
  int32_t columns = 0;
  flowk_dtype out_dtype = FLOWK_FLOAT32;
  bool out_is_x_type = false;
  int32_t lanes_per_row = 0;  // threads per block that work on one row
  int32_t rows_per_block = 1;
  int32_t rows_shift = 0;        // log2(lanes_per_row) if lanes_per_row <= 32
  int32_t row_blocks_shift = 0;  // log2 of the blocks per row
  bool has_tails = false;        // some row has a head or a tail: columns outside whole 16-byte vectors
  bool starts_on_lines = false;  // threads take vectors from the start of the row's first 128-byte line
  bool has_row_values = false;   // lse, or one of the extras
  unsigned char* lse = nullptr;  // float32, of a float64 x float64
  RowSteps row_steps;
  SoftmaxExtras extras;
  SoftmaxRows rows;  // last, 2.6 KB; kernels read the dimensions that exist
  friend bool operator==(const SoftmaxParams&, const SoftmaxParams&) = default;
};

// ---- the mechanisms, one struct each: what a config says, and what the plan adds for the kernel. A vector has 16
// bytes.

// The memory of all rows of an operand, [first, end).
struct OperandMemory {
  const unsigned char* first = nullptr;
  const unsigned char* end = nullptr;
  friend bool operator==(const OperandMemory&, const OperandMemory&) = default;
};

// The threads of a warp, a block or a cluster hold a row in registers.
struct RowInRegisters {
  int32_t vectors_per_thread = 0;  // a power of 2, up to 16
  // set by the plan:
  SoftmaxForm form = SoftmaxForm::any;
  int32_t row_vectors = 0;    // whole vectors of a row
  int32_t block_vectors = 0;  // and of each block of a cluster
  // of unaligned rows:
  int32_t stage_offset_bytes = 0;  // in shared memory
  int32_t stage_operands = 0;
  OperandMemory memory[3] = {};  // of x or dy, of the bias or y, and of the dense mask or a gradient's x
  friend bool operator==(const RowInRegisters&, const RowInRegisters&) = default;
};

// A block or a cluster holds a row in registers and shared memory.
struct RowInShared {
  int32_t vectors_offset_bytes = 0;  // set by the plan: of the vectors in shared memory
  friend bool operator==(const RowInShared&, const RowInShared&) = default;
};

// The dense mask or the bias of staged rows, which other rows may share.
struct StagedMask {
  const unsigned char* base = nullptr;
  const unsigned char* first = nullptr;  // [first, end) has all of its bytes
  const unsigned char* end = nullptr;
  SoftmaxOperand operand = softmax_dense;
  int32_t row_bytes = 0;
  int32_t row_stride = 0;  // bytes from row to row in the innermost dimension of the rows
  // Do neighbouring rows share the mask? Then all blocks of a multiprocessor copy the same bytes.
  FLOWK_HOST_DEVICE bool is_shared() const { return row_stride == 0; }
  friend bool operator==(const StagedMask&, const StagedMask&) = default;
};

// The rows of a block in the order of the groups of threads that have them: neighbouring groups have rows `step` apart,
// so that rows that are read at the same time lie in different banks of shared memory. With n = the block's rows /
// step, group g has row (g % n) * step + g / n.
struct StagedRowOrder {
  int32_t step = 1;
  int32_t mask = -1;   // n - 1
  int32_t shift = 31;  // log2(n)
  FLOWK_HOST_DEVICE int row_of(int group) const { return (group & mask) * step + (group >> shift); }
  friend bool operator==(const StagedRowOrder&, const StagedRowOrder&) = default;
};

// A block stages a segment of short rows in shared memory; one thread or a few threads have a row.
struct StagedRows {
  int32_t rows_per_thread = 1;  // one after the other
  // set by the plan:
  int32_t unit_columns = 0;
  int32_t units_per_thread = 0;     // threads before the row's first unit have one less
  bool has_unit_edges = false;      // some row starts or ends inside a unit
  bool copies_rows = false;         // each row's unmasked columns; false: the whole segment
  int32_t second_offset_bytes = 0;  // in shared memory: of the mask or y
  int32_t barrier_offset_bytes = 0;
  StagedMask mask = {};
  StagedRowOrder row_order = {};  // of rows in units
  friend bool operator==(const StagedRows&, const StagedRows&) = default;
};

// A block or a cluster reads a row twice. Takes every call.
struct TwoPassRow {
  bool reads_vectors = false;  // set by the plan; false: reads single columns
  friend bool operator==(const TwoPassRow&, const TwoPassRow&) = default;
};

// Rows of 1 to 8 vectors: a thread has one vector of each of several rows.
struct RowsByVectors {
  int32_t rows_per_thread = 0;  // forward 4, backward 2
  friend bool operator==(const RowsByVectors&, const RowsByVectors&) = default;
};

// A warp, or a part of one, holds a row in registers. Lengths, causal and window mask out all but an interval of it.
struct RowsInLanes {
  int32_t vectors_per_thread = 0;  // 1 to 4
  friend bool operator==(const RowsInLanes&, const RowsInLanes&) = default;
};

// The threads of a warp, or of a part of one, take the aligned vectors that contain a row through shared memory. For
// rows under an interval.
struct FramedRows {
  // set by the plan:
  bool through_l1 = false;     // forward, copies to shared memory
  int32_t diagonal_begin = 0;  // as SoftmaxInterval has them
  int32_t diagonal_end = 0;
  int32_t second_offset_bytes = 0;  // in shared memory: of y
  int32_t rows_offset_bytes = 0;    // and of what the threads of each row share
  friend bool operator==(const FramedRows&, const FramedRows&) = default;
};

// Two grids read a row; each block has a slice of it.
struct SplitRow {
  int32_t slices = 1;           // per row, a power of 2
  int64_t rows_per_launch = 0;  // of each of the two grids
  int64_t first_row = 0;        // set by the launch
  friend bool operator==(const SplitRow&, const SplitRow&) = default;
};

// A cluster takes one row after the other through shared memory: the next row is loaded while the current row is
// stored.
struct PersistentRows {
  int32_t num_clusters = 0;
  // set by the plan: a ring of batches in shared memory
  int32_t ring_offset_bytes = 0;
  int32_t ring_batches = 0;
  int32_t row_batches = 0;   // of a row
  int32_t held_batches = 0;  // of a row: loaded once; the others are loaded twice
  friend bool operator==(const PersistentRows&, const PersistentRows&) = default;
};

// Without a bias, only two_pass_row and strided_rows compute exponents that are right for all finite scores if the
// scale is below the limit of float64 or of the other types, or if it is above the limit of float16.
constexpr double min_float64_scale = 0x1p-900;
constexpr double min_float32_scale = 0x1p-100;
constexpr double max_float16_scale = 0x1p12;

// Of two_pass_row and strided_rows: scores are x * step, and an exponent is (score - reference) * factor. Step is a
// power of 2, negative if the scale is, so small that differences are finite and that the factor is a normal number,
// except for a scale of 0: its exponents are below 2^-80.
template <class A>
struct ScoreSteps {
  A step = 1;
  A factor = 1;
  friend bool operator==(const ScoreSteps&, const ScoreSteps&) = default;
};
template <class A>
FLOWK_HOST_DEVICE ScoreSteps<A> score_steps(double scale, bool negates_x) {
  constexpr bool is_double = sizeof(A) == 8;
  const bool is_small = scale < (is_double ? min_float64_scale : min_float32_scale), is_large = is_double && scale > 1;
  const double size = is_small ? (is_double ? 0x1p-256 : 0x1p-64) : is_large ? 1 : 0.5;
  const double per_size = is_small ? (is_double ? 0x1p256 : 0x1p64) : is_large ? 1 : 2;  // 1 / size
  const A factor = static_cast<A>(scale * per_size), smallest = static_cast<A>(is_double ? 0x1p-1022 : 0x1p-126);
  return {static_cast<A>(negates_x ? -size : size), factor > smallest ? factor : smallest};
}

// strided_rows, if a block holds whole planes: an image is a plane for each column. A cluster holds an image, and each
// of its blocks a part of the image's columns. A folded plane is two planes of an odd number of rows of 16 bits, so
// that its columns are words.
struct StridedPlanes {
  int32_t num_images = 0;
  int32_t image_bytes = 0;
  int32_t column_bytes = 0;  // of a plane
  int32_t plane_rows = 0;    // of a folded plane twice its rows
  bool is_folded = false;
  int32_t image_columns = 0;        // planes
  int32_t block_columns = 0;        // of an image per block; the last block of a cluster may have fewer
  Divider slices;                   // lanes_per_row
  Divider units;                    // words of a plane
  Divider lanes;                    // and of a plane of each image of the block
  int32_t second_offset_bytes = 0;  // in shared memory: of y
  int32_t barrier_offset_bytes = 0;
  friend bool operator==(const StridedPlanes&, const StridedPlanes&) = default;
};

// strided_rows: how a block merges the partial results of its rows in shared memory.
struct StridedMerge {
  int32_t rows = 0;
  int32_t slices = 1;       // partial results of a row
  int32_t lanes_shift = 0;  // log2 of the threads that merge a row
  int32_t parts_offset_bytes = 0;
  int32_t results_offset_bytes = 0;   // of the rows
  int32_t exchange_offset_bytes = 0;  // between the blocks of a cluster
  friend bool operator==(const StridedMerge&, const StridedMerge&) = default;
};

// Rows whose columns lie apart. A thread has row_width neighbouring rows, which it shares with the other threads of
// lanes_per_row. rows_per_block counts the rows of a thread as one.
struct StridedRows {
  int32_t row_width = 1;  // 1; 2 of 16 bits; a vector
  int32_t images = 0;     // per block; 0: blocks do not hold whole planes
  // set by the plan:
  bool are_words = false;          // a thread's elements of a column are aligned words
  bool has_single_rows = false;    // of two neighbours, the last one of the innermost dimension has none
  bool is_general = false;         // rows that no threads hold, results of another type, 16 bits of unusual scales
  int32_t columns = 0;             // per thread
  int32_t missing = 0;             // columns that the threads of a row have before its first one
  int32_t lanes_shift = 0;         // log2(rows_per_block)
  int64_t column_strides[2] = {};  // bytes from column to column: of x, or dy and y
  int64_t out_column_stride = 0;
  ScoreSteps<float> steps32 = {};
  ScoreSteps<double> steps64 = {};  // of float64
  StridedMerge merge = {};
  StridedPlanes planes = {};
  friend bool operator==(const StridedRows&, const StridedRows&) = default;
};

}  // namespace flowk::softmax
