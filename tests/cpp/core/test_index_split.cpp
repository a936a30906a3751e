// SPDX-License-Identifier: Apache-2.0
// split_index() against counting through the indices one by one.
#include <cstdint>

#include "check.h"
#include "core/index_split.h"

namespace {

using namespace flowk::core;

struct Dim {
  Divider divider;
  uint64_t extent;
};

constexpr uint32_t extents[] = {3, 1, 5, 2};
constexpr int max_dims = 4;

template <int kUnrolled, class Index>
void check_all(int rank) {
  Dim dims[max_dims];
  Index num_elements = 1;
  for (int d = 0; d < rank; ++d) {
    dims[d] = {Divider(extents[d]), extents[d]};
    num_elements *= extents[d];
  }
  uint64_t counted[max_dims] = {};  // innermost first
  for (Index linear = 0; linear < num_elements; ++linear) {
    int num_entered = 0;
    split_index<kUnrolled>(linear, dims, rank, [&](int d, Index index) {
      CHECK(d == num_entered++);
      CHECK(index == counted[d]);
    });
    CHECK(num_entered == rank);
    for (int d = 0; d < rank && ++counted[d] == extents[d]; ++d) counted[d] = 0;
  }
}

TEST(indices_count_up_innermost_first) {
  for (int rank = 0; rank <= max_dims; ++rank) {
    check_all<0, uint32_t>(rank);
    check_all<2, uint32_t>(rank);
    check_all<5, uint32_t>(rank);
    check_all<0, uint64_t>(rank);
  }
}

TEST(the_outermost_index_takes_what_is_left) {
  const Dim dims[2] = {{Divider(3), 3}, {Divider(5), 5}};
  uint64_t last = 0;
  split_index<0>(uint64_t{3} << 40, dims, 2, [&](int d, uint64_t index) { last = d == 1 ? index : last; });
  CHECK(last == uint64_t{1} << 40);
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
