// SPDX-License-Identifier: Apache-2.0
// Iteration spaces: the extents that operands share and each operand's strides, checked and brought to the fewest
// dimensions.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace flowk::core {

// One more than a caller may give: permute adds a dimension of two halves for misaligned complex numbers.
constexpr int max_rank = FLOWK_MAX_RANK + 1;

// One operand's memory: extents and strides, outermost first. Strides are in elements.
struct Layout {
  int rank = 0;
  int64_t extents[max_rank];
  int64_t strides[max_rank];
};

constexpr int max_operands = 4;

// Operands over the same indices. Operand 0 is the output. Strides are in elements of their operand.
struct IterationSpace {
  explicit IterationSpace(int operands = 0) : num_operands(operands) {}

  int num_operands;
  int rank = 0;
  int64_t extents[max_rank];
  int64_t strides[max_operands][max_rank];
  int64_t offsets[max_operands] = {};  // elements from the caller's pointer to the element with all indices 0
};

// Strides of a C-contiguous tensor.
void contiguous_strides(int rank, const int64_t* extents, int64_t* strides);

// Fails with SIZE_OVERFLOW unless the bytes of all elements, and every byte offset that the strides reach, fit int64_t.
Status check_size(const char* parameter, const Layout& layout, int64_t element_bytes);

// Fails with OVERLAP if two elements of `layout` may share memory: each |stride| must be larger than the offset that
// all smaller strides reach together.
Status check_no_self_overlap(const char* parameter, const Layout& layout);

// Fails with OVERLAP if an element of `a` and one of `b` share a byte. The search is exact and bounded; if it
// reaches its bound, the result is OVERLAP. Fails with SIZE_OVERFLOW if a layout leaves the address space.
Status check_no_overlap(const char* a_parameter, const void* a, const Layout& a_layout, int64_t a_element_bytes,
                        const char* b_parameter, const void* b, const Layout& b_layout, int64_t b_element_bytes);

// Brings a space without zero extents to its fewest dimensions, over the same tuples of elements:
//   - no extent is 1;
//   - strides[upward] >= 0, and strides[0] >= 0 where it is 0: a dimension that runs downwards is reversed;
//   - |strides[0]| falls or stays from one dimension to the next;
//   - no neighbours d, d + 1 could be one dimension: strides[k][d] == strides[k][d + 1] * extents[d + 1] for every k.
void simplify(IterationSpace* space, int upward = 0);

}  // namespace flowk::core
