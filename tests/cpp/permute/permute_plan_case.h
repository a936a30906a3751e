// SPDX-License-Identifier: Apache-2.0
// What the tests of both planners of permute share: devices, pointers that are never followed, and the size of a grid.
#pragma once

#include "devices.h"
#include "permute/permute.h"
#include "permute_case.h"

// The least shared memory of those that flowk is built for: an sm_86, cut to a few multiprocessors.
inline constexpr flowk::permute::Device small = {.capability = 86,
                                                 .num_multiprocessors = 2,
                                                 .shared_bytes_per_multiprocessor = 102400,
                                                 .shared_bytes_per_block = 101376};

// Fake pointers, far apart, to the elements with all indices 0.
inline const void* fake_src(const PermuteCase& row) {
  const CaseSide side = case_side(row, false);
  return reinterpret_cast<const void*>((uintptr_t{1} << 50) +
                                       static_cast<uintptr_t>(side.lead_bytes + side.first_bytes));
}
inline void* fake_dst(const PermuteCase& row) {
  const CaseSide side = case_side(row, true);
  return reinterpret_cast<void*>((uintptr_t{1} << 54) + static_cast<uintptr_t>(side.lead_bytes + side.first_bytes));
}

inline int64_t num_grid_tiles(const flowk::permute::GridDim* grid, int rank) {
  int64_t tiles = 1;
  for (int d = 0; d < rank; ++d) tiles *= grid[d].divider.divisor;
  return tiles;
}
