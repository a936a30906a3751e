// SPDX-License-Identifier: Apache-2.0
// Shapes: `simplify` by its post-condition, the checks against brute force, and Divider at the edges of its contract.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "core/divide.h"
#include "core/iteration_space.h"

namespace {

using flowk::core::check_no_self_overlap;
using flowk::core::check_size;
using flowk::core::Divider;
using flowk::core::IterationSpace;
using flowk::core::Layout;

// Of elements of one size.
flowk::core::Status check_no_overlap(const char* a_parameter, const void* a, const Layout& a_layout,
                                     const char* b_parameter, const void* b, const Layout& b_layout,
                                     int64_t element_bytes) {
  return flowk::core::check_no_overlap(a_parameter, a, a_layout, element_bytes, b_parameter, b, b_layout,
                                       element_bytes);
}

Layout make_layout(const std::vector<int64_t>& extents, const std::vector<int64_t>& strides) {
  Layout layout;
  layout.rank = static_cast<int>(extents.size());
  std::copy(extents.begin(), extents.end(), layout.extents);
  std::copy(strides.begin(), strides.end(), layout.strides);
  return layout;
}

// All vectors of `size` values of `values`.
void for_each_choice(int size, const std::vector<int64_t>& values,
                     const std::function<void(const std::vector<int64_t>&)>& body) {
  std::vector<int64_t> choice(static_cast<size_t>(size));
  const std::function<void(int)> choose = [&](int at) {
    if (at == size) return body(choice);
    for (const int64_t value : values) {
      choice[static_cast<size_t>(at)] = value;
      choose(at + 1);
    }
  };
  choose(0);
}

// Calls body(indices) for every index of the extents.
template <class Body>
void for_each_index(int rank, const int64_t* extents, const Body& body) {
  int64_t index[flowk::core::max_rank] = {};
  if (std::find(extents, extents + rank, 0) != extents + rank) return;
  for (;;) {
    body(index);
    int d = rank - 1;
    while (d >= 0 && ++index[d] == extents[d]) index[d--] = 0;
    if (d < 0) return;
  }
}

std::vector<int64_t> offsets_of(const Layout& layout) {
  std::vector<int64_t> offsets;
  for_each_index(layout.rank, layout.extents, [&](const int64_t* index) {
    offsets.push_back(std::inner_product(index, index + layout.rank, layout.strides, int64_t{0}));
  });
  return offsets;
}

// ---- simplify

// One tuple of offsets per index, sorted.
std::vector<std::vector<int64_t>> sorted_offsets_of(const IterationSpace& space) {
  std::vector<std::vector<int64_t>> tuples;
  for_each_index(space.rank, space.extents, [&](const int64_t* index) {
    std::vector<int64_t>& offsets = tuples.emplace_back();
    for (int k = 0; k < space.num_operands; ++k)
      offsets.push_back(std::inner_product(index, index + space.rank, space.strides[k], space.offsets[k]));
  });
  std::sort(tuples.begin(), tuples.end());
  return tuples;
}

bool is_simple(const IterationSpace& space, int upward) {
  for (int d = 0; d < space.rank; ++d) {
    if (space.extents[d] < 2 || space.strides[upward][d] < 0) return false;
    if (space.strides[upward][d] == 0 && space.strides[0][d] < 0) return false;
    if (d == 0) continue;
    if (std::abs(space.strides[0][d - 1]) < std::abs(space.strides[0][d])) return false;
    bool is_one_dim = true;
    for (int k = 0; k < space.num_operands; ++k)
      is_one_dim &= space.strides[k][d - 1] == space.strides[k][d] * space.extents[d];
    if (is_one_dim) return false;
  }
  return true;
}

void check_simplify(const IterationSpace& given) {
  for (int upward = 0; upward < given.num_operands; ++upward) {
    IterationSpace space = given;
    flowk::core::simplify(&space, upward);
    CHECK(is_simple(space, upward));
    CHECK(space.rank <= given.rank);
    CHECK(sorted_offsets_of(space) == sorted_offsets_of(given));
  }
}

// Strides of a dense tensor whose dimensions stand in memory in `order`, outermost first, with `padding` elements after
// each of the innermost.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& extents, const std::vector<int>& order,
                                   int64_t padding) {
  std::vector<int64_t> strides(extents.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto dim = static_cast<size_t>(order[i]);
    strides[dim] = stride;
    stride *= extents[dim] + (i + 1 == order.size() ? padding : 0);
  }
  return strides;
}

TEST(simplify_keeps_the_pairs_and_leaves_nothing_to_simplify) {
  int num_shapes = 0, sampled = 0;
  for (int rank = 0; rank <= 4; ++rank)
    for_each_choice(rank, {1, 2, 3}, [&](const std::vector<int64_t>& extents) {
      std::vector<int> order(static_cast<size_t>(rank));
      std::iota(order.begin(), order.end(), 0);
      const std::vector<int> dst_order = order;
      do {
        // For each dimension the signs of (src stride, dst stride): up or down, and src standing still.
        for_each_choice(rank, {0, 1, 2, 3, 4, 5}, [&](const std::vector<int64_t>& signs) {
          if (rank == 4 && ++sampled % 31 != 0) return;  // 31 has no factor in common with what it steps through
          const int64_t src_padding = num_shapes % 3 == 1, dst_padding = num_shapes % 5 == 2;
          const std::vector<int64_t> src = dense_strides(extents, order, src_padding);
          const std::vector<int64_t> dst = dense_strides(extents, dst_order, dst_padding);
          IterationSpace shape{2};
          shape.rank = rank;
          shape.offsets[0] = -7;
          shape.offsets[1] = 100;
          for (int d = 0; d < rank; ++d) {
            const auto i = static_cast<size_t>(d);
            const int64_t src_signs[] = {1, -1, 1, -1, 0, 0}, dst_signs[] = {1, 1, -1, -1, 1, -1};
            shape.extents[d] = extents[i];
            shape.strides[1][d] = src[i] * src_signs[signs[i]];
            shape.strides[0][d] = dst[i] * dst_signs[signs[i]];
          }
          check_simplify(shape);
          ++num_shapes;
        });
      } while (std::next_permutation(order.begin(), order.end()));
    });
  CHECK(num_shapes > 100000);
}

TEST(simplify_holds_for_any_small_strides) {  // dst strides that tie or are 0 among them
  for (int rank = 0; rank <= 2; ++rank)
    for_each_choice(rank, {1, 2, 3}, [&](const std::vector<int64_t>& extents) {
      for_each_choice(2 * rank, {-3, -2, -1, 0, 1, 2, 6}, [&](const std::vector<int64_t>& strides) {
        IterationSpace shape{2};
        shape.rank = rank;
        for (int d = 0; d < rank; ++d) {
          shape.extents[d] = extents[static_cast<size_t>(d)];
          shape.strides[1][d] = strides[static_cast<size_t>(d)];
          shape.strides[0][d] = strides[static_cast<size_t>(rank + d)];
        }
        check_simplify(shape);
      });
    });
}

TEST(simplify_holds_for_up_to_four_operands) {
  for (int num_operands = 1; num_operands <= flowk::core::max_operands; ++num_operands)
    for_each_choice(2, {1, 2}, [&](const std::vector<int64_t>& extents) {
      for_each_choice(2 * num_operands, {-2, 0, 1}, [&](const std::vector<int64_t>& strides) {
        IterationSpace space(num_operands);
        space.rank = 2;
        for (int d = 0; d < 2; ++d) {
          space.extents[d] = extents[static_cast<size_t>(d)];
          for (int k = 0; k < num_operands; ++k) space.strides[k][d] = strides[static_cast<size_t>(2 * k + d)];
        }
        check_simplify(space);
      });
    });
}

TEST(simplify_merges_rank_32_into_one_dimension) {
  IterationSpace shape{2};
  shape.rank = 32;
  for (int d = 0; d < 32; ++d) {
    shape.extents[d] = 2;
    shape.strides[1][d] = shape.strides[0][d] = int64_t{1} << (31 - d);
  }
  flowk::core::simplify(&shape);
  CHECK(shape.rank == 1 && shape.extents[0] == int64_t{1} << 32 && shape.strides[1][0] == 1 &&
        shape.strides[0][0] == 1);
}

TEST(contiguous_strides_are_c_order_and_stay_defined_where_they_overflow) {
  const int64_t extents[3] = {4, 0, 5}, huge[3] = {2, INT64_MAX, INT64_MAX};
  int64_t strides[3];
  flowk::core::contiguous_strides(3, extents, strides);
  CHECK(strides[2] == 1 && strides[1] == 5);
  flowk::core::contiguous_strides(3, huge, strides);
  CHECK(strides[2] == 1 && strides[1] == INT64_MAX);
}

// ---- the checks

bool last_error_names(const char* parameter) {
  return std::strstr(flowk::core::last_error_text(), parameter) != nullptr;
}

flowk_status size_status(const std::vector<int64_t>& extents, const std::vector<int64_t>& strides,
                         int64_t element_bytes) {
  return check_size("src", make_layout(extents, strides), element_bytes).code();
}

TEST(check_size_takes_the_last_byte_that_fits_and_not_one_more) {
  constexpr int64_t limit = INT64_MAX;
  constexpr flowk_status fits = FLOWK_STATUS_SUCCESS, overflows = FLOWK_STATUS_SIZE_OVERFLOW;
  CHECK(size_status({}, {}, 16) == fits);
  CHECK(size_status({limit}, {1}, 1) == fits);
  CHECK(size_status({limit}, {1}, 2) == overflows);
  CHECK(size_status({limit / 16}, {1}, 16) == fits);
  CHECK(size_status({limit / 16 + 1}, {1}, 16) == overflows);
  for (const int64_t sign : {1, -1}) {
    CHECK(size_status({2}, {sign * (limit - 1)}, 1) == fits);
    CHECK(size_status({2}, {sign * limit}, 1) == overflows);
    CHECK(size_status({2}, {sign * (limit / 2)}, 2) == overflows);
    CHECK(size_status({2}, {sign * (limit / 2 - 1)}, 2) == fits);
    CHECK(size_status({3, 2}, {sign * (limit / 4), limit / 2}, 1) == fits);
    CHECK(size_status({3, 3}, {sign * (limit / 4), limit / 2}, 1) == overflows);
  }
  CHECK(size_status({int64_t{1} << 32, int64_t{1} << 31}, {0, 0}, 1) ==
        overflows);  // too many, though they reach nothing
  CHECK(size_status({int64_t{1} << 31, int64_t{1} << 31}, {0, 0}, 1) == fits);
  CHECK(size_status({2}, {INT64_MIN}, 1) == overflows);
  CHECK(last_error_names("src"));
  CHECK(size_status({1}, {INT64_MIN}, 16) == fits);
  CHECK(size_status({0, limit, limit}, {limit, limit, INT64_MIN}, 16) == fits);
}

TEST(self_overlap_is_found_by_the_documented_rule_and_never_missed) {
  for (int rank = 0; rank <= 3; ++rank)
    for_each_choice(rank, {0, 1, 2, 3}, [&](const std::vector<int64_t>& extents) {
      for_each_choice(rank, {-4, -1, 0, 1, 2, 3, 6}, [&](const std::vector<int64_t>& strides) {
        const Layout layout = make_layout(extents, strides);
        std::vector<int64_t> offsets = offsets_of(layout);
        std::sort(offsets.begin(), offsets.end());
        const bool collides = std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end();
        bool steps_over = true;  // each stride over what those that are not larger reach
        for (size_t d = 0; d < extents.size() && !offsets.empty(); ++d) {
          int64_t reached = 0;
          for (size_t other = 0; other < extents.size(); ++other)
            if (other != d && extents[other] > 1 && std::abs(strides[other]) <= std::abs(strides[d]))
              reached += std::abs(strides[other]) * (extents[other] - 1);
          if (extents[d] > 1 && std::abs(strides[d]) <= reached) steps_over = false;
        }
        const flowk_status status = check_no_self_overlap("dst", layout).code();
        CHECK(status == (steps_over ? FLOWK_STATUS_SUCCESS : FLOWK_STATUS_OVERLAP));
        if (collides) CHECK(status == FLOWK_STATUS_OVERLAP);
      });
    });
}

bool share_a_byte(const char* a, const Layout& a_layout, const char* b, const Layout& b_layout, int64_t element_bytes) {
  const std::vector<int64_t> a_offsets = offsets_of(a_layout), b_offsets = offsets_of(b_layout);
  for (const int64_t from : a_offsets)
    for (const int64_t to : b_offsets)
      if (std::abs((a + from * element_bytes) - (b + to * element_bytes)) < element_bytes) return true;
  return false;
}

TEST(overlap_agrees_with_brute_force) {
  std::vector<Layout> layouts = {make_layout({}, {}), make_layout({0, 3}, {1, 1})};
  for (int rank = 1; rank <= 2; ++rank)
    for_each_choice(rank, rank == 1 ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{2, 3},
                    [&](const std::vector<int64_t>& extents) {
                      for_each_choice(rank, {-3, 0, 1, 2, 7}, [&](const std::vector<int64_t>& strides) {
                        layouts.push_back(make_layout(extents, strides));
                      });
                    });
  static char memory[1024];
  char* const a = memory + 512;
  for (const Layout& a_layout : layouts)
    for (const Layout& b_layout : layouts)
      for (const int64_t element_bytes : {1, 4})
        for (int64_t distance = -18; distance <= 18; distance += element_bytes == 1 ? 1 : 2) {
          const char* b =
              a + distance * (element_bytes == 1 ? 1 : 3);  // odd halves too: complex numbers may stand there
          const bool overlaps = share_a_byte(a, a_layout, b, b_layout, element_bytes);
          CHECK(check_no_overlap("src", a, a_layout, "dst", b, b_layout, element_bytes).code() ==
                (overlaps ? FLOWK_STATUS_OVERLAP : FLOWK_STATUS_SUCCESS));
        }
}

TEST(interleaved_slices_do_not_overlap_and_hard_cases_end) {
  static char memory[3 << 20];
  const auto status = [](const Layout& a, int64_t at_a, const Layout& b, int64_t at_b) {
    return check_no_overlap("src", memory + 4 * at_a, a, "dst", memory + 4 * at_b, b, 4).code();
  };
  const Layout even_columns = make_layout({256, 256}, {1024, 4});
  CHECK(status(even_columns, 0, even_columns, 1) == FLOWK_STATUS_SUCCESS);
  CHECK(status(even_columns, 0, even_columns, 4) == FLOWK_STATUS_OVERLAP);
  CHECK(last_error_names("src") && last_error_names("dst"));
  const Layout every_third = make_layout({100, 100, 100}, {30000, 300, 3}),
               transposed = make_layout({100, 100}, {3, 300});
  CHECK(status(every_third, 0, transposed, 2) == FLOWK_STATUS_SUCCESS);
  CHECK(status(every_third, 0, transposed, 3) == FLOWK_STATUS_OVERLAP);
  const Layout left_half = make_layout({256, 512}, {1024, 1});
  CHECK(status(left_half, 0, left_half, 512) == FLOWK_STATUS_SUCCESS);
  CHECK(status(left_half, 0, left_half, 511) == FLOWK_STATUS_OVERLAP);
  // Even strides never reach an odd distance, however many dimensions there are.
  std::vector<int64_t> extents(32, 3), strides(32);
  for (size_t d = 0; d < 32; ++d) strides[d] = 2 * static_cast<int64_t>(10 + d);
  const Layout many = make_layout(extents, strides);
  CHECK(status(many, 0, many, 1) == FLOWK_STATUS_SUCCESS);
  CHECK(status(many, 0, many, 2 * 10) == FLOWK_STATUS_OVERLAP);
  // No common divisor and no dense run: the search may give up, on the side of caution, but it must end.
  for (size_t d = 0; d < 32; ++d) strides[d] = 7 * static_cast<int64_t>(1000 + d * d) + (d == 31);
  const Layout hard = make_layout(extents, strides);
  CHECK(status(hard, 0, hard, 0) == FLOWK_STATUS_OVERLAP);
  (void)status(hard, 0, hard, 3);
}

// Two strides without a common divisor: elements that coincide would be at index i = i0 mod p of `b`, which is past its
// extent. The search gives up before it has tried every index.
TEST(a_search_over_one_long_dimension_ends) {
  constexpr int64_t p = 1'000'000'007, q = p + 2, extent = 10'000'000, i0 = 500'000'000, j0 = -490'000'000;
  const Layout a = make_layout({extent}, {p}), b = make_layout({extent}, {q});
  const auto at = [](int64_t address) { return reinterpret_cast<const void*>(address); };
  constexpr int64_t a_lowest = int64_t{1} << 58, b_highest = a_lowest + i0 * q + j0 * p;
  const void* const b_lowest = at(b_highest - (extent - 1) * q);
  CHECK(check_no_overlap("src", at(a_lowest), a, "dst", b_lowest, b, 1).code() == FLOWK_STATUS_OVERLAP);
  const Layout short_a = make_layout({1000}, {p}), short_b = make_layout({1000}, {q});
  const void* const between = at(a_lowest + 500 * p + 1);
  CHECK(check_no_overlap("src", at(a_lowest), short_a, "dst", between, short_b, 1).ok());
}

TEST(layout_that_leaves_the_address_space_is_a_size_overflow) {
  static char memory[64];
  const Layout one = make_layout({1}, {1});
  for (const auto& layout :
       {make_layout({INT64_MAX}, {1}), make_layout({2}, {INT64_MAX - 1}), make_layout({2}, {1 - INT64_MAX}),
        make_layout({2, 2}, {INT64_MAX / 2 - 1, -(INT64_MAX / 2)})}) {
    CHECK(check_size("src", layout, 1).ok());
    CHECK(check_no_overlap("src", memory, layout, "dst", memory, one, 1).code() == FLOWK_STATUS_SIZE_OVERFLOW);
    CHECK(last_error_names("src"));
    CHECK(check_no_overlap("src", memory, one, "dst", memory, layout, 1).code() == FLOWK_STATUS_SIZE_OVERFLOW);
    CHECK(last_error_names("dst"));
  }
}

// ---- Divider

TEST(divider_of_a_size_cut_to_zero_divides_by_one) { CHECK(Divider(0).divide(5) == 5 && Divider(0).divisor == 1); }

TEST(divider_is_exact) {
  constexpr uint32_t last = 0x7fffffffu;
  std::vector<uint32_t> divisors, numbers;
  for (uint32_t d = 1; d <= 2100; ++d) divisors.push_back(d);
  for (int bit = 0; bit <= 31; ++bit)
    for (int64_t near = -3; near <= 3; ++near) {
      const int64_t number = (int64_t{1} << bit) + near;
      if (number >= 1 && number <= int64_t{1} << 31) divisors.push_back(static_cast<uint32_t>(number));
      if (number >= 0 && number <= last) numbers.push_back(static_cast<uint32_t>(number));
    }
  for (const uint32_t d : {641u, 1000003u, 6700417u, 715827883u, 1431655765u, last - 1}) divisors.push_back(d);
  for (const uint32_t d : divisors) {
    const Divider divider(d);
    const auto is_exact = [&](uint32_t n) {
      uint32_t rest = n;
      return divider.divide(n) == n / d && flowk::core::take_index(&rest, divider) == n % d && rest == n / d;
    };
    for (const uint32_t n : numbers) CHECK(is_exact(n));
    // Both sides of the first, middle and last multiples.
    const uint32_t num_multiples = last / d;
    for (const uint32_t around : {0u, num_multiples / 2, num_multiples})
      for (uint32_t multiple = around < 3 ? 0 : around - 3; multiple <= around + 3 && multiple <= num_multiples;
           ++multiple)
        for (const int64_t near : {-1, 0, 1}) {
          const int64_t n = static_cast<int64_t>(multiple) * d + near;
          if (n >= 0 && n <= last) CHECK(is_exact(static_cast<uint32_t>(n)));
        }
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
