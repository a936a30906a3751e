// SPDX-License-Identifier: Apache-2.0
// flowk_masked_softmax_backward_dbias(): request, plan, run, explain. One mechanism, bias_gradient.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"
#include "core/divide.h"
#include "core/status.h"
#include "flowk/detail/launch_shape.h"
#include "softmax/softmax.h"

namespace flowk::softmax {

constexpr int max_bias_gradient_threads = 1024;  // per block

// The rows that share one row of the bias are a group; they are its members. The dimensions over which the bias is
// shared are the innermost ones of SoftmaxParams::rows: row = group * members + member. A group has `chunks` chunks of
// members, and chunk i has the members i, i + chunks, ... The threads of a row, lanes_per_row of them, take one chunk.
struct BiasGradient {
  unsigned char* dbias = nullptr;
  flowk_dtype dbias_dtype = FLOWK_FLOAT32;
  int64_t groups = 1;
  int64_t members = 1;
  // More than 1: `partials` has the sum of each chunk, (chunks, groups, columns) of float32, of a float64 y float64. 0:
  // dbias is set to zeros.
  int32_t chunks = 1;
  Divider groups_of_chunk;  // `groups`, if there are several chunks
  WideDivider columns;
  unsigned char* partials = nullptr;
  // Each thread has the sums of the columns of its vectors; in the workspace if they do not fit in shared memory.
  unsigned char* sums = nullptr;
  int64_t block_sums_bytes = 0;
  int32_t sums_offset_bytes = 0;  // in shared memory
  int32_t row_vectors = 0;        // the last one may not be whole
  int32_t vectors_per_thread = 0;
  bool by_vectors = false;     // dy, y and dx are read and written by whole vectors; false: by single elements
  int32_t element_step = 1;    // columns between the elements of a thread's vector, as in row_in_registers
  bool stores_vectors = true;  // of dbias, or of the partials
  friend bool operator==(const BiasGradient&, const BiasGradient&) = default;
};

// A checked call. `softmax` is the call of flowk_masked_softmax_backward() with the same arguments, without a softcap
// and a scale per row; softmax_out is nullptr if dx is not wanted, and the strides of softmax_dense are those of dbias.
struct BiasGradientRequest {
  SoftmaxRequest softmax;
  void* dbias = nullptr;
  flowk_dtype dbias_dtype = FLOWK_FLOAT32;
  void* workspace = nullptr;
  bool has_members = true;  // false: the bias is shared over an extent of 0, which is 1 in `softmax`
};

struct BiasGradientPlan {
  flowk_dtype in_dtype = FLOWK_FLOAT32;
  LaunchConfig launch;      // no blocks if there are no members
  LaunchConfig sum_launch;  // of the chunks' sums; no blocks if there is one chunk
  BiasGradient gradient;
  SoftmaxParams params;
  friend bool operator==(const BiasGradientPlan&, const BiasGradientPlan&) = default;
};

// What the workspace depends on.
struct BiasGradientSizes {
  int64_t groups, members, columns;
  flowk_dtype y_dtype;
};
int64_t bias_gradient_workspace_bytes(const BiasGradientSizes& sizes, const Device& device);

void plan_bias_gradient(const BiasGradientRequest& request, const Device& device, BiasGradientPlan* plan);
Status run_bias_gradient(const BiasGradientPlan& plan, flowk_stream stream);
void explain_bias_gradient(const BiasGradientPlan& plan, char* text, size_t text_bytes);

}  // namespace flowk::softmax
