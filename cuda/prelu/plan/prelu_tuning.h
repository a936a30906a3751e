// SPDX-License-Identifier: Apache-2.0
// What was found by measurement. bench/tuning/prelu_h200.json has the figures.
#pragma once

#include <cstdint>

namespace flowk::prelu {

// by_column: rows per block. A tensor takes the first row of the table with a max_bytes above the tensor's bytes.
struct RowBlock {
  int64_t max_bytes;
  int64_t rows;
};

#include "prelu/plan/prelu_tuning.inc"

}  // namespace flowk::prelu
