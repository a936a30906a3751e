// SPDX-License-Identifier: Apache-2.0
// Small problems that reach every path of the kernels of permute: a table, and drawn ones.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "permute_case.h"

// tests/cases/permute_cases.json
inline const std::vector<PermuteCase> permute_kernel_cases = {
#include "permute_cases.inc"
};

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
