// SPDX-License-Identifier: Apache-2.0
// Which kernel does a call of masked softmax, and how its rows are spread over threads.
#pragma once

#include "softmax/softmax_problem.h"

namespace flowk::softmax {

SoftmaxMask mask_of(const SoftmaxRequest& request);

// The first choice for the call: never a shape that does not fit.
SoftmaxShape choose_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device);

bool shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                const SoftmaxShape& shape);

// row_in_shared: the vectors of a thread in shared memory, the bytes of all of a block's, in backward of both inputs,
// and where they start, after the exchange.
int64_t shared_row_slots(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape);
int64_t shared_row_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape);
int32_t shared_row_offset(const SoftmaxProblem& problem, const SoftmaxShape& shape);

// persistent_rows: the ring in a block's shared memory, of batches of vectors_per_thread vectors of each thread
// and input.
struct SoftmaxRing {
  int32_t row_batches = 0;
  int32_t kept_batches = 0;  // of a row's: that stay until they leave; the others are read twice
  int32_t batches = 0;       // that the ring holds; 0: rows are too long
  int32_t batch_bytes = 0;
  int32_t offset_bytes = 0;  // where it starts, after the exchanges
};
SoftmaxRing softmax_ring(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                         const SoftmaxShape& shape);

}  // namespace flowk::softmax
