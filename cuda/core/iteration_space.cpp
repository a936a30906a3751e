// SPDX-License-Identifier: Apache-2.0
#include "core/iteration_space.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "core/text_writer.h"

namespace flowk::core {
namespace {

// The lowest and highest offset that a layout reaches, in elements. Precondition: check_size() passed.
struct Reach {
  int64_t lowest = 0;
  int64_t highest = 0;
};

Reach reach_of(const Layout& layout) {
  Reach reach;
  for (int d = 0; d < layout.rank; ++d) {
    const int64_t span = (layout.extents[d] - 1) * layout.strides[d];
    (span < 0 ? reach.lowest : reach.highest) += span;
  }
  return reach;
}

bool is_empty(const Layout& layout) {
  return std::any_of(layout.extents, layout.extents + layout.rank, [](int64_t extent) { return extent == 0; });
}

// A term `stride * index` of an offset, 0 <= index < extent, stride > 0.
struct Term {
  int64_t stride;
  int64_t extent;
  int64_t divisor;  // of this stride and all smaller ones
};

// Do some indices give a sum of terms in [lowest, highest]? Terms are sorted by stride, largest first, and `remaining`
// is the largest sum. `steps` bounds the work: after that many the result is true.
bool some_sum_in(const Term* terms, int num_terms, int64_t remaining, int64_t lowest, int64_t highest, int* steps) {
  if (--*steps < 0) return true;
  lowest = std::max<int64_t>(lowest, 0);
  highest = std::min(highest, remaining);
  if (lowest > highest) return false;
  if (num_terms == 0) return true;  // nothing remains, so both are 0
  const Term term = terms[0];
  if (highest / term.divisor * term.divisor < lowest) return false;  // sums are multiples of it
  if (num_terms == 1) return true;
  const int64_t rest = remaining - term.stride * (term.extent - 1);
  const int64_t first = lowest <= rest ? 0 : (lowest - rest + term.stride - 1) / term.stride;
  const int64_t last = std::min(term.extent - 1, highest / term.stride);
  for (int64_t index = first; index <= last; ++index) {
    const int64_t taken = index * term.stride;
    if (some_sum_in(terms + 1, num_terms - 1, rest, lowest - taken, highest - taken, steps)) return true;
  }
  return false;
}

// Merges terms without changing the set of sums, sorts them by stride, largest first, and fills in their divisors. Term
// (k * s, m) merges into (s, n) if k <= n: together they reach the multiples of s below n + k * (m - 1). The same
// dimension of two tensors always merges; so do the dimensions of a contiguous tensor.
void merge_terms(Term* terms, int* num_terms) {
  std::sort(terms, terms + *num_terms, [](const Term& x, const Term& y) { return x.stride < y.stride; });
  int num_merged = 0;
  for (int i = 0; i < *num_terms; ++i) {
    const Term term = terms[i];
    Term* const into = std::find_if(terms, terms + num_merged, [&](const Term& other) {
      return term.stride % other.stride == 0 && term.stride / other.stride <= other.extent;
    });
    if (into == terms + num_merged)
      terms[num_merged++] = term;
    else
      into->extent += term.stride / into->stride * (term.extent - 1);
  }
  *num_terms = num_merged;
  for (int i = 0; i < num_merged; ++i) terms[i].divisor = std::gcd(terms[i].stride, i > 0 ? terms[i - 1].divisor : 0);
  std::reverse(terms, terms + num_merged);
}

// The addresses of a tensor's lowest and highest elements. Addresses above 2^60 are refused, so that the sum of two
// tensors' offsets fits int64_t.
Status find_addresses(const char* parameter, const void* pointer, const Layout& layout, int64_t element_bytes,
                      int64_t* lowest, int64_t* highest) {
  constexpr int64_t limit = int64_t{1} << 60;
  const Reach reach = reach_of(layout);
  const int64_t address = reinterpret_cast<intptr_t>(pointer);
  if (__builtin_add_overflow(address, reach.lowest * element_bytes, lowest) ||
      __builtin_add_overflow(address, reach.highest * element_bytes, highest) || *lowest < 0 || *highest > limit)
    return Status::failure(
        FLOWK_STATUS_SIZE_OVERFLOW,
        "%s = %p: its strides reach from %lld to %lld bytes from it, must stay in addresses 0 ... 2^60", parameter,
        pointer, static_cast<long long>(reach.lowest * element_bytes),
        static_cast<long long>(reach.highest * element_bytes));
  return {};
}

void add_terms(const Layout& layout, int64_t element_bytes, Term* terms, int* num_terms) {
  for (int d = 0; d < layout.rank; ++d)
    if (layout.extents[d] > 1 && layout.strides[d] != 0)
      terms[(*num_terms)++] = {std::abs(layout.strides[d]) * element_bytes, layout.extents[d], 0};
}

void move_dim(IterationSpace* space, int to, int from) {
  space->extents[to] = space->extents[from];
  for (int k = 0; k < space->num_operands; ++k) space->strides[k][to] = space->strides[k][from];
}

bool is_one_dim(const IterationSpace& space, int outer, int inner) {
  for (int k = 0; k < space.num_operands; ++k)
    if (space.strides[k][outer] != space.strides[k][inner] * space.extents[inner]) return false;
  return true;
}

}  // namespace

void contiguous_strides(int rank, const int64_t* extents, int64_t* strides) {
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    strides[d] = stride;
    // check_size() reports an overflow; here it must only be defined.
    if (__builtin_mul_overflow(stride, std::max<int64_t>(extents[d], 1), &stride)) stride = INT64_MAX;
  }
}

Status check_size(const char* parameter, const Layout& layout, int64_t element_bytes) {
  if (is_empty(layout)) return {};
  int64_t total_bytes = element_bytes;
  int64_t reach_bytes = element_bytes;
  for (int d = 0; d < layout.rank; ++d) {
    const int64_t extent = layout.extents[d];
    const int64_t stride = layout.strides[d];
    if (extent == 1) continue;  // its stride reaches nothing
    int64_t span = 0;
    const bool overflows = stride == INT64_MIN || __builtin_mul_overflow(total_bytes, extent, &total_bytes) ||
                           __builtin_mul_overflow(std::abs(stride), extent - 1, &span) ||
                           __builtin_mul_overflow(span, element_bytes, &span) ||
                           __builtin_add_overflow(reach_bytes, span, &reach_bytes);
    if (overflows)
      return Status::failure(FLOWK_STATUS_SIZE_OVERFLOW,
                             "%s: extent %lld with stride %lld in dimension %d takes it past 2^63 - 1 bytes", parameter,
                             static_cast<long long>(extent), static_cast<long long>(stride), d);
  }
  return {};
}

Status check_no_self_overlap(const char* parameter, const Layout& layout) {
  if (is_empty(layout)) return {};
  int order[max_rank];
  int rank = 0;
  for (int d = 0; d < layout.rank; ++d) {
    if (layout.extents[d] == 1) continue;
    int at = rank++;
    for (; at > 0 && std::abs(layout.strides[order[at - 1]]) > std::abs(layout.strides[d]); --at)
      order[at] = order[at - 1];
    order[at] = d;
  }
  int64_t reached = 0;  // by the strides so far
  for (int i = 0; i < rank; ++i) {
    const int d = order[i];
    const int64_t step = std::abs(layout.strides[d]);
    if (step <= reached)
      return Status::failure(
          FLOWK_STATUS_OVERLAP,
          "%s: stride %lld of dimension %d must step over the %lld element%s that smaller strides reach", parameter,
          static_cast<long long>(layout.strides[d]), d, static_cast<long long>(reached + 1), plural(reached + 1));
    reached += step * (layout.extents[d] - 1);
  }
  return {};
}

Status check_no_overlap(const char* a_parameter, const void* a, const Layout& a_layout, int64_t a_element_bytes,
                        const char* b_parameter, const void* b, const Layout& b_layout, int64_t b_element_bytes) {
  if (is_empty(a_layout) || is_empty(b_layout)) return {};
  int64_t a_lowest = 0, a_highest = 0, b_lowest = 0, b_highest = 0;
  FLOWK_RETURN_IF_ERROR(find_addresses(a_parameter, a, a_layout, a_element_bytes, &a_lowest, &a_highest));
  FLOWK_RETURN_IF_ERROR(find_addresses(b_parameter, b, b_layout, b_element_bytes, &b_lowest, &b_highest));
  if (a_highest + a_element_bytes <= b_lowest || b_highest + b_element_bytes <= a_lowest) return {};

  // They share a byte iff -a_element_bytes < (a_offset + b_offset) - distance < b_element_bytes for some elements, with
  // a_offset counted up from a_lowest, b_offset down from b_highest, and distance = b_highest - a_lowest.
  Term terms[2 * max_rank];
  int num_terms = 0;
  add_terms(a_layout, a_element_bytes, terms, &num_terms);
  add_terms(b_layout, b_element_bytes, terms, &num_terms);
  merge_terms(terms, &num_terms);
  const int64_t distance = b_highest - a_lowest;
  const int64_t remaining = (a_highest - a_lowest) + (b_highest - b_lowest);
  int steps = 10000;
  if (!some_sum_in(terms, num_terms, remaining, distance - (a_element_bytes - 1), distance + (b_element_bytes - 1),
                   &steps))
    return {};
  const int64_t a_bytes = a_highest - a_lowest + a_element_bytes, b_bytes = b_highest - b_lowest + b_element_bytes;
  return Status::failure(
      FLOWK_STATUS_OVERLAP, "%s (%lld byte%s from %p) overlaps %s (%lld byte%s from %p), must not share an element",
      b_parameter, static_cast<long long>(b_bytes), plural(b_bytes), reinterpret_cast<const void*>(b_lowest),
      a_parameter, static_cast<long long>(a_bytes), plural(a_bytes), reinterpret_cast<const void*>(a_lowest));
}

void simplify(IterationSpace* space, int upward) {
  // Insertion sort in place: dimensions [0, rank) are sorted, and dimension d comes next.
  int rank = 0;
  for (int d = 0; d < space->rank; ++d) {
    const int64_t extent = space->extents[d];
    if (extent == 1) continue;
    int64_t strides[max_operands];
    const int64_t direction = space->strides[space->strides[upward][d] == 0 ? 0 : upward][d];
    for (int k = 0; k < space->num_operands; ++k) {
      strides[k] = space->strides[k][d];
      if (direction >= 0) continue;
      space->offsets[k] += strides[k] * (extent - 1);
      strides[k] = -strides[k];
    }
    int at = rank++;
    for (; at > 0 && std::abs(space->strides[0][at - 1]) < std::abs(strides[0]); --at) move_dim(space, at, at - 1);
    space->extents[at] = extent;
    for (int k = 0; k < space->num_operands; ++k) space->strides[k][at] = strides[k];
  }
  space->rank = 0;
  for (int d = 0; d < rank; ++d) {
    const int outer = space->rank - 1;
    const bool merges = outer >= 0 && is_one_dim(*space, outer, d);
    const int64_t outer_extent = merges ? space->extents[outer] : 1;
    const int at = merges ? outer : space->rank++;
    move_dim(space, at, d);
    space->extents[at] *= outer_extent;
  }
}

}  // namespace flowk::core
