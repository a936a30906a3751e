// SPDX-License-Identifier: Apache-2.0
// The shape of a launch as plain numbers, so that a plan is made, compared and printed without CUDA; the largest grid.
#pragma once

#include <cstdint>

namespace flowk::detail {

constexpr int64_t max_grid_blocks = 2147483647;

struct LaunchConfig {
  int64_t num_blocks = 0;      // one-dimensional grid; a plan may have more than max_grid_blocks, launch() not
  int32_t num_threads = 0;     // threads per block
  int32_t shared_bytes = 0;    // dynamic shared memory per block
  int32_t cluster_blocks = 1;  // neighbouring blocks that form a cluster, from sm_90 on
  // May start before the stream's previous kernel ends: it must wait_on_dependent_grids(). Only if Device::runs_pdl().
  bool uses_pdl = false;
  friend bool operator==(const LaunchConfig&, const LaunchConfig&) = default;
};

}  // namespace flowk::detail
