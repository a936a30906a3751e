// SPDX-License-Identifier: Apache-2.0
// Collects the rows of a call in the fewest dimensions, in the order of their output.
#pragma once

#include "softmax/softmax.h"

namespace flowk::softmax {

SoftmaxRows collect_rows(const SoftmaxRequest& request);

// In the order in which blocks take them, which has L2 tiles if rows share a large mask.
SoftmaxRows tile_rows(const SoftmaxRequest& request, SoftmaxRows rows);

// Sets the fields that follow from the number of rows and the extents.
void set_dividers(SoftmaxRows* rows);

}  // namespace flowk::softmax
