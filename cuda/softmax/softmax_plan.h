// SPDX-License-Identifier: Apache-2.0
// What flowk_masked_softmax() and its backward are to do (SoftmaxRequest) and how they will (SoftmaxPlan). Pure host
// logic: no CUDA call, no allocation.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/divide.h"
#include "core/iteration_space.h"
#include "core/launch_config.h"
#include "core/status.h"

namespace flowk::softmax {

// What has a place of its own for every row.
enum SoftmaxOperand : int {
  softmax_x,        // forward: x; backward: dy
  softmax_out,      // forward: y; backward: dx
  softmax_side,     // forward: the bias; backward: y
  softmax_dense,    // the dense mask
  softmax_lengths,  // a length a row
  softmax_row,      // no memory: the row's number among its q rows, for causal and window
  num_softmax_operands
};

// A checked call. Dimensions are those before the last one, outermost first; strides are in bytes, and of softmax_row
// in rows. Every extent and `columns` is >= 1.
struct SoftmaxRequest {
  bool backward = false;
  bool log_softmax = false;
  flowk_dtype in_dtype = FLOWK_FLOAT32;   // forward: of x; backward: of dy and y
  flowk_dtype out_dtype = FLOWK_FLOAT32;  // forward: of y; backward: of dx
  flowk_dtype bias_dtype = FLOWK_FLOAT32;
  const void* pointers[num_softmax_operands] = {};  // nullptr: not given
  int32_t rank = 0;
  int64_t extents[max_rank];
  int64_t strides[num_softmax_operands][max_rank];
  int64_t columns = 0;
  double scale = 1;
  int32_t lengths_bytes = 0;  // of one length, 4 or 8
  bool lengths_from_right = false;
  // causal and window keep columns [row + diagonal_begin, row + diagonal_end); both are within +-2^61.
  bool has_diagonal = false;
  int64_t diagonal_begin = 0;
  int64_t diagonal_end = 0;
};

enum class SoftmaxKernel : int32_t {
  row_in_registers,  // lanes of a warp, a block or a cluster hold a row in registers
  row_in_shared,     // a block or a cluster holds a row in registers and shared memory
  staged_rows,       // one or a few threads a row of a span of short rows, staged in shared memory
  two_pass_row,      // a block reads a row twice: any length, alignment and pair of types
  rows_by_vectors,   // a thread has vectors of several rows of 1 to 8 vectors each
  rows_in_lanes,     // lanes of a warp hold a row of which lengths, causal and window keep an interval
  split_row,         // two grids read a row, each block a slice of it: a few long rows, and rows too long to hold
  persistent_rows,   // a cluster takes one row after the other, held in shared memory: vectors come as others leave
};
constexpr int num_softmax_kernels = 8;
const char* softmax_kernel_name(SoftmaxKernel kernel);

// What a kernel is compiled to look at, besides the interval of columns that lengths, causal and window leave of a row.
enum class SoftmaxMask : int32_t {
  none,   // nothing
  dense,  // a dense mask
  bias,   // a bias, and a dense mask where one is given
};

// What row_in_registers may leave out.
enum class SoftmaxForm : int32_t {
  any,       // nothing: columns outside whole vectors, lengths, causal, window
  aligned,   // no columns outside whole vectors
  unfilled,  // also: no lengths, causal or window, masks aligned to their vectors; rows without a dense mask or bias
             // one after the other
  whole      // also: every thread has all its vectors
};

template <SoftmaxForm kForm>
constexpr bool has_whole_rows = kForm == SoftmaxForm::unfilled || kForm == SoftmaxForm::whole;

// One dimension that a row's number is taken apart into, innermost first.
struct SoftmaxRowDim {
  Divider divider;     // where the number of rows fits 31 bits
  int64_t extent = 1;  // otherwise
  int64_t strides[num_softmax_operands] = {};
  friend bool operator==(const SoftmaxRowDim&, const SoftmaxRowDim&) = default;
};

// One more than the request's: a dimension may be walked in bands.
constexpr int max_softmax_dims = max_rank + 1;

// Kernel parameters.
struct SoftmaxParams {
  const unsigned char* x = nullptr;  // see SoftmaxOperand
  unsigned char* out = nullptr;
  const unsigned char* side = nullptr;
  const unsigned char* dense = nullptr;
  const unsigned char* lengths = nullptr;
  const unsigned char* dense_first = nullptr;  // the mask's lowest byte, and one past its highest
  const unsigned char* dense_end = nullptr;
  int64_t num_rows = 0;  // of the grid: with those that a last, partial band lacks
  int32_t rank = 0;
  bool wide_rows = false;  // 2^31 rows and more
  // A dense mask, and rows of x and out one after the other, without lengths, causal, window or bands.
  bool seeks_dense_alone = false;
  bool has_interval = false;  // lengths, causal or window
  bool lengths_from_right = false;
  bool log_softmax = false;
  bool negates_x = false;  // scale < 0
  bool bias_is_float32 = false;
  bool bias_is_aligned = false;  // as x, so that a vector of x has the same columns as whole vectors of bias
  int32_t lengths_bytes = 0;     // 4, 8; 0: none
  bool has_diagonal = false;
  int64_t diagonal_begin = 0;
  int64_t diagonal_end = 0;
  // Bands: a dimension of band_extent rows is walked band_rows at a time. Its index is that of dims[0] + band_rows
  // times that of dims[band_dim], and rows from band_extent on do not exist.
  int32_t band_dim = 0;  // 0: no bands
  int32_t band_rows = 0;
  int64_t band_extent = 0;
  int32_t columns = 0;
  double scale = 1;  // kernels that add no bias: its size, and negates_x its sign; 0 is the smallest number instead
  float scale32 = 1;
  float scale32_base_2 = 1;   // times log2(e)
  int32_t lanes_per_row = 0;  // threads of a block that work on one row
  int32_t rows_per_block = 1;
  int32_t rows_shift = 0;        // log2 lanes_per_row, where rows_per_block > 1
  int32_t cluster_shift = 0;     // log2 of the blocks that share a row: of a cluster, or its slices
  bool is_peeled = false;        // some row has columns before its first, or after its last, whole 16-byte vector
  bool starts_on_lines = false;  // a row is cut into its threads' vectors from the start of its first 128-byte line on
  int32_t row_vectors = 0;       // whole rows: of a row, and of its part that one block has
  int32_t block_vectors = 0;
  // two_pass_row:
  flowk_dtype out_dtype = FLOWK_FLOAT32;
  bool out_is_x_type = false;
  bool reads_vectors = false;  // else by single columns
  int64_t first_row = 0;       // split_row: of a launch
  // Shared memory: of row_in_shared and persistent_rows a block's vectors, of staged_rows the mask, the bias or
  // y, and the barriers of the copies.
  int32_t block_offset_bytes = 0;
  int32_t side_offset_bytes = 0;
  int32_t barrier_offset_bytes = 0;
  bool has_unit_edges = false;  // staged_rows: some row starts or ends inside a unit
  int32_t thread_units = 0;     // staged_rows: units that a thread has, or one less
  // persistent_rows, see SoftmaxRing:
  int32_t turn_batches = 0;  // of a row
  int32_t kept_batches = 0;
  int32_t ring_batches = 0;
  SoftmaxRowDim dims[max_softmax_dims];
  friend bool operator==(const SoftmaxParams&, const SoftmaxParams&) = default;
};

// Threads of a block that hold a row, at most: each has 128 registers then.
constexpr int max_register_lanes = 512;
constexpr int max_dense_lanes = 256;  // of 8 vectors and a dense mask: 80 registers
constexpr int max_cluster_blocks = 16;
// persistent_rows: threads of a block; the most batches of a row, so that those of two rows have a lane each.
constexpr int turn_threads = 512;
constexpr int max_turn_batches = 16;
constexpr int max_lane_vectors = 4;  // of a lane's in rows_in_lanes

// staged_rows: columns of a unit, the units of a row that a thread may have, and the columns up to which a thread
// takes whole rows by single columns.
constexpr int span_unit_columns = 4;
constexpr int min_span_units = 3;
constexpr int max_span_units = 10;
constexpr int max_span_elements = 20;
constexpr int max_mask_runs = 16;

// Shared memory through which `num_warps` warps of each of `cluster_blocks` blocks agree on a row: 16 bytes for a
// barrier and two values a warp, of `value_bytes` (4 for 16-bit rows, 8 for others and in two_pass_row).
constexpr int32_t softmax_exchange_bytes(int32_t value_bytes, int32_t num_warps, int32_t cluster_blocks) {
  return 16 + 2 * value_bytes * num_warps * cluster_blocks;
}

struct SoftmaxPlan {
  SoftmaxKernel kernel = SoftmaxKernel::two_pass_row;
  SoftmaxMask mask = SoftmaxMask::none;
  SoftmaxForm form = SoftmaxForm::any;  // row_in_registers
  bool backward = false;
  flowk_dtype in_dtype = FLOWK_FLOAT32;
  flowk_dtype out_dtype = FLOWK_FLOAT32;
  // 16-byte vectors: row_in_registers 1, 2, 4, 8 or 16; row_in_shared those in registers, 4 or 8; persistent_rows
  // those of a batch and input, 4, backward 2; rows_by_vectors 4, backward 2; rows_in_lanes 1 to 4. staged_rows:
  // units of a row, of unit_columns columns.
  int32_t vectors_per_thread = 0;
  int32_t unit_columns = 0;
  int32_t resident_blocks = 0;  // of a multiprocessor at a time, at most; 0: as many as fit
  int64_t rows_per_launch = 0;  // split_row; others have one launch
  LaunchConfig launch;
  SoftmaxParams params;
  friend bool operator==(const SoftmaxPlan&, const SoftmaxPlan&) = default;
};

// How a row is spread over threads. A plan made with a shape of one's own runs if it can hold the row.
struct SoftmaxShape {
  SoftmaxKernel kernel = SoftmaxKernel::two_pass_row;
  int32_t vectors_per_thread = 0;  // row_in_registers, rows_by_vectors; row_in_shared: those in registers
  int32_t lanes_per_row = 0;       // of one block
  int32_t block_threads = 0;
  int32_t cluster_blocks = 1;
  int32_t resident_blocks = 0;  // of a multiprocessor at a time, at most; 0: as many as fit
  int32_t rows_per_thread = 1;  // staged_rows of a few columns: one after the other
  int32_t slices = 1;           // split_row: blocks of a row
  int64_t rows_per_launch = 0;  // split_row
  int32_t num_clusters = 0;     // persistent_rows
};

// Chooses kernel, shape and launch. Never fails: every checked request has a plan.
void plan_softmax(const SoftmaxRequest& request, const Device& device, SoftmaxPlan* plan);

// The same with a given shape; false if it cannot do the request, and for row_in_registers and row_in_shared if it
// cannot hold a row.
[[nodiscard]] bool plan_softmax_as(const SoftmaxRequest& request, const Device& device, const SoftmaxShape& shape,
                                   SoftmaxPlan* plan);

// Enqueues the plan.
Status run_softmax(const SoftmaxPlan& plan, flowk_stream stream);

// Writes the plan in words; as flowk_masked_softmax_explain().
void explain_softmax(const SoftmaxPlan& plan, const SoftmaxRequest& request, char* text, size_t text_bytes);

}  // namespace flowk::softmax
