// SPDX-License-Identifier: Apache-2.0
// What the planner of permute is to choose on an H200: a row for every reason to choose a kernel, and for every edge of
// one.
#pragma once

#include <utility>
#include <vector>

#include "permute_case.h"

struct PermutePlanCase {
  flowk::permute::PermuteKernel kernel;
  PermuteCase row;
  bool wide_index = false;
};

inline std::vector<int64_t> repeated(int64_t extent, int rank) {
  return std::vector<int64_t>(static_cast<size_t>(rank), extent);
}

inline std::vector<int32_t> axes_in_order(int rank) {
  std::vector<int32_t> axes;
  for (int32_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

inline std::vector<int32_t> axes_reversed(int rank) {
  std::vector<int32_t> axes;
  for (int32_t axis = rank - 1; axis >= 0; --axis) axes.push_back(axis);
  return axes;
}

inline std::vector<PermutePlanCase> permute_plan_cases() {
  using enum flowk::permute::PermuteKernel;
  constexpr int64_t kilo = 1024, mega = 1024 * kilo, giga = 1024 * mega;
  return {
      // ---- one run on both sides
      {copy_shifted_rows, {"rank 0 is one element", 1, {}, {}}},
      {copy_rows, {"rank 0, the widest element", 16, {}, {}}},
      {copy_shifted_rows, {"rank 0, a complex number at half its size: a row of two", 16, {}, {}, 8, 8}},
      {copy_rows, {"nothing is permuted", 4, {kilo, kilo}, {0, 1}}},
      {copy_rows, {"only extents of 1 move", 4, {4, 1, 8, 1}, {1, 0, 3, 2}}},
      {copy_rows, {"both sides walk down", 4, {kilo, kilo}, {0, 1}, 0, 0, {-kilo, -1}, {-kilo, -1}}},
      {copy_rows,
       {"dimensions in the same odd order on both sides", 8, {4, 6, 10}, {1, 2, 0}, 0, 0, {1, 40, 4}, {40, 4, 1}}},
      {copy_rows, {"rank 32 merges into one dimension", 1, repeated(2, 32), axes_in_order(32)}},
      {copy_rows, {"the last index that fits 31 bits", 1, {32 * giga - 16}, {0}}},
      {copy_rows, {"the first that does not", 1, {32 * giga}, {0}}, true},
      {copy_rows, {"2^32 units: 0 in 32 bits", 1, {64 * giga}, {0}}, true},
      {copy_shifted_rows, {"one run, source not aligned", 4, {kilo, kilo}, {0, 1}, 4, 0}},
      {copy_shifted_rows, {"one run, destination not aligned", 1, {1000003}, {0}, 0, 1}},
      {copy_shifted_rows, {"one run of a length that is no vectors", 1, {1000003}, {0}}},
      {copy_shifted_rows, {"one byte of any strides", 1, {1, 1}, {1, 0}, 5, 3, {5, -5}, {5, 0}}},
      {copy_shifted_rows, {"one run of complex numbers at half their size", 16, {1000}, {0}, 8, 8}},
      {copy_shifted_rows, {"wide: one run of 2^35 + 1 bytes", 1, {32 * giga + 1}, {0}}, true},

      // ---- the last dimension stays last
      {copy_rows, {"rows of 128 bytes, three dimensions", 4, {64, 128, 32}, {1, 0, 2}}},
      {general_tile, {"shorter", 4, {64, 128, 28}, {1, 0, 2}}},
      {general_tile,
       {"source runs of 2 bytes, each of which takes 32 of shared memory",
        1,
        {20, 5, 2, 73},
        {0, 1, 2, 3},
        0,
        0,
        {4, 5840, 1, 80},
        {730, 146, 73, 1}}},
      {copy_rows, {"rows of 128 bytes, four dimensions: attention heads", 2, {8, 512, 16, 64}, {0, 2, 1, 3}}},
      {general_tile, {"shorter", 2, {8, 512, 16, 56}, {0, 2, 1, 3}}},
      {copy_rows, {"rows of 512 bytes, more dimensions", 4, {4, 8, 6, 5, 128}, {2, 0, 3, 1, 4}}},
      {general_tile, {"shorter", 4, {4, 8, 6, 5, 124}, {2, 0, 3, 1, 4}}},
      {copy_rows, {"rows of a padded matrix", 2, {100, 256}, {0, 1}, 0, 0, {264, 1}, {}}},
      {copy_rows, {"a row is broadcast", 4, {1000, kilo}, {0, 1}, 0, 0, {0, 1}, {}}},
      {copy_rows, {"rows walked from the last to the first", 4, {100, 256}, {0, 1}, 0, 0, {-256, 1}, {}}},
      {copy_rows, {"wide: 2^33 units", 4, {2 * kilo, kilo, 16 * kilo}, {1, 0, 2}}, true},
      {copy_rows, {"wide: 2^32 rows: 0 in 32 bits", 16, {2, 4 * giga, 8}, {1, 0, 2}}, true},
      {copy_shifted_rows, {"rows of 132 bytes with gaps", 4, {100, 33}, {0, 1}, 0, 0, {34, 1}, {35, 1}}},
      {general_tile, {"shorter", 4, {100, 31}, {0, 1}, 0, 0, {34, 1}, {35, 1}}},
      {copy_shifted_rows, {"rows of 4100 bytes, one after the other in dst", 4, {64, 10, 1025}, {1, 0, 2}}},
      {general_tile, {"shorter", 4, {64, 100, 1023}, {1, 0, 2}}},
      {copy_shifted_rows, {"rows of 257 bytes, one after the other in dst", 1, {64, 100, 257}, {1, 0, 2}}},
      {general_tile, {"shorter", 1, {64, 100, 255}, {1, 0, 2}}},
      {copy_shifted_rows, {"aligned rows, source not aligned", 4, {64, 128, 1024}, {1, 0, 2}, 4, 0}},
      {copy_shifted_rows, {"wide: 18 vectors for each of 2^31 rows", 1, {mega, 2 * kilo, 261}, {1, 0, 2}}, true},
      {copy_shifted_rows, {"wide: 2^32 rows: 0 in 32 bits", 1, {2, 4 * giga, 261}, {1, 0, 2}}, true},
      {general_tile, {"rows of 124 bytes that are not aligned", 1, {64, 100, 124}, {1, 0, 2}, 1, 0}},

      // ---- another dimension becomes last
      {aligned_tile, {"a matrix of bytes", 1, {4096, 4096}, {1, 0}}},
      {aligned_tile, {"a matrix of halfwords", 2, {4096, 4096}, {1, 0}}},
      {aligned_tile, {"a matrix of words", 4, {4096, 4096}, {1, 0}}},
      {aligned_tile, {"a matrix of 8 bytes", 8, {4096, 4096}, {1, 0}}},
      {aligned_tile, {"a matrix of 16 bytes, always aligned", 16, {1001, 999}, {1, 0}}},
      {aligned_tile, {"a batch of matrices", 4, {8, kilo, 512}, {0, 2, 1}}},
      {aligned_tile, {"2^32 words", 4, {64 * kilo, 64 * kilo}, {1, 0}}},
      {aligned_tile, {"2^33 bytes", 1, {64 * kilo, 128 * kilo}, {1, 0}}},
      {general_tile, {"odd extents", 4, {1001, 999}, {1, 0}}},
      {general_tile, {"source not aligned", 4, {kilo, kilo}, {1, 0}, 4, 0}},
      {general_tile, {"destination not aligned", 4, {kilo, kilo}, {1, 0}, 0, 8}},
      {general_tile, {"complex numbers of two floats at half their size", 8, {kilo, kilo}, {1, 0}, 4, 4}},
      {general_tile, {"complex numbers of two doubles, one side at half their size", 16, {kilo, kilo}, {1, 0}, 0, 8}},
      {general_tile, {"odd extents, more than 2^31 elements", 4, {50001, 50003}, {1, 0}}},
      {general_tile, {"a thin matrix", 4, {mega, 7}, {1, 0}}},
      {general_tile, {"thin and not aligned, the other way round", 2, {17, 100003}, {1, 0}}},
      {general_tile, {"a batch of tiny matrices", 4, {100000, 3, 3}, {0, 2, 1}}},
      {aligned_tile, {"(2,)^21 reversed: runs of many dimensions", 4, repeated(2, 21), axes_reversed(21)}},
      {general_tile, {"rank 32 reversed, 2^32 bytes", 1, repeated(2, 32), axes_reversed(32)}},
      {general_tile, {"rank 32 reversed, of halves of complex numbers", 16, repeated(2, 32), axes_reversed(32), 8, 8}},
      {aligned_tile, {"rank 6, where both runs are of whole vectors", 4, {32, 10, 14, 9, 11, 32}, {4, 2, 5, 1, 3, 0}}},
      {general_tile, {"rank 6 of odd extents", 4, {13, 9, 15, 9, 11, 7}, {4, 2, 5, 0, 3, 1}}},
      {general_tile, {"runs that share a dimension", 4, {64, 9, 7, 11}, {2, 1, 0, 3}}},
      {aligned_tile, {"a column is broadcast", 4, {kilo, 1000}, {0, 1}, 0, 0, {1, 0}, {}}},
      {general_tile, {"a matrix walked up in src and down in dst", 4, {1001, 999}, {1, 0}, 0, 0, {}, {-1001, 1}}},

      // ---- single bytes: another dimension becomes last, and src or dst is not aligned
      {byte_tile, {"odd extents", 1, {1001, 999}, {1, 0}}},
      {byte_tile, {"source not aligned", 1, {4096, 4096}, {1, 0}, 1, 0}},
      {byte_tile, {"destination not aligned", 1, {4096, 4096}, {1, 0}, 0, 1}},
      {byte_tile, {"runs of several dimensions", 1, {74, 78, 221, 14}, {2, 3, 1, 0}}},
      {byte_tile, {"more than 2^31 elements", 1, {50001, 50003}, {1, 0}}},
      {byte_tile, {"runs shorter than 16 bytes", 1, {mega, 13}, {1, 0}}},

      // ---- a side has no dimension of stride 1
      {strided_tile, {"every second element of either side", 4, {500, 600}, {1, 0}, 0, 0, {2400, 2}, {2000, 2}}},
      {strided_tile, {"every second element of dst", 1, {500, 600}, {0, 1}, 0, 0, {}, {1200, 2}}},
      {strided_tile, {"every second element of src", 8, {500, 600}, {1, 0}, 0, 0, {1200, 2}, {}}},
      {strided_tile, {"one element is broadcast", 2, {500, 600}, {1, 0}, 0, 0, {0, 0}, {}}},
      {strided_tile, {"one dimension, strided", 4, {100000}, {0}, 0, 0, {3}, {2}}},
      {copy_shifted_rows, {"one dimension, turned round", 4, {100000}, {0}, 0, 0, {-1}, {1}}},
      {copy_shifted_rows, {"rows turned round, not aligned", 2, {300, 777}, {0, 1}, 2, 6, {777, -1}, {780, 1}}},
      {copy_shifted_rows, {"wide: 2^32 vectors turned round", 1, {64 * giga}, {0}, 0, 0, {-1}, {1}}, true},
      {strided_tile, {"short rows turned round", 4, {1000, 9, 3}, {1, 0, 2}, 0, 0, {27, 3, -1}, {}}},
      {aligned_tile, {"rows walked down in src", 4, {1024, 2048}, {1, 0}, 0, 0, {-2048, 1}, {}}},
      {aligned_tile, {"columns walked down in dst", 4, {2048, 512}, {1, 0}, 0, 0, {}, {2048, -1}}},
      {strided_tile,
       {"more than 2^31 elements", 2, {64 * kilo, 64 * kilo}, {1, 0}, 0, 0, {128 * kilo, 2}, {128 * kilo, 2}}},

      // ---- planes and pixels
      {channels, {"NCHW to NHWC", 4, {8, 3, 224 * 224}, {0, 2, 1}}},
      {channels, {"bytes", 1, {8, 3, 224 * 224}, {0, 2, 1}}},
      {channels, {"planes of two", 2, {2, 100000}, {1, 0}}},
      {channels, {"RGB planes become BGR pixels", 1, {8, 3, 224 * 224}, {0, 2, 1}, 0, 0, {}, {3 * 224 * 224, 3, -1}}},
      {channels, {"more than 2^31 elements", 1, {128 * kilo, 3, 16 * kilo}, {0, 2, 1}}},
      {channels, {"NHWC to NCHW", 4, {8, 224 * 224, 3}, {0, 2, 1}}},
      {channels, {"four channels of 8 bytes", 8, {10000, 4}, {1, 0}}},
      {channels, {"more than 2^31 elements", 2, {128 * kilo, 16 * kilo, 3}, {0, 2, 1}}},
      {general_tile, {"planes of an odd length", 1, {8, 3, 1001}, {0, 2, 1}}},
      {general_tile, {"pixels of five channels", 4, {8, 224 * 224, 5}, {0, 2, 1}}},
  };
}
