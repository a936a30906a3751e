// SPDX-License-Identifier: Apache-2.0
// The request as the planner sees it: fewest dimensions, widest unit, strides in bytes.
#pragma once

#include <vector>

#include "permute/permute.h"

namespace flowk::permute {

struct PermuteProblem {
  int32_t unit_bytes = 0;      // of src
  int32_t dst_unit_bytes = 0;  // the same unless elements are converted
  std::optional<Conversion> conversion;
  bool has_aligned_tile = true;  // aligned_tile has a kernel for the conversion
  int rank = 0;                  // dimensions in the order of dst, outermost first
  int64_t extents[max_rank];
  int64_t src_strides[max_rank];  // bytes, >= 0
  int64_t dst_strides[max_rank];  // bytes, of any sign
  const unsigned char* src = nullptr;
  unsigned char* dst = nullptr;
  const unsigned char* src_end = nullptr;  // one past the last byte of src's elements

  bool is_converted() const { return conversion.has_value(); }
  bool in_double() const { return conversion && conversion->in_double; }

  // Bytes of a number of units, as the mean of src and dst: what a copy would read.
  int64_t bytes_of(int64_t units) const { return (units * (unit_bytes + dst_unit_bytes)) >> 1; }
};

// Simplifies the request. The units of a conversion are elements. The units of a move are elements too, with two
// exceptions: halves of complex numbers if a pointer is not aligned to a whole one; and, if the last dimension stays
// last, the widest units, up to 16 bytes, that extents, strides and pointers allow.
void make_problem(const PermuteRequest& request, PermuteProblem* problem);

// Every mechanism sets these fields of its plan.
inline void set_units(const PermuteProblem& problem, PermutePlan* plan) {
  plan->unit_bytes = problem.unit_bytes;
  plan->dst_unit_bytes = problem.dst_unit_bytes;
  plan->conversion = problem.conversion;
}

// Chooses the mechanism; permute_plan.cpp.
void plan_problem(const PermuteProblem& problem, const Device& device, PermutePlan* plan);

// copy_rows or copy_shifted_rows; false, with the plan unchanged, if another mechanism is faster or
// none of them applies; copy_plan.cpp.
bool plan_copy(const PermuteProblem& problem, const Device& device, PermutePlan* plan);

// channels; false, with the plan unchanged, if the problem has no such planes; channels_plan.cpp.
bool plan_channels(const PermuteProblem& problem, const Device& device, PermutePlan* plan);

// The tile of least predicted cost; tile/permute_tile_search.cpp.
void plan_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan);

// Plans one of the tiles that plan_tile() chooses from, so that a test or a bench reaches all of them. The choices for
// the source run, and those for the destination run, are numbered from 0.
enum class TileCandidate { planned, no_box, out_of_range };
TileCandidate plan_tile_candidate(const PermuteProblem& problem, const Device& device, int src_choice, int dst_choice,
                                  PermutePlan* plan);

// A tile that plan_tile() chooses from, and its predicted time.
struct RankedTile {
  int src_choice;
  int dst_choice;
  float cost;
};

// The numbers by which the members of TileCosts, or of ByteTileCosts if the tile is a byte_tile, add up to the tile's
// predicted time; tile/permute_tile_search.cpp.
std::vector<float> tile_terms(const PermuteProblem& problem, const Device& device, int src_choice, int dst_choice);

// Was the plan chosen from several tiles?
inline bool has_other_plans(const PermutePlan& plan) {
  return plan.tile() != nullptr && plan.kernel() != PermuteKernel::strided_tile;
}

// All tiles that plan_tile() chooses from, the one of least predicted time first; tile/permute_tile_search.cpp.
std::vector<RankedTile> rank_tiles(const PermuteProblem& problem, const Device& device);

}  // namespace flowk::permute
