// SPDX-License-Identifier: Apache-2.0
// flowk_masked_softmax_backward_dbias(): request, plan, run, explain. Two mechanisms,
// bias_gradient_in_registers and, for all other calls, bias_gradient.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"
#include "core/divide.h"
#include "core/status.h"
#include "flowk/detail/launch_shape.h"
#include "softmax/softmax.h"

namespace flowk::softmax {

constexpr int max_bias_gradient_threads = 512;    // per block
constexpr int bias_gradient_vectors_at_once = 4;  // that a thread of bias_gradient loads
constexpr int max_bias_gradient_vectors = 4;      // of 16 bytes of dy, and of y, that a thread has in registers at most

// The rows that share one row of the bias are a group; they are its members. The dimensions over which the bias is
// shared are the innermost ones of SoftmaxParams::rows: row = group * members + member. The members of a group are in
// chunk_blocks * block_chunks chunks: chunk i has the members i, i + chunks, ... A block has block_chunks chunks of
// each of 2^groups_shift neighbouring groups; lanes_per_row threads take one chunk, member by member.
struct BiasGradient {
  unsigned char* dbias = nullptr;
  flowk_dtype dbias_dtype = FLOWK_FLOAT32;
  int64_t groups = 1;
  int64_t members = 1;
  int32_t groups_shift = 0;
  int32_t block_chunks = 1;
  int64_t num_group_blocks = 1;
  // More than 1: `partials` has the sums of each block, (chunk_blocks, groups, columns) of float32, of a float64 y
  // float64. 0: dbias is set to zeros.
  int32_t chunk_blocks = 1;
  Divider group_blocks;  // num_group_blocks, if there are several chunk blocks
  WideDivider columns;
  unsigned char* partials = nullptr;
  // The sums of a block's rows, row_sums elements each; in the workspace if they do not fit in shared memory. In
  // bias_gradient_in_registers they are where sums change threads, and where the chunks of a block are added up.
  unsigned char* sums = nullptr;
  int64_t row_sums = 0;
  int64_t block_sums = 0;
  int32_t sums_offset_bytes = 0;        // in shared memory
  int32_t vectors_per_thread = 0;       // of a row's frame
  int32_t vectors_at_once = 1;          // of bias_gradient: bias_gradient_vectors_at_once, or 1
  bool in_registers = false;            // bias_gradient_in_registers takes the call
  bool has_one_phase = true;            // the members of a chunk start at the same element of a vector
  bool has_edges = false;               // the columns are not whole vectors
  bool has_steps = false;               // members of a chunk are at a constant distance
  int64_t steps[3] = {};                // this distance in bytes, in dy, y and dx
  bool by_vectors = false;              // dy, y and dx are read and written by whole vectors; false: by single elements
  bool has_frames = false;              // false: a row's first vector starts with its first column
  const unsigned char* memory[2] = {};  // of dy and y; the vectors of a row within it are read whole
  const unsigned char* memory_end[2] = {};
  friend bool operator==(const BiasGradient&, const BiasGradient&) = default;
};

// What the workspace and the order in which rows are added depend on.
struct BiasGradientSizes {
  int64_t groups = 1, members = 1, columns = 0;
  flowk_dtype y_dtype = FLOWK_FLOAT32;
  // Rows from a row to the next one in the innermost dimension over which the bias is shared. 1: they are neighbours.
  // 0: the bias is not shared.
  int64_t member_rows = 0;
};

// A checked call. `softmax` is the call of flowk_masked_softmax_backward() with the same arguments, without a softcap
// and a scale per row; softmax_out is nullptr if dx is not wanted, and the strides of softmax_dense are those of dbias.
// If there are no members, the extents over which the bias is shared are 1 in it.
struct BiasGradientRequest {
  SoftmaxRequest softmax;
  BiasGradientSizes sizes;
  void* dbias = nullptr;
  flowk_dtype dbias_dtype = FLOWK_FLOAT32;
  void* workspace = nullptr;
};

struct BiasGradientPlan {
  flowk_dtype in_dtype = FLOWK_FLOAT32;
  LaunchConfig launch;      // no blocks if there are no members
  LaunchConfig sum_launch;  // of the chunks' sums; no blocks if there is one chunk
  BiasGradient gradient;
  SoftmaxParams params;
  friend bool operator==(const BiasGradientPlan&, const BiasGradientPlan&) = default;
};

int64_t bias_gradient_workspace_bytes(const BiasGradientSizes& sizes, const Device& device);

void plan_bias_gradient(const BiasGradientRequest& request, const Device& device, BiasGradientPlan* plan);
Status run_bias_gradient(const BiasGradientPlan& plan, flowk_stream stream);
void explain_bias_gradient(const BiasGradientPlan& plan, char* text, size_t text_bytes);

}  // namespace flowk::softmax
