// SPDX-License-Identifier: Apache-2.0
// An elementwise request as its planners see it: shared by elementwise_plan.cpp and elementwise_tile_plan.cpp, included
// nowhere else.
#pragma once

#include "elementwise/elementwise.h"

namespace flowk::elementwise {

struct Problem {
  OperandShape shape;  // strides in bytes
  int num_operands;
  int inner;  // the innermost dimension, -1: one element
  int64_t count;
};

// Is every row of operand k, and its first element, at a multiple of `bytes`? Dimension `except` aside.
bool rows_are_aligned(const Problem& problem, const ElementwiseOperand& operand, int k, int64_t bytes, int except);

// The rows' dimensions but for `except`, innermost first.
void describe_rows(const Problem& problem, int except, ElementwiseRows<max_operands>* rows);

// How input k is loaded where packs start at multiples of `pack_elements` in every row (`packs_start_whole`).
ElementwiseAccess access_in_rows(const Problem& problem, const ElementwiseOperand& operand, int k,
                                 int32_t pack_elements, bool packs_start_whole);

// The dimension along which most inputs that have no neighbours in a row have them: -1 if there is none.
int staged_dim(const Problem& problem, const ElementwiseOperand* operands);

// Leaves a plan of broadcast_rows, if rows are whole aligned packs and share an input; plan->strided has the operands.
bool plan_broadcast_rows(const Problem& problem, const Device& device, ElementwisePlan* plan);

// Leaves a plan of tiles of dimension `dim` and the innermost one; plan->strided has the operands.
void plan_tiles(const Problem& problem, int dim, ElementwisePlan* plan);

}  // namespace flowk::elementwise
