// SPDX-License-Identifier: Apache-2.0
// What planning masked softmax shares: the rows of a call brought to the fewest dimensions, and what their alignment
// allows.
#pragma once

#include "softmax/softmax_plan.h"

namespace flowk::softmax {

// Rows of one dimension of a problem.
struct SoftmaxDim {
  int64_t extent = 1;
  int64_t strides[num_softmax_operands] = {};
};

// Dimensions innermost first, in the order in which rows are walked. None is 1, and no two neighbours are one dimension
// to every operand.
struct SoftmaxProblem {
  int32_t rank = 0;
  SoftmaxDim dims[max_softmax_dims];
  int64_t num_rows = 1;
  int32_t in_bytes = 0;  // of an element
  int32_t out_bytes = 0;
  int32_t vector_columns = 0;  // of the input in 16 bytes
  // The columns of an input vector are whole aligned units of the output (and of y, going backward), in every row.
  bool vectors_agree = false;
  bool bias_vectors_agree = false;
  bool has_leftovers = false;  // columns outside whole vectors, in some row
  // Bands of dims[0], see SoftmaxParams.
  int32_t band_dim = 0;
  int32_t band_rows = 0;
  int64_t band_extent = 0;
};

void make_softmax_problem(const SoftmaxRequest& request, SoftmaxProblem* problem);

}  // namespace flowk::softmax
