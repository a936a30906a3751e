// SPDX-License-Identifier: Apache-2.0
// A request as the files of plan/ share it; included nowhere else.
#pragma once

#include "elementwise/elementwise.h"

namespace flowk::elementwise {

// What was found by measurement. bench/tuning/elementwise_h200.json has the figures.
#include "elementwise/plan/elementwise_tuning.inc"

struct Problem {
  IterationSpace shape;  // strides in bytes
  int num_operands;
  int inner;  // the innermost dimension; -1: there is one element
  int64_t count;
  ElementwiseOperand operands[max_operands];  // what all mechanisms but contiguous begin with
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

// The dimension along which the most inputs have their neighbours, of inputs that have none in a row; -1: there is
// none.
int staged_dim(const Problem& problem);

// False: rows are not whole aligned packs, or share no input.
bool plan_broadcast_rows(const Problem& problem, const Device& device, ElementwisePlan* plan);

// Plans tiles that span dimension `dim`, which is staged_dim(), and the innermost one. Never fails.
bool plan_tiles(const Problem& problem, int dim, ElementwisePlan* plan);

}  // namespace flowk::elementwise
