// SPDX-License-Identifier: Apache-2.0
// The shape of a launch as plain numbers, so that a plan is made, compared and printed without CUDA.
#pragma once

#include <cstdint>

namespace flowk {

constexpr int64_t max_grid_blocks = 2147483647;

struct LaunchConfig {
  int64_t num_blocks = 0;      // one-dimensional grid; launch() refuses more than max_grid_blocks
  int32_t num_threads = 0;     // threads a block
  int32_t shared_bytes = 0;    // dynamic shared memory a block
  int32_t cluster_blocks = 1;  // neighbouring blocks of a thread-block cluster; the grid is a multiple of it
  bool overlaps_previous =
      false;  // programmatic dependent launch: the kernel waits itself for the stream's earlier work
  friend bool operator==(const LaunchConfig&, const LaunchConfig&) = default;
};

}  // namespace flowk
