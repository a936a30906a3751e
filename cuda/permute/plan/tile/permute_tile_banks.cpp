// SPDX-License-Identifier: Apache-2.0
// Bank conflicts: the swizzle and the order of the store with the fewest, for general_tile.
#include <cmath>

#include "permute/plan/permute_tuning.h"
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

constexpr int32_t vector_mask = 0x70;  // the bits of an offset that a swizzle changes

// The offsets of the first elements of the first warp's first vectors, before the swizzle; -1: no vector.
void first_offsets(const TileParams& params, int32_t dst_unit_bytes, int32_t per_group,
                   int32_t (&shared_offsets)[warp_lanes]) {
  const auto num_rows = static_cast<int32_t>(params.num_dst_rows.divisor);
  const int32_t elements_per_vector = static_cast<int32_t>(vector_bytes) / dst_unit_bytes;
  const int32_t run = params.dst_run_elements.per_index *
                      (params.dst_run_elements.cut == TileCount::whole ? 1 : params.dst_block + params.halo);
  for (int thread = 0; thread < warp_lanes; ++thread) {
    const int32_t item = thread / per_group;
    const int32_t element = (item / num_rows * per_group + thread % per_group) * elements_per_vector;
    shared_offsets[thread] = -1;
    if (element >= run) continue;
    int64_t offset;
    locate_row(params, static_cast<uint32_t>(item % num_rows), &offset, &shared_offsets[thread]);
    shared_offsets[thread] +=
        params.table_rank == 0 ? element * params.run_pitch : element_offset(params, static_cast<uint32_t>(element));
  }
}

}  // namespace

int32_t element_offset(const TileParams& params, uint32_t element) {
  int32_t shared_offset = 0;
  for (int d = 0; d < params.table_rank; ++d) {
    const uint32_t index = d + 1 < params.table_rank ? take_index(&element, params.table[d].divider) : element;
    shared_offset += static_cast<int32_t>(index) * params.table[d].shared_step;
  }
  return shared_offset;
}

void locate_row(const TileParams& params, uint32_t row, int64_t* offset, int32_t* shared_offset) {
  *offset = *shared_offset = 0;
  for (int d = 0; d < params.dst_row_rank; ++d) {
    const TileRowDim& dim = params.dst_row_dims[d];
    const uint32_t index = d + 1 < params.dst_row_rank ? take_index(&row, dim.divider) : row;
    *offset += static_cast<int64_t>(index) * dim.stride;
    *shared_offset += static_cast<int32_t>(index) * dim.shared_step;
  }
}

// Half and quarter warps read elements of 8 and 16 bytes. A word that several threads read is read once.
float bank_conflicts(const int32_t (&shared_offsets)[warp_lanes], int32_t unit_bytes, int32_t shift, float limit) {
  constexpr int most_known = 4;  // words of a bank; more count as new ones
  const int32_t bytes = std::max(unit_bytes, 4);
  const int log2_bytes = __builtin_ctz(static_cast<unsigned>(bytes));
  const int phase_threads = static_cast<int>(line_bytes) / bytes;  // the number of banks, if each is `bytes` wide
  const float most_passes = std::min(limit, warp_lanes + 1.0f) * static_cast<float>(warp_lanes / phase_threads);
  const int too_many = static_cast<int>(std::ceil(most_passes));
  int passes = 0, phases = 0;
  for (int begin = 0; begin < warp_lanes; begin += phase_threads) {
    int32_t words[most_known][warp_lanes];  // of a bank
    uint8_t counts[warp_lanes] = {};
    int most = 0;
    for (int thread = begin; thread < begin + phase_threads; ++thread) {
      const int32_t shared_offset = shared_offsets[thread];
      if (shared_offset < 0) continue;
      const int32_t word =
          (shift == 0 ? shared_offset : shared_offset ^ (shared_offset >> shift & vector_mask)) >> log2_bytes;
      const int bank = word & (phase_threads - 1);
      const int count = counts[bank], known = std::min(count, most_known);
      int i = 0;
      while (i < known && words[i][bank] != word) ++i;
      if (i < known) continue;
      if (count < most_known) words[count][bank] = word;
      counts[bank] = static_cast<uint8_t>(count + 1);
      most = std::max(most, count + 1);
      if (passes + most >= too_many) return limit + 1;
    }
    passes += most;
    phases += most > 0;
  }
  return phases == 0 ? 1 : static_cast<float>(passes) / static_cast<float>(phases);
}

void choose_swizzle(int32_t dst_unit_bytes, TilePlan* plan) {
  TileParams& params = plan->tile;
  const auto given = static_cast<int32_t>(params.vectors_per_group.divisor);
  const int64_t vectors = int64_t{params.num_store_vectors};
  float best = 0;
  for (const int32_t per_group : {given, 4}) {
    if (per_group > given || (per_group == given && best > 0)) continue;
    int32_t shared_offsets[warp_lanes];
    first_offsets(params, dst_unit_bytes, per_group, shared_offsets);
    // Shift 3 takes the key from the line's number; each further shift halves it.
    for (const int32_t shift : {0, 3, 4, 5, 6, 7}) {
      // Half a line at a time is slower than a line, unless it has fewer conflicts.
      const float factor = per_group == given ? 1.0f : half_line_store_passes;
      const float limit = best > 0 ? best - 0.01f : FLT_MAX;
      const float passes = bank_conflicts(shared_offsets, plan->unit_bytes, shift, limit / factor) * factor;
      if (passes >= limit) continue;
      best = passes;
      params.swizzle_shift = shift;
      params.swizzle_bits = shift == 0 ? 0 : vector_mask;
      set_vectors_per_group(vectors, per_group, tile_threads, &params);
      if (best <= 1) return;
    }
  }
}

}  // namespace flowk::permute
