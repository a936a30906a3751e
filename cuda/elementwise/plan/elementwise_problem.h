// SPDX-License-Identifier: Apache-2.0
// A request as the files of plan/ share it; included nowhere else.
#pragma once

#include "elementwise/elementwise.h"
#include "elementwise/plan/elementwise_tuning.h"

namespace flowk::elementwise {

struct Problem {
  IterationSpace shape;  // strides in bytes
  int num_operands;
  int inner;  // the innermost dimension; -1: there is one element
  int64_t count;
  ElementwiseOperand operands[max_operands];  // unless they are contiguous: as all mechanisms begin
};

// Threads of a problem that is too small to give each more than one pack or row.
inline int64_t small_problem_items(const Device& device) {
  return device.num_multiprocessors * small_problem_blocks * elementwise_threads;
}

// Are the first elements of all rows of operand k at multiples of `bytes`? Dimension `except` is ignored.
bool rows_are_aligned(const Problem& problem, const ElementwiseOperand& operand, int k, int64_t bytes, int except);

// The access of input k. `packs_start_whole`: packs start at multiples of `pack_elements` in every row.
ElementwiseAccess access_in_rows(const Problem& problem, const ElementwiseOperand& operand, int k,
                                 int32_t pack_elements, bool packs_start_whole);

// Describes the operands and the dimensions of the rows except `except`, innermost first.
void describe_rows(const Problem& problem, int except, StridedElementwiseParams<max_operands>* params);

// The dimension along which most inputs without neighbours in a row have them; -1 if there is none.
int staged_dim(const Problem& problem);

// False: rows are not whole aligned packs, or share no input.
bool plan_broadcast_rows(const Problem& problem, const Device& device, ElementwisePlan* plan);

// Plans tiles that span dimension `dim`, which is staged_dim(), and the innermost one. Never fails.
bool plan_tiles(const Problem& problem, int dim, ElementwisePlan* plan);

}  // namespace flowk::elementwise
