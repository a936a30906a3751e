// SPDX-License-Identifier: Apache-2.0
// Shapes of the kernels of short rows alone: rows_by_vectors, rows_in_lanes and staged_rows.
#pragma once

#include "softmax/softmax_shape.h"

namespace flowk::softmax {

// Each may be one that does not fit.
SoftmaxShape vectors_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem);
SoftmaxShape lanes_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem);
SoftmaxShape span_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device);

bool short_shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                      const SoftmaxShape& shape);

// Would staged_rows do a call faster than `in_registers`?
bool prefers_span(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& in_registers);

// staged_rows: columns of a unit, the units of a row that a thread has (0: there is no such kernel), and whether rows
// start or end inside units.
struct SpanUnits {
  int32_t columns = 0;
  int32_t per_thread = 0;
  bool has_edges = false;
};
SpanUnits span_units(const SoftmaxRequest& request, const SoftmaxProblem& problem, int32_t lanes);
int32_t span_rows_per_block(const SoftmaxShape& shape);

// The bytes of shared memory that its rows of x take, and the dense mask or y after them; two barriers follow.
int64_t span_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape);
int64_t span_side_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape);
constexpr int32_t span_barrier_bytes = 16;

}  // namespace flowk::softmax
