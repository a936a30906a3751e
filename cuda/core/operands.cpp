// SPDX-License-Identifier: Apache-2.0
#include "core/operands.h"

#include <cstdlib>

namespace flowk::core {
namespace {

void move_dim(OperandShape* shape, int to, int from) {
  shape->extents[to] = shape->extents[from];
  for (int k = 0; k < shape->num_operands; ++k) shape->strides[k][to] = shape->strides[k][from];
}

bool is_one_dim(const OperandShape& shape, int outer, int inner) {
  for (int k = 0; k < shape.num_operands; ++k)
    if (shape.strides[k][outer] != shape.strides[k][inner] * shape.extents[inner]) return false;
  return true;
}

}  // namespace

void simplify(OperandShape* shape) {
  // Insertion sort in place: dimensions [0, rank) are sorted, and dimension d comes next.
  int rank = 0;
  for (int d = 0; d < shape->rank; ++d) {
    const int64_t extent = shape->extents[d];
    if (extent == 1) continue;
    int64_t strides[max_operands];
    const bool is_downward = shape->strides[0][d] < 0;
    for (int k = 0; k < shape->num_operands; ++k) {
      strides[k] = shape->strides[k][d];
      if (!is_downward) continue;
      shape->offsets[k] += strides[k] * (extent - 1);
      strides[k] = -strides[k];
    }
    int at = rank++;
    for (; at > 0 && shape->strides[0][at - 1] < strides[0]; --at) move_dim(shape, at, at - 1);
    shape->extents[at] = extent;
    for (int k = 0; k < shape->num_operands; ++k) shape->strides[k][at] = strides[k];
  }
  shape->rank = 0;
  for (int d = 0; d < rank; ++d) {
    if (shape->rank > 0 && is_one_dim(*shape, shape->rank - 1, d)) {
      const int64_t outer_extent = shape->extents[shape->rank - 1];
      move_dim(shape, shape->rank - 1, d);
      shape->extents[shape->rank - 1] *= outer_extent;
    } else {
      move_dim(shape, shape->rank++, d);
    }
  }
}

}  // namespace flowk::core
