// SPDX-License-Identifier: Apache-2.0
// Bank conflicts, and the swizzle and the segments of a general_tile that have the fewest.
#include "permute/plan/tile/permute_tile.h"
#include "permute/tile_index.h"

namespace flowk::permute {
namespace {

// The offsets of the first elements of the first warp's first vectors, before the swizzle; -1: no vector.
void first_offsets(const GeneralTileParams& params, int32_t dst_unit_bytes, int32_t per_segment,
                   int32_t (&shared_offsets)[warp_lanes]) {
  const TileParams& tile = params.tile;
  const auto num_rows = static_cast<int32_t>(params.store.num_rows.divisor);
  const int32_t elements_per_vector = vector_bytes / dst_unit_bytes;
  for (int thread = 0; thread < warp_lanes; ++thread) {
    const int32_t item = thread / per_segment;
    const int32_t element = (item / num_rows * per_segment + thread % per_segment) * elements_per_vector;
    shared_offsets[thread] = -1;
    if (element >= tile.whole_count(tile.dst_run_elements)) continue;
    int64_t offset;
    locate_tile_row(tile.dst_row_dims, tile.dst_row_rank, static_cast<uint32_t>(item % num_rows), &offset,
                    &shared_offsets[thread]);
    shared_offsets[thread] += params.table.rank == 0 ? element * params.run_pitch
                                                     : locate_run_element(params.table, static_cast<uint32_t>(element));
  }
}

}  // namespace

// Half and quarter warps read elements of 8 and 16 bytes. A word that several threads read is read once.
float bank_conflicts(const int32_t (&shared_offsets)[warp_lanes], int32_t unit_bytes, int32_t shift) {
  constexpr int max_known = 4;  // words of a bank; more count as new ones
  const int32_t bytes = std::max(unit_bytes, 4);
  const int log2_bytes = __builtin_ctz(static_cast<unsigned>(bytes));
  const int phase_threads = line_bytes / bytes;  // the number of banks, if each is `bytes` wide
  int passes = 0, phases = 0;
  for (int begin = 0; begin < warp_lanes; begin += phase_threads) {
    int32_t words[max_known][warp_lanes];  // of a bank
    int counts[warp_lanes] = {};
    for (int thread = begin; thread < begin + phase_threads; ++thread) {
      const int32_t shared_offset = shared_offsets[thread];
      if (shared_offset < 0) continue;
      const int32_t word =
          (shift == 0 ? shared_offset : shared_offset ^ (shared_offset >> shift & vector_in_line_bits)) >> log2_bytes;
      const int bank = word & (phase_threads - 1), known = std::min(counts[bank], max_known);
      int i = 0;
      while (i < known && words[i][bank] != word) ++i;
      if (i < known) continue;
      if (known < max_known) words[known][bank] = word;
      ++counts[bank];
    }
    const int phase_passes = *std::max_element(counts, counts + phase_threads);
    passes += phase_passes;
    phases += phase_passes > 0;
  }
  return phases == 0 ? 1 : static_cast<float>(passes) / static_cast<float>(phases);
}

float choose_swizzle(int32_t unit_bytes, int32_t dst_unit_bytes, GeneralTileParams* params) {
  const auto given = static_cast<int32_t>(params->store.vectors_per_segment.divisor);
  const int64_t vectors = params->store.num_vectors;
  float best = FLT_MAX;
  for (const int32_t per_segment : {given, 4}) {
    if (per_segment > given || (per_segment == given && best < FLT_MAX)) continue;
    int32_t shared_offsets[warp_lanes];
    first_offsets(*params, dst_unit_bytes, per_segment, shared_offsets);
    // Shift 3 takes the key from the line's number; each further shift halves it.
    for (const int32_t shift : {0, 3, 4, 5, 6, 7}) {
      // Half a line at a time is slower than a line, unless it has fewer conflicts.
      const float factor = per_segment == given ? 1.0f : half_line_store_passes;
      const float passes = bank_conflicts(shared_offsets, unit_bytes, shift) * factor;
      if (passes >= best - 0.01f) continue;
      best = passes;
      params->swizzle_shift = shift;
      params->swizzle_bits = shift == 0 ? 0 : vector_in_line_bits;
      set_segments(vectors, per_segment, tile_threads, &params->store);
      if (best <= 1) return best;
    }
  }
  return best;
}

}  // namespace flowk::permute
