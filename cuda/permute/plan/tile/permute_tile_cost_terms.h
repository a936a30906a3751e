// SPDX-License-Identifier: Apache-2.0
// The terms of the estimate of a tile's time, for the estimate and for the lower bounds of pairs of runs.
#pragma once

#include "permute/plan/permute_tuning.h"
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {

inline const TileCosts& tile_costs_of(const PermuteProblem& problem) {
  return moves_bytes(problem) ? byte_unit_tile_costs : unit_tile_costs;
}

// The terms that depend on the tile's size only.
constexpr float size_cost(const TileCosts& costs, float kb) {
  float cost = costs.block / kb;
  if (kb < 14) cost += costs.below_14_kb;
  if (kb < 11) cost += costs.below_11_kb;
  if (kb < 8) cost += costs.below_8_kb;
  if (kb > 17) cost += costs.above_17_kb;
  if (kb > 20) cost += costs.above_20_kb;
  if (kb > 25) cost += costs.above_25_kb;
  if (kb > 33) cost += costs.above_33_kb;
  return cost;
}

// The terms of source runs that are loaded `run_bytes` at a time.
inline float src_run_cost(const TileCosts& costs, const Run& run, int32_t run_bytes) {
  const float bytes = static_cast<float>(run_bytes);
  float cost =
      costs.src_sectors * static_cast<float>(sector_bytes - std::min<int64_t>(run.alignment, sector_bytes)) / bytes;
  if (run.alignment >= vector_bytes && run.bytes % line_bytes != 0)
    cost += costs.src_line_ends * 128.0f / std::max(bytes, 128.0f);
  if (run_bytes < 2 * line_bytes) cost += costs.short_src_run;
  if (run_bytes <= line_bytes) cost += costs.shortest_src_run;
  return cost;
}

// The alignment of both ends of every stored run, without a halo.
inline int32_t store_alignment(const Run& run) {
  return std::min(run.alignment, static_cast<int32_t>(lowest_bit(static_cast<uint64_t>(run.bytes), line_bytes)));
}

inline float dst_run_cost(const TileCosts& costs, int32_t alignment, int32_t run_bytes) {
  const float lines = static_cast<float>(line_bytes - alignment);
  const float sectors = static_cast<float>(sector_bytes - std::min<int64_t>(alignment, sector_bytes));
  return (costs.dst_lines * lines + costs.dst_sectors * sectors) / static_cast<float>(run_bytes);
}

}  // namespace flowk::permute
