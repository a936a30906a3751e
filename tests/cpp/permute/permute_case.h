// SPDX-License-Identifier: Apache-2.0
// A permute as a row of a test's table, and the request that flowk_permute() would make of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "permute/permute.h"

struct PermuteCase {
  const char* why;
  int32_t element_bytes;
  std::vector<int64_t> shape;
  std::vector<int32_t> axes;
  int64_t src_lead_bytes = 0;  // from a multiple of 128 to the lowest element of each side
  int64_t dst_lead_bytes = 0;
  std::vector<int64_t> src_strides = {};  // in elements, as flowk_permute() takes them; none: C order
  std::vector<int64_t> dst_strides = {};
  const char* mechanism = "";  // that the planner chooses; "": not said
  bool every_type = false;     // to be run with every element size and pair of types, by the planner's choice alone
};

// The row with elements of another size: as many of them before the first one of src and of dst.
inline PermuteCase case_of_size(PermuteCase row, int32_t element_bytes) {
  row.src_lead_bytes = row.src_lead_bytes / row.element_bytes * element_bytes;
  row.dst_lead_bytes = row.dst_lead_bytes / row.element_bytes * element_bytes;
  row.element_bytes = element_bytes;
  return row;
}

// One side of a case in memory: strides of its own dimensions, and the bytes from its lowest to past its highest
// element.
struct CaseSide {
  flowk::permute::Layout layout;
  int64_t lead_bytes = 0;
  int64_t first_bytes = 0;  // from the lowest element to the one with all indices 0
  int64_t span_bytes = 0;
};

inline CaseSide case_side(const PermuteCase& row, bool is_dst) {
  CaseSide side;
  side.lead_bytes = is_dst ? row.dst_lead_bytes : row.src_lead_bytes;
  side.layout.rank = static_cast<int>(row.shape.size());
  for (size_t d = 0; d < row.shape.size(); ++d)
    side.layout.extents[d] = row.shape[is_dst ? static_cast<size_t>(row.axes[d]) : d];
  const std::vector<int64_t>& strides = is_dst ? row.dst_strides : row.src_strides;
  if (strides.empty())
    flowk::permute::contiguous_strides(side.layout.rank, side.layout.extents, side.layout.strides);
  else
    std::copy(strides.begin(), strides.end(), side.layout.strides);
  side.span_bytes = row.element_bytes;
  for (int d = 0; d < side.layout.rank; ++d) {
    const int64_t reach = side.layout.strides[d] * (side.layout.extents[d] - 1) * row.element_bytes;
    side.span_bytes += std::abs(reach);
    if (reach < 0) side.first_bytes -= reach;
  }
  return side;
}

// The request over pointers to the elements with all indices 0.
inline flowk::permute::PermuteRequest make_request(const PermuteCase& row, const void* src, void* dst) {
  const CaseSide src_side = case_side(row, false), dst_side = case_side(row, true);
  flowk::permute::PermuteRequest request;
  request.src = src;
  request.dst = dst;
  request.element_bytes = row.element_bytes;
  request.shape.rank = dst_side.layout.rank;
  for (int d = 0; d < dst_side.layout.rank; ++d) {
    request.shape.extents[d] = dst_side.layout.extents[d];
    request.shape.strides[flowk::permute::dst_operand][d] = dst_side.layout.strides[d];
    request.shape.strides[flowk::permute::src_operand][d] = src_side.layout.strides[row.axes[static_cast<size_t>(d)]];
  }
  return request;
}

inline std::string text_of(const PermuteCase& row) {
  const auto list = [](const char* name, const auto& values) {
    std::string text = std::string(name) + "(";
    for (const auto value : values) text += std::to_string(value) + ",";
    return text + ")";
  };
  return std::string(row.why) + ": " + std::to_string(row.element_bytes) + "-byte " + list("", row.shape) +
         list(" axes ", row.axes) + list(" src strides ", row.src_strides) + list(" dst strides ", row.dst_strides) +
         " leads " + std::to_string(row.src_lead_bytes) + " " + std::to_string(row.dst_lead_bytes);
}
