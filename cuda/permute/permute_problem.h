// SPDX-License-Identifier: Apache-2.0
// The request as the planner sees it: fewest dimensions, widest unit, strides in bytes.
#pragma once

#include "permute/permute_plan.h"

namespace flowk {

constexpr int64_t line_bytes = 128;  // of global and of shared memory

struct PermuteProblem {
  int32_t unit_bytes = 0;
  int rank = 0;  // dimensions in the order of dst, outermost first
  int64_t extents[max_rank];
  int64_t src_strides[max_rank];  // bytes, >= 0
  int64_t dst_strides[max_rank];  // bytes, of any sign
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  const unsigned char* src_end = nullptr;  // one past the last byte of src's elements
};

// Simplifies the request, moves units of half a complex number where a pointer is aligned to no more, and the widest
// units (to 16 bytes) that extents, strides and pointers allow where the last dimension stays last.
void make_problem(const PermuteRequest& request, PermuteProblem* problem);

// Plans channel_interleave or channel_deinterleave; false, with the plan unchanged, where the problem is neither.
bool plan_channels(const PermuteProblem& problem, PermutePlan* plan);

// Plans the tile of least predicted cost.
void plan_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan);

// Plans one tile of those that plan_tile() chooses from, so that a test or a bench reaches them all. The choices of
// either side are numbered from 0.
enum class TileCandidate { planned, no_box, out_of_range };
TileCandidate plan_tile_candidate(const PermuteProblem& problem, const Device& device, int src_choice, int dst_choice,
                                  PermutePlan* plan);

}  // namespace flowk
