// SPDX-License-Identifier: Apache-2.0
// Small problems that reach every path of the kernels of permute: each is run with every tile that the planner may
// choose.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "permute_case.h"

inline std::vector<PermuteCase> permute_kernel_cases() {
  std::vector<PermuteCase> rows = {
      // ---- copies
      {"rank 0", 1, {}, {}, 3, 5},
      {"rank 0, two halves", 16, {}, {}, 8, 8},
      {"one run of vectors, more than a block", 16, {300}, {0}},
      {"one run, shifted by 3", 1, {5000}, {0}, 8, 5},
      {"one run, shifted by 13, shorter than a vector", 1, {7}, {0}, 3, 6},
      {"one run, shifted by one element", 4, {1001}, {0}, 0, 12},
      {"rows of vectors", 4, {5, 7, 32}, {1, 0, 2}},
      {"padded rows of vectors", 2, {9, 64}, {0, 1}, 16, 32, {72, 1}, {80, 1}},
      {"broadcast rows", 8, {9, 32}, {0, 1}, 0, 0, {0, 1}, {}},
      {"odd rows, shifted anyhow", 1, {5, 6, 133}, {1, 0, 2}, 7, 2},
      {"odd rows of halfwords", 2, {5, 6, 71}, {1, 0, 2}, 2, 6},
      {"rows walked down, of complex numbers at half their size", 16, {6, 5, 9}, {1, 0, 2}, 8, 8, {-45, 9, 1}, {}},

      // ---- transposes with aligned sides, and short last tiles on both
      {"bytes", 1, {208, 144}, {1, 0}},
      {"halfwords", 2, {104, 88}, {1, 0}},
      {"words", 4, {68, 76}, {1, 0}},
      {"8 bytes", 8, {50, 38}, {1, 0}},
      {"16 bytes", 16, {21, 27}, {1, 0}},
      {"a batch, runs of several dimensions", 4, {3, 4, 8, 4, 6}, {0, 4, 2, 3, 1}},
      {"source rows padded to vectors", 2, {40, 48}, {1, 0}, 16, 0, {56, 1}, {}},

      // ---- the same at any alignment
      {"odd bytes", 1, {131, 117}, {1, 0}, 3, 5},
      {"odd halfwords", 2, {67, 93}, {1, 0}, 2, 6},
      {"odd words", 4, {45, 51}, {1, 0}, 4, 12},
      {"odd 8 bytes", 8, {31, 37}, {1, 0}, 8, 24},
      {"destination at a vector but not at a sector", 4, {64, 44}, {1, 0}, 0, 16},
      {"source aligned, destination not", 4, {40, 64}, {1, 0}, 0, 4},
      {"destination aligned, source not", 2, {64, 40}, {1, 0}, 2, 0},
      {"long odd rows on both sides", 1, {700, 9}, {1, 0}, 1, 1},
      {"complex numbers of two floats at half their size", 8, {23, 29}, {1, 0}, 4, 12},
      {"complex numbers of two doubles at half their size", 16, {13, 17}, {1, 0}, 8, 0},
      {"thin", 2, {7, 501}, {1, 0}},
      {"thin the other way round", 4, {501, 3}, {1, 0}},

      // ---- bytes by words, in two steps: source rows 1, 2, 4, 8, 16 and 32 bytes apart in banks
      {"rows of an odd number of bytes, both runs cut", 1, {701, 333}, {1, 0}, 1, 3},
      {"rows of 2 bytes more than a multiple of 4", 1, {301, 262}, {1, 0}, 0, 1},
      {"rows of 4 bytes more than a multiple of 8", 1, {301, 260}, {1, 0}, 2, 0},
      {"rows of 8 bytes more than a multiple of 16", 1, {203, 264}, {1, 0}, 8, 0},
      {"rows of vectors, columns not aligned", 1, {203, 272}, {1, 0}},
      {"rows of lines, columns not aligned", 1, {203, 256}, {1, 0}, 0, 5},
      {"rows of lines that start in a vector, columns aligned", 1, {208, 256}, {1, 0}, 3, 0},
      {"the shortest runs by words", 1, {17, 16}, {1, 0}, 1, 1},
      {"destination runs of three dimensions", 1, {7, 67, 3, 5, 11}, {3, 4, 2, 0, 1}, 1, 2},
      {"destination runs of three dimensions, padded on both sides",
       1,
       {5, 6, 7, 90},
       {3, 1, 0, 2},
       3,
       1,
       {4400, 713, 101, 1},
       {223, 36, 7, 1}},
      {"destination rows walked down", 1, {211, 150}, {1, 0}, 0, 2, {}, {-217, 1}},
      {"source rows of two dimensions", 1, {113, 9, 21}, {1, 2, 0}, 5, 0},
      {"destination rows of which every 21st follows the one before", 1, {67, 5, 21}, {2, 1, 0}, 1, 2},
      {"destination rows that follow one another inside src's run", 1, {35, 6, 5, 21}, {1, 3, 2, 0}, 1, 2},
      {"destination rows that follow one another along the dimension that cuts src", 1, {35, 60, 21}, {2, 1, 0}, 1, 2},
      {"source rows that stand still", 1, {90, 3, 70}, {2, 0, 1}, 1, 0, {70, 0, 1}, {}},

      // ---- runs of several dimensions, and runs that share one
      {"rank 4", 4, {5, 6, 7, 8}, {2, 0, 3, 1}},
      {"rank 5 of bytes", 1, {5, 4, 3, 6, 7}, {3, 1, 4, 0, 2}},
      {"rank 5 of halfwords, aligned source", 2, {4, 5, 3, 4, 16}, {4, 1, 3, 0, 2}},
      {"one dimension is in both runs", 4, {3, 40, 2}, {2, 1, 0}},
      {"one dimension cuts both runs", 4, {3, 700, 2}, {2, 1, 0}},
      {"one dimension of bytes cuts both runs", 1, {5, 901, 3}, {2, 1, 0}, 1, 2},
      {"the last dimension cuts both runs", 1, {3, 5, 301}, {1, 0, 2}, 5, 3},
      {"a short last dimension stays last", 4, {20, 30, 3}, {1, 0, 2}},
      {"attention heads", 2, {2, 12, 5, 16}, {0, 2, 1, 3}},
      {"(2,)^11 reversed", 2, std::vector<int64_t>(11, 2), {10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},

      // ---- rows that both sides share: batches of small matrices
      {"a batch of padded 6 x 5 matrices", 4, {70, 6, 5}, {0, 2, 1}, 4, 0, {48, 7, 1}, {}},
      {"a batch of 3 x 3 matrices of bytes", 1, {2000, 3, 3}, {0, 2, 1}},
      {"a batch of padded 4 x 4 matrices on both sides",
       2,
       {9, 60, 4, 4},
       {1, 0, 3, 2},
       0,
       2,
       {1500, 24, 5, 1},
       {300, 32, 6, 1}},
      {"a batch that dst walks down", 8, {30, 4, 6}, {0, 2, 1}, 0, 0, {}, {-24, 4, 1}},

      // ---- strides
      {"every second element of either side", 4, {70, 75}, {1, 0}, 0, 0, {160, 2}, {141, 2}},
      {"every third byte of src", 1, {70, 65}, {1, 0}, 1, 2, {200, 3}, {}},
      {"every second element of dst", 16, {20, 33}, {0, 1}, 0, 0, {}, {70, 2}},
      {"one dimension, strided", 2, {3000}, {0}, 0, 2, {3}, {2}},
      {"one dimension, turned round", 1, {3000}, {0}, 0, 3, {-1}, {1}},
      {"both dimensions walked down in src", 4, {50, 45}, {1, 0}, 4, 0, {-45, -1}, {}},
      {"rows walked down in dst", 2, {50, 45}, {1, 0}, 0, 2, {}, {-50, 1}},
      {"columns walked down in dst", 8, {30, 25}, {1, 0}, 0, 0, {}, {30, -1}},
      {"a column is broadcast", 4, {40, 50}, {0, 1}, 0, 0, {1, 0}, {}},
      {"one element is broadcast", 2, {40, 50}, {1, 0}, 2, 2, {0, 0}, {}},
      {"src overlaps itself: sliding windows", 4, {30, 16}, {1, 0}, 0, 0, {2, 1}, {}},

      // ---- planes and pixels that no channel kernel takes
      {"odd planes", 1, {2, 3, 701}, {0, 2, 1}, 1, 0},
      {"pixels of 5 channels", 4, {2, 150, 5}, {0, 2, 1}},
  };
  // Every element size and number of channels, with a plane of more than one block and a short last one.
  for (const int32_t bytes : {1, 2, 4, 8, 16})
    for (const int64_t channels : {2, 3, 4}) {
      const int64_t pixels = (4096 + 400) / bytes / 16 * 16;
      rows.push_back({"planes to pixels", bytes, {2, channels, pixels}, {0, 2, 1}, 0, 16});
      rows.push_back({"pixels to planes", bytes, {2, pixels, channels}, {0, 2, 1}, 48, 0});
      rows.push_back(
          {"planes to pixels, last channel first", bytes, {channels, pixels}, {1, 0}, 0, 0, {}, {channels, -1}});
      rows.push_back({"pixels to planes, last plane first", bytes, {pixels, channels}, {1, 0}, 0, 0, {}, {-pixels, 1}});
    }
  // Rows of every rank that copy_rows is compiled for, and one more.
  for (int32_t rank = 2; rank <= 7; ++rank) {
    PermuteCase row = {"rows of 512 bytes of any rank", 4, {}, {}};
    for (int32_t d = 0; d + 1 < rank; ++d) {
      row.shape.push_back(d == 0 ? 3 : 2);
      row.axes.push_back(rank - 2 - d);
    }
    row.shape.push_back(128);
    row.axes.push_back(rank - 1);
    if (rank == 2) row.src_strides = {136, 1};
    rows.push_back(row);
  }
  return rows;
}

// A permute of rank 1 ... 5 with anything that a caller may ask for in it.
inline PermuteCase drawn_permute_case(unsigned seed) {
  std::minstd_rand random(seed + 1);
  const auto draw = [&](int below) { return static_cast<int>(random() >> 8) % below; };
  PermuteCase row;
  row.why = "drawn";
  row.element_bytes = 1 << draw(5);
  const int rank = 1 + draw(5);
  const int largest[] = {0, 200, 40, 15, 9, 6};
  for (int d = 0; d < rank; ++d) {
    row.shape.push_back(1 + draw(largest[rank]));
    row.axes.push_back(d);
  }
  const auto shuffle = [&](std::vector<int32_t>* values) {
    for (int i = rank - 1; i > 0; --i)
      std::swap((*values)[static_cast<size_t>(i)], (*values)[static_cast<size_t>(draw(i + 1))]);
  };
  // Dimensions in any order in memory, now and then padded or walked down; those of src now and then standing still.
  const auto draw_strides = [&](bool is_dst) {
    std::vector<int32_t> order = row.axes;
    std::sort(order.begin(), order.end());
    if (draw(3) == 0) shuffle(&order);
    std::vector<int64_t> strides(static_cast<size_t>(rank));
    int64_t stride = draw(6) == 0 ? 2 : 1;
    for (int i = rank - 1; i >= 0; --i) {
      const auto d = static_cast<size_t>(order[static_cast<size_t>(i)]);
      const int64_t extent = row.shape[is_dst ? static_cast<size_t>(row.axes[d]) : d];
      strides[d] = draw(5) == 0 ? -stride : !is_dst && draw(12) == 0 ? 0 : stride;
      stride = stride * extent + (draw(4) == 0 ? draw(5) : 0);
    }
    return strides;
  };
  shuffle(&row.axes);
  if (draw(3) > 0) row.src_strides = draw_strides(false);
  if (draw(3) == 0) row.dst_strides = draw_strides(true);
  const int step = row.element_bytes >= 8 && draw(2) == 0 ? row.element_bytes / 2 : row.element_bytes;
  row.src_lead_bytes = draw(2) * step * draw(128 / step);
  row.dst_lead_bytes = draw(2) * step * draw(128 / step);
  return row;
}
