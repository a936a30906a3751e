// SPDX-License-Identifier: Apache-2.0
// Several operands over the same indices, brought to the fewest dimensions: the form of simplify() for any number.
#pragma once

#include <cstdint>

#include "core/iteration_space.h"

namespace flowk::core {

constexpr int max_operands = 4;

// Operand 0 is the output. Strides are in elements of their operand.
struct OperandShape {
  int num_operands = 0;
  int rank = 0;
  int64_t extents[max_rank];
  int64_t strides[max_operands][max_rank];
  int64_t offsets[max_operands] = {};  // elements from the caller's pointer to the element with all indices 0
};

// Brings a shape without zero extents, whose output has no stride of 0 in an extent > 1, to its fewest dimensions over
// the same elements:
//   - no extent is 1, and every stride of the output is > 0 (a dimension is walked the other way round where it is
//   not);
//   - dimensions stand in the order of the output's strides, largest first;
//   - no two neighbours are one dimension to all operands.
void simplify(OperandShape* shape);

}  // namespace flowk::core
