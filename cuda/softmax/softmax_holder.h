// SPDX-License-Identifier: Apache-2.0
// Which threads hold a row of masked softmax, by its bytes: tables found by measurement.
#pragma once

#include <cstdint>

#include "softmax/softmax_problem.h"

namespace flowk::softmax {

// How rows of up to max_row_bytes are held.
struct HolderRow {
  int64_t max_row_bytes;
  int32_t vectors_per_thread;  // vectors of 16 bytes in registers
  int32_t cluster_blocks;
  int32_t threads = 0;          // of a block, which holds other vectors in shared memory; 0: registers hold all
  int32_t resident_blocks = 0;  // of a multiprocessor at a time, at most; 0: as many as fit
  int32_t turn_blocks = 0;      // of the clusters that take more rows than there are of them in turn; 0: none do
};

// Is a row no power of 2 of whole vectors? Such rows leave threads of most shapes without a vector.
bool is_ragged_row(const SoftmaxRequest& request, const SoftmaxProblem& problem);

// The table's row for the call; nullptr: too long to hold.
const HolderRow* find_holder(const SoftmaxRequest& request, const SoftmaxProblem& problem, int64_t row_bytes);

}  // namespace flowk::softmax
