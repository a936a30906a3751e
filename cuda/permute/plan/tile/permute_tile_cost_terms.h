// SPDX-License-Identifier: Apache-2.0
// The terms of the estimate of a tile's time, for the estimate and for the lower bounds of pairs of runs.
#pragma once

#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {

// The terms of a tile's time, relative to a copy of the same bytes: fitted to tiles timed on an H200
// (bench/tune_permute.py) so that the cheapest tile of a case is a fast one. From 20000 tiles of 287 cases: the pick is
// 2.1% slower than the case's best tile there, and 3.2% in 122 random cases that were kept out.
struct CostCoefficients {
  float copy = 1.0501f;
  float src_sectors = 0.0235f;       // 32-byte sectors of src touched twice, over those needed
  float dst_lines = 0.0231f;         // the same for 128-byte lines of dst
  float dst_sectors = 0.1687f;       // sectors of dst stored in parts
  float src_line_ends = 0.0206f;     // lines of src that a run ends in
  float short_src_run = 0.0138f;     // below 256 bytes
  float shortest_src_run = 0.0202f;  // one line or less
  float halo = 0.1143f;              // over the block
  float block = 0.0230f;             // the start of a block, over the tile's KB
  float unaligned_load = 0.0623f;    // passes of the block's threads over the tile, over its KB
  float row_of_dims = 0.0687f;       // more where source rows have three dimensions or more
  float dst_row = 0.0055f;           // over the table of destination rows
  float store = 0.0933f;
  float element_gather = 0.0201f;  // for each element of a vector
  float partial_store = 0.0178f;
  float table = 0.0996f;  // KB of table
  float few_bytes_in_flight = 0.0181f;
  float idle = 0.0820f;        // blocks that the last wave leaves out
  float padding = 0.1096f;     // of tiles at the edge, over the tensor
  float conflicts = 0.0031f;   // for each bit that the swizzle lacks
  float below_8_kb = 0.0045f;  // by the tile's size; terms add up
  float below_11_kb = 0.0199f;
  float below_14_kb = 0.0169f;
  float above_17_kb = 0.0036f;
  float above_20_kb = 0.0109f;
  float above_25_kb = 0.0049f;
  float above_33_kb = 0.0108f;
};

constexpr CostCoefficients unit_cost_coefficients;

// Of 1-byte elements, from 15000 tiles of 196 random cases: 3.6% there, 3.2% in 23 cases that were kept out.
constexpr CostCoefficients byte_cost_coefficients = {
    .copy = 1.0410f,
    .src_sectors = 0.0331f,
    .dst_lines = 0.0227f,
    .dst_sectors = 0.2291f,
    .src_line_ends = 0.0321f,
    .short_src_run = 0.0190f,
    .shortest_src_run = 0.0204f,
    .halo = 0.1380f,
    .block = 0.0276f,
    .unaligned_load = 0.0628f,
    .row_of_dims = 0.0685f,
    .dst_row = 0.0058f,
    .store = 0.0988f,
    .element_gather = 0.0342f,
    .partial_store = 0.0216f,
    .table = 0.2456f,
    .few_bytes_in_flight = 0.0271f,
    .idle = 0.1010f,
    .padding = 0.1793f,
    .conflicts = 0.0035f,
    .below_8_kb = 0.0055f,
    .below_11_kb = 0.0417f,
    .below_14_kb = 0.0346f,
    .above_17_kb = 0.0030f,
    .above_20_kb = 0.0103f,
    .above_25_kb = 0.0060f,
    .above_33_kb = 0.0147f,
};

inline const CostCoefficients& cost_coefficients_of(const PermuteProblem& problem) {
  return moves_bytes(problem) ? byte_cost_coefficients : unit_cost_coefficients;
}

// The terms that depend on the tile's size only.
constexpr float size_cost(const CostCoefficients& coefficients, float kb) {
  float cost = coefficients.block / kb;
  if (kb < 14) cost += coefficients.below_14_kb;
  if (kb < 11) cost += coefficients.below_11_kb;
  if (kb < 8) cost += coefficients.below_8_kb;
  if (kb > 17) cost += coefficients.above_17_kb;
  if (kb > 20) cost += coefficients.above_20_kb;
  if (kb > 25) cost += coefficients.above_25_kb;
  if (kb > 33) cost += coefficients.above_33_kb;
  return cost;
}

// The terms of source runs that are loaded `run_bytes` at a time.
inline float src_run_cost(const CostCoefficients& coefficients, const Run& run, int32_t run_bytes) {
  const float bytes = static_cast<float>(run_bytes);
  float cost = coefficients.src_sectors *
               static_cast<float>(sector_bytes - std::min<int64_t>(run.alignment, sector_bytes)) / bytes;
  if (run.alignment >= vector_bytes && run.bytes % line_bytes != 0)
    cost += coefficients.src_line_ends * 128.0f / std::max(bytes, 128.0f);
  if (run_bytes < 2 * line_bytes) cost += coefficients.short_src_run;
  if (run_bytes <= line_bytes) cost += coefficients.shortest_src_run;
  return cost;
}

// The alignment of both ends of every stored run, without a halo.
inline int32_t store_alignment(const Run& run) {
  return std::min(run.alignment, static_cast<int32_t>(lowest_bit(static_cast<uint64_t>(run.bytes), line_bytes)));
}

inline float dst_run_cost(const CostCoefficients& coefficients, int32_t alignment, int32_t run_bytes) {
  const float lines = static_cast<float>(line_bytes - alignment);
  const float sectors = static_cast<float>(sector_bytes - std::min<int64_t>(alignment, sector_bytes));
  return (coefficients.dst_lines * lines + coefficients.dst_sectors * sectors) / static_cast<float>(run_bytes);
}

}  // namespace flowk::permute
