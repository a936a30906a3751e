// SPDX-License-Identifier: Apache-2.0
// Strided shapes: the extents that operands share and each operand's strides, checked and brought to the fewest
// dimensions.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace flowk::core {

// One more than a caller may give: permute counts a complex number as a dimension of two halves where it must.
constexpr int max_rank = FLOWK_MAX_RANK + 1;

// One operand's memory: extents and strides, outermost first. Strides are in elements.
struct Layout {
  int rank = 0;
  int64_t extents[max_rank];
  int64_t strides[max_rank];
};

// Two operands over the same indices: dst[i] takes from src[i].
struct PairShape {
  int rank = 0;
  int64_t extents[max_rank];
  int64_t src_strides[max_rank];
  int64_t dst_strides[max_rank];
  int64_t src_offset = 0;  // elements from the caller's pointer to the element with all indices 0
  int64_t dst_offset = 0;
};

// Strides of a C-contiguous tensor.
void contiguous_strides(int rank, const int64_t* extents, int64_t* strides);

// Fails with SIZE_OVERFLOW unless the bytes of all elements, and every byte offset that the strides reach, fit int64_t.
Status check_size(const char* parameter, const Layout& layout, int64_t element_bytes);

// Fails with OVERLAP if two elements of `layout` may share memory: strides, taken by size, must each step over all that
// the smaller ones reach.
Status check_no_self_overlap(const char* parameter, const Layout& layout);

// Fails with OVERLAP if an element of `a` and one of `b` share a byte. Decided exactly within a bounded search; a case
// that the search cannot settle counts as an overlap. Fails with SIZE_OVERFLOW where a layout leaves the address space.
Status check_no_overlap(const char* a_parameter, const void* a, const Layout& a_layout, int64_t a_element_bytes,
                        const char* b_parameter, const void* b, const Layout& b_layout, int64_t b_element_bytes);

// The same for elements of one size.
inline Status check_no_overlap(const char* a_parameter, const void* a, const Layout& a_layout, const char* b_parameter,
                               const void* b, const Layout& b_layout, int64_t element_bytes) {
  return check_no_overlap(a_parameter, a, a_layout, element_bytes, b_parameter, b, b_layout, element_bytes);
}

// Brings a shape without zero extents to its fewest dimensions, over the same pairs of elements:
//   - no extent is 1; every src stride is >= 0 (a dimension is walked the other way round where it is negative),
//     and so is the dst stride where the src stride is 0;
//   - dimensions stand in the order of their dst strides by size, largest first;
//   - no two neighbours are one dimension to both operands: not (outer stride == inner stride * inner extent) in both.
void simplify(PairShape* shape);

}  // namespace flowk::core
