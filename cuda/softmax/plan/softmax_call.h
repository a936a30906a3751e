// SPDX-License-Identifier: Apache-2.0
// SoftmaxCall has a request and the facts about it that the choice of a mechanism depends on.
#pragma once

#include "core/device.h"
#include "flowk/detail/sizes.h"
#include "softmax/plan/softmax_rows.h"

namespace flowk::softmax {

struct SoftmaxCall {
  SoftmaxCall(const SoftmaxRequest& request, const Device& device);

  const SoftmaxRequest& request;
  const Device& device;
  SoftmaxRows output_rows;  // in the order of the output, without L2 tiles
  SoftmaxRows rows;
  SoftmaxMask mask;
  int32_t in_bytes;        // per element of x
  int32_t vector_columns;  // of x
  int64_t row_vectors;     // columns / vector_columns
  int64_t expected_rows;   // that the choice assumes: rows.num_rows, or many if the call is batch-invariant
  int64_t row_bytes;       // of x
  int32_t num_inputs;      // that a thread holds: 2 backward and with a bias
  bool has_dense;
  bool has_interval;        // lengths, causal or window
  bool is_plain;            // forward, without any mask or bias
  bool is_one_type;         // x and out have one type, of at most 4 bytes
  bool has_bias_alone;      // a bias of x's type, and no other mask or score term
  bool vectors_agree;       // the columns of one vector of x are whole aligned units of out, and of y, in every row
  bool bias_vectors_agree;  // and of the bias
  bool has_tails;           // some row has columns outside whole vectors
  bool is_unaligned;        // batch-invariant, and some row is not whole aligned vectors. The other members then
                            // describe whole aligned rows, with row_vectors rounded up
  bool is_power_of_2;       // a row is 2^n whole vectors
  bool has_score_terms;     // a softcap; with a bias or a dense mask also a scale per row
  bool has_row_values;      // a softcap, a scale per row, a log-sum-exp, sinks, or the gradient of one
  // Does every mechanism compute the right results? The scale is then usual, see min_float32_scale, and a log_softmax
  // has no sinks.
  bool any_mechanism_is_right;
};

OperandMemory memory_of(const SoftmaxCall& call, SoftmaxOperand operand, int64_t row_bytes);

// Do all rows of an operand start at a multiple of `bytes`?
bool is_aligned(const SoftmaxCall& call, SoftmaxOperand operand, int64_t bytes);

// Is the distance from each row of an operand to the next the same?
bool has_one_stride(const SoftmaxRows& rows, SoftmaxOperand operand);

}  // namespace flowk::softmax
