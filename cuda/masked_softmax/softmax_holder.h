// SPDX-License-Identifier: Apache-2.0
// Which threads hold a row of masked softmax, by its bytes: tables found by measurement.
#pragma once

#include <cstdint>

#include "masked_softmax/softmax_problem.h"

namespace flowk {

// How rows of up to so many bytes are held: chunks of 16 bytes a thread in registers; the blocks of a cluster; in
// registers by as many threads as that takes, or, with `threads` a block, in registers and shared memory; how many
// blocks a multiprocessor takes at a time (0: as many as fit); and, if there are more rows than clusters, the blocks of
// clusters that take them in turn (0: none do).
struct HolderRow {
  int64_t max_row_bytes;
  int32_t vectors_per_thread;
  int32_t cluster_blocks;
  int32_t threads = 0;
  int32_t resident_blocks = 0;
  int32_t turn_blocks = 0;
};

// The table's row for the call; nullptr: too long to hold.
const HolderRow* find_holder(const SoftmaxRequest& request, const SoftmaxProblem& problem, int64_t row_bytes);

}  // namespace flowk
