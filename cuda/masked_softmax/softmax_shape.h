// SPDX-License-Identifier: Apache-2.0
// Which kernel does a call of masked softmax, and how its rows are spread over threads.
#pragma once

#include "masked_softmax/softmax_problem.h"

namespace flowk {

SoftmaxMask mask_of(const SoftmaxRequest& request);

// The first choice for the call: never a shape that does not fit.
SoftmaxShape choose_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device);

bool shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                const SoftmaxShape& shape);

// Do a call's rows of x, out and y lie one after the other, in the order in which they are walked, as one type of up to
// 4 bytes? And has it nothing but a dense mask to leave out columns?
bool rows_are_one_run(const SoftmaxRequest& request, const SoftmaxProblem& problem);
bool has_interval(const SoftmaxRequest& request);

// rows_in_span: would it do the call faster than `in_registers`? The shape that it takes, and what a plan needs of it:
// columns of a unit, the units of a row that a thread has (0: there is no such kernel), whether rows start or end
// inside units, and the bytes of shared memory that x's rows take, and the dense mask or y after them; a barrier
// follows.
constexpr int32_t span_barrier_bytes = 8;
bool prefers_span(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& in_registers);
SoftmaxShape span_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device);
bool span_shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                     const SoftmaxShape& shape);
struct SpanUnits {
  int32_t columns = 0;
  int32_t per_thread = 0;
  bool has_edges = false;
};
SpanUnits span_units(const SoftmaxRequest& request, const SoftmaxProblem& problem, int32_t lanes);
int32_t span_rows_per_block(const SoftmaxShape& shape);
int64_t span_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape);
int64_t span_side_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape);

// row_in_shared: the chunks of a thread in shared memory, the bytes of all of a block's, in backward of both inputs,
// and where they start, after the exchange.
int64_t shared_row_slots(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape);
int64_t shared_row_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape);
int32_t shared_row_offset(const SoftmaxProblem& problem, const SoftmaxShape& shape);

}  // namespace flowk
