// SPDX-License-Identifier: Apache-2.0
// Sorts and merges the dimensions of the rows, and splits one into L2 tiles.
#include "softmax/plan/softmax_rows.h"

#include <algorithm>
#include <cstdlib>

#include "core/divide.h"
#include "core/dtype.h"
#include "softmax/plan/softmax_tuning.h"

namespace flowk::softmax {
namespace {

struct RowDim {
  SoftmaxRowDim dim;
  RowNumberStrides numbers;
};

bool is_one_dim(const RowDim& outer, const SoftmaxRowDim& inner, const RowNumberStrides& inner_numbers) {
  for (int i = 0; i < num_softmax_operands; ++i)
    if (outer.dim.strides[i] != inner.strides[i] * inner.extent) return false;
  for (int i = 0; i < num_row_numbers; ++i)
    if (outer.numbers.of[i] != inner_numbers.of[i] * inner.extent) return false;
  return true;
}

}  // namespace

// Dimensions of extents other than 1, sorted by their strides in the output, then merged.
SoftmaxRows collect_rows(const SoftmaxRequest& request) {
  SoftmaxRows rows;
  RowDim sorted[max_rank];  // largest stride first
  int rank = 0;
  for (int d = 0; d < request.rank; ++d) {
    if (request.extents[d] == 1) continue;
    SoftmaxRowDim dim;
    RowNumberStrides numbers;
    dim.extent = request.extents[d];
    for (int i = 0; i < num_softmax_operands; ++i) dim.strides[i] = request.strides[i][d];
    for (int i = 0; i < num_row_numbers; ++i) numbers.of[i] = request.number_strides[i][d];
    int at = rank++;
    for (; at > 0 && std::abs(sorted[at - 1].dim.strides[softmax_out]) < std::abs(dim.strides[softmax_out]); --at)
      sorted[at] = sorted[at - 1];
    sorted[at] = {dim, numbers};
    rows.num_rows *= dim.extent;
  }
  for (int d = rank - 1; d >= 0; --d) {
    const int last = std::max(rows.rank - 1, 0);
    if (rows.rank > 0 && is_one_dim(sorted[d], rows.dims[last], rows.numbers[last])) {
      rows.dims[last].extent *= sorted[d].dim.extent;
    } else {
      rows.dims[rows.rank] = sorted[d].dim;
      rows.numbers[rows.rank++] = sorted[d].numbers;
    }
  }
  return rows;
}

// If dims[0] has its own mask or bias for each row and dims[1] shares them, splits dims[0] into L2 tiles, so that
// all rows that share a tile of the mask come before the next tile. The tile is then read from memory once and from L2
// after that, and each operand's rows stay neighbours in memory.
SoftmaxRows tile_rows(const SoftmaxRequest& request, SoftmaxRows rows) {
  if (request.backward || rows.rank < 2) return rows;
  const auto is_shared = [&](SoftmaxOperand operand, int d) {
    return request.pointers[operand] == nullptr || rows.dims[d].strides[operand] == 0;
  };
  int64_t row_bytes = 0;  // of mask and bias that are shared
  for (const SoftmaxOperand operand : {softmax_dense, softmax_bias_or_y})
    if (!is_shared(operand, 0) && is_shared(operand, 1))
      row_bytes += request.columns * (operand == softmax_dense ? 1 : dtype_info(request.bias_dtype).element_bytes);
  if (row_bytes == 0) return rows;
  const int64_t l2_tile_bytes =
      find_tuning_row(l2_tiles, &SoftmaxL2TileRow::max_columns, request.columns).l2_tile_bytes;
  const int64_t extent = rows.dims[0].extent;
  if (row_bytes * extent <= l2_tile_bytes) return rows;
  const int64_t num_tiles = ceil_div(extent, std::max<int64_t>(l2_tile_bytes / row_bytes, 1));
  const int64_t l2_tile_rows = ceil_div(extent, num_tiles);
  // Inside a tile are dims[1] and all dimensions after it that share both operands.
  int at = 1;
  while (at < rows.rank && is_shared(softmax_dense, at) && is_shared(softmax_bias_or_y, at)) ++at;
  at = std::max(at, 2);
  for (int d = rows.rank; d > at; --d) {
    rows.dims[d] = rows.dims[d - 1];
    rows.numbers[d] = rows.numbers[d - 1];
  }
  ++rows.rank;
  SoftmaxRowDim& tiles = rows.dims[at];
  tiles.extent = num_tiles;
  for (int i = 0; i < num_softmax_operands; ++i) tiles.strides[i] = rows.dims[0].strides[i] * l2_tile_rows;
  for (int i = 0; i < num_row_numbers; ++i)
    rows.numbers[at].of[i] = static_cast<int32_t>(rows.numbers[0].of[i] * l2_tile_rows);
  rows.dims[0].extent = l2_tile_rows;
  rows.num_rows = rows.num_rows / extent * l2_tile_rows * num_tiles;
  rows.l2_tile_dim = at;
  rows.l2_tile_rows = static_cast<int32_t>(l2_tile_rows);
  rows.l2_tile_extent = extent;
  return rows;
}

void set_dividers(SoftmaxRows* rows) {
  rows->is_wide = rows->num_rows >= int64_t{1} << 31;
  for (int d = 0; d < rows->rank && !rows->is_wide; ++d)
    rows->dims[d].divider = Divider(static_cast<uint32_t>(rows->dims[d].extent));
}

}  // namespace flowk::softmax
