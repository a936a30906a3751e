// SPDX-License-Identifier: Apache-2.0
// A problem of PReLU backward as the planners of its mechanisms see it.
#pragma once

#include "prelu/plan/prelu_problem.h"

namespace flowk::prelu {

// by_column: rows per block. A tensor takes the first row of the table with a max_bytes above the tensor's bytes.
struct RowBlock {
  int64_t max_bytes;
  int64_t rows;
};

// What was found by measurement. bench/tuning/prelu_h200.json has the figures.
#include "prelu/plan/prelu_tuning.inc"

struct PreluBackwardProblem {
  const PreluBackwardRequest& request;
  const Device& device;
  const PreluBackwardChoice& choice;
  PreluShape shape;
  int64_t vector_elements;
  int64_t sum_bytes;  // of a partial sum
  BackwardTensors tensors;
  int64_t num_vectors;

  int64_t num_bytes() const { return num_vectors * vector_bytes; }  // of one tensor
  bool is_forced() const { return choice.kernel != 0; }
  bool wants_sums() const { return request.dalpha != nullptr; }
  bool is_common() const { return prelu::is_common(request.dtype, request.alpha_dtype); }
  bool is_aligned_alike() const { return tensors.x_shift == 0 && tensors.dy_shift == 0; }
  // All vectors exist, aligned in all tensors.
  bool is_whole() const {
    return tensors.grid.misalignment == 0 && is_aligned_alike() && tensors.grid.num_elements % vector_elements == 0;
  }
};

// A cluster exchange of `num_sums` sums in shared memory: a barrier of 16 bytes, then the sums.
constexpr int64_t cluster_exchange_bytes(int64_t num_sums, int64_t sum_bytes) { return 16 + num_sums * sum_bytes; }

// Where a gradient kernel leaves its partials: (rows, channels, inner), or (channels, rows) if row_stride = 1.
struct Partials {
  int64_t num_rows;
  int64_t row_stride;
  int64_t inner = 1;
};

// Plans the kernels that sum the partials at the workspace's start.
void plan_reductions(const PreluBackwardProblem& problem, const Partials& partials, PreluBackwardPlan* plan);

// Each plans the gradient by one mechanism, with its reductions. False if the mechanism does not fit, or is known to be
// slower than another.
bool plan_by_channel(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);
bool plan_by_span(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);
bool plan_by_plane(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);
bool plan_by_column(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);  // always fits
bool plan_by_warp_column(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);

// Are there enough rows of whole 128-byte lines for by_column to take short planes?
bool has_rows_of_lines(const PreluBackwardProblem& problem);

}  // namespace flowk::prelu
