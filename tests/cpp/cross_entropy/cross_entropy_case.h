// SPDX-License-Identifier: Apache-2.0
// A row of cross_entropy_cases.json.
#pragma once

#include <cstdint>

#include "cross_entropy/cross_entropy.h"

struct CrossEntropyCase {
  const char* why;
  flowk_dtype dtype;
  int64_t rows;
  int64_t columns;
  int64_t lead = 0;     // elements from a multiple of 16 bytes to the first logit
  int64_t padding = 0;  // elements from row to row
  double scale = 1;
  double softcap = 0;
  double label_smoothing = 0;
  double z_loss = 0;
};

inline const CrossEntropyCase cases[] = {
#include "cross_entropy_cases.inc"
};

inline flowk::cross_entropy::CrossEntropyRequest request_of(const CrossEntropyCase& one) {
  flowk::cross_entropy::CrossEntropyRequest request;
  request.dtype = one.dtype;
  request.num_rows = one.rows;
  request.columns = one.columns;
  request.rows.rank = 1;
  request.rows.extents[0] = one.rows;
  request.rows.strides[0][0] = 1;
  request.rows.strides[1][0] = request.rows.strides[2][0] = one.columns + one.padding;
  flowk::core::simplify(&request.rows);
  request.options.scale = one.scale;
  request.options.softcap = one.softcap;
  request.options.label_smoothing = one.label_smoothing;
  request.options.z_loss = one.z_loss;
  request.options.vocab_size = one.columns;
  return request;
}
