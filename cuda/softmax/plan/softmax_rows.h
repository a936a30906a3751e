// SPDX-License-Identifier: Apache-2.0
// The rows of a call in the fewest dimensions, in the order in which blocks take them.
#pragma once

#include "softmax/softmax.h"

namespace flowk::softmax {

// Dimensions innermost first. None has extent 1, and no two neighbours are one dimension to every operand.
struct SoftmaxRows {
  int32_t rank = 0;
  SoftmaxRowDim dims[max_softmax_dims];
  int64_t num_rows = 1;
  int32_t l2_tile_dim = 0;  // L2 tiles as in SoftmaxParams
  int32_t l2_tile_rows = 0;
  int64_t l2_tile_extent = 0;
};

SoftmaxRows order_rows(const SoftmaxRequest& request);

}  // namespace flowk::softmax
