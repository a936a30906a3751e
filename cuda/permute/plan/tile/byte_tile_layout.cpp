// SPDX-License-Identifier: Apache-2.0
// The byte_tile in shared memory: the columns of each thread, and the pitch of destination rows, for few bank
// conflicts.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

constexpr int max_log2_skew = 4;      // rows a multiple of 16 bytes apart; build_tile() makes it an odd one
constexpr int32_t above_zero = 1024;  // keeps offsets positive; a multiple of the banks' period

// Joins runs that lie one after the other in dst to one row. Returns the columns from one run to the next.
int32_t join_runs(const Tile& tile, TileParams* params) {
  if (tile.adjacent_rows == 1) return 0;
  int d = 0;
  while (params->dst_row_dims[d].stride != tile.dst.bytes) ++d;
  const TileRowDim dim = params->dst_row_dims[d];
  --params->dst_row_rank;
  std::copy(params->dst_row_dims + d + 1, params->dst_row_dims + params->dst_row_rank + 1, params->dst_row_dims + d);
  params->dst_row_dims[params->dst_row_rank] = TileRowDim();
  const uint32_t num_rows = params->num_dst_rows.divisor / dim.divider.divisor;
  params->num_dst_rows = Divider(num_rows);
  params->joins_src_cut = d == params->dst_row_rank;  // a cut dimension is the last
  params->run_join = params->joins_src_cut ? params->num_dst_rows : dim.divider;
  params->joined_run_bytes = Divider(static_cast<uint32_t>(tile.dst.bytes));
  return dim.shared_step;
}

int32_t skew_of(const TileParams& params, uint32_t word) {
  return static_cast<int32_t>(4 * (word >> params.skew_shift & params.skew_mask));
}

// Where all rows start at the same offset in a word, lanes whose rows are in one bank take the four words of their 16
// columns in rotated order. Chooses how many lanes in a row take the same word.
void choose_turns(int32_t src_alignment, int64_t num_columns, TileParams* params) {
  const uint32_t num_words = params->words_per_run.divisor;
  const int64_t blocks = ceil_div(num_columns + (src_alignment >= 4 ? 0 : 3), columns_per_item);
  params->num_word_items = static_cast<uint32_t>(blocks) * num_words;
  float best = 0;
  for (int shift = 2; shift <= 5; ++shift) {  // 1, 2, 4, 8 lanes
    int32_t shared_offsets[warp_lanes];
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      const uint32_t word = lane % num_words;
      shared_offsets[lane] = above_zero + element_offset(*params, 4 * word) +
                             columns_per_item * static_cast<int32_t>(lane / num_words) +
                             4 * static_cast<int32_t>(4 * word >> shift & 3);
    }
    const float passes = bank_conflicts(shared_offsets, 4, 0);
    if (shift > 2 && passes >= best) continue;
    best = passes;
    params->rotation_shift = shift;
    if (best <= 1) return;
  }
}

// The rows that a warp's lanes read are 4 source rows apart. Where that is 2, 4, 8 or 16 words, so many groups of lanes
// share a bank: each group takes columns one word to the left of the group before, so the tile has more columns.
void choose_skew(int64_t max_items, int64_t num_columns, TileParams* params) {
  const uint32_t num_words = params->words_per_run.divisor;
  int32_t rows[warp_lanes];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) rows[lane] = element_offset(*params, 4 * (lane % num_words));
  float best = 0;
  for (int log2 = 0; log2 <= max_log2_skew; ++log2) {
    TileParams skewed;
    skewed.skew_shift = 5 - log2;
    skewed.skew_mask = (1u << log2) - 1;
    int32_t shared_offsets[warp_lanes];
    for (uint32_t lane = 0; lane < warp_lanes; ++lane)
      shared_offsets[lane] = above_zero + rows[lane] + columns_per_item * static_cast<int32_t>(lane / num_words) -
                             skew_of(skewed, lane % num_words);
    const float passes = bank_conflicts(shared_offsets, 4, 0);
    const int64_t blocks = ceil_div(num_columns + 4 * int64_t{skewed.skew_mask}, columns_per_item);
    if (log2 > 0 && blocks * num_words > max_items) return;
    // An item reads 4 rows of 5 words and writes 16, in some 110 instructions; 4 instructions cost as much as a
    // wavefront.
    const float cost = static_cast<float>(blocks) * (20 * passes + 16 + 28);
    if (log2 == 0 || cost < best) {
      best = cost;
      params->skew_shift = skewed.skew_shift;
      params->skew_mask = skewed.skew_mask;
      params->num_word_items = static_cast<uint32_t>(blocks) * num_words;
    }
    if (passes <= 1) return;
  }
}

// The most vectors of a destination row, and those that neighbouring threads store. With a halo rows start and end on
// sectors; long ones are taken line by line.
void choose_vectors(const Tile& tile, TilePlan* plan) {
  TileParams& params = plan->tile;
  const int32_t run_bytes = tile.dst.bytes * tile.adjacent_rows;
  params.window_start_bytes = params.halo * tile.dst.per_index;
  params.window_bytes = tile.dst.bytes;
  params.window_end = tile.dst.bytes + params.window_start_bytes;
  int64_t vectors = run_bytes / vector_bytes;
  params.dst_granule = vector_bytes;
  if (tile.halo > 0) {
    params.window_mask = sector_bytes - 1;
    if (run_bytes % sector_bytes != 0) vectors = ceil_div(run_bytes, sector_bytes) * (sector_bytes / vector_bytes);
  } else if (tile.dst.alignment < line_bytes && run_bytes >= 4 * line_bytes) {
    params.dst_granule = line_bytes;
    vectors += line_bytes / vector_bytes - 1;
  }
  vectors = std::max<int64_t>(vectors, 1);
  constexpr int64_t per_line = line_bytes / vector_bytes;
  const int64_t per_group =
      params.dst_granule == line_bytes ? per_line : ceil_div(vectors, ceil_div(vectors, per_line));
  set_vectors_per_group(vectors, per_group, plan->launch.num_threads, &params);
}

// Chooses the pitch of destination rows: lanes write words of one run, and read vectors of several rows.
void choose_columns_pitch(const Tile& tile, int32_t joined_columns, TileParams* params) {
  constexpr int num_paddings = 8;
  const uint32_t num_words = params->words_per_run.divisor;
  const uint32_t per_group = params->vectors_per_group.divisor;
  const auto run = static_cast<int32_t>(params->num_table_entries);
  const int32_t row_bytes = run * tile.adjacent_rows;
  int32_t read_columns[warp_lanes], read_elements[warp_lanes];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    uint32_t group = lane / per_group;
    const uint32_t row = take_index(&group, params->num_dst_rows);
    int64_t offset;
    locate_row(*params, row, &offset, &read_columns[lane]);
    const auto address = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(params->dst + offset));
    const uint32_t first = params->halo > 0 ? 0 - (address & params->window_mask) : (0 - address) % vector_bytes;
    const int32_t element = params->window_start_bytes + static_cast<int32_t>(first) +
                            static_cast<int32_t>((group * per_group + lane % per_group) * vector_bytes);
    const bool is_inside = element + vector_bytes <= row_bytes;
    read_columns[lane] += element / run * joined_columns;
    read_elements[lane] = is_inside ? element % run : -1;
  }
  const auto run_bytes = static_cast<int32_t>(4 * num_words);
  float best = 0;
  for (int32_t padding = 0; padding < 4 * num_paddings && padding <= byte_tile_padding(run); padding += 4) {
    const int32_t pitch = run_bytes + padding;
    int32_t reads[warp_lanes], writes[warp_lanes];
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      reads[lane] = read_elements[lane] < 0 ? -1 : above_zero + read_columns[lane] * pitch + read_elements[lane];
      const uint32_t word = lane % num_words;
      const int32_t column = columns_per_item * static_cast<int32_t>(lane / num_words) - skew_of(*params, word);
      writes[lane] = (above_zero + column) * pitch + static_cast<int32_t>(4 * word);
    }
    // Wavefronts per vector: 5 words read, and 16 / 4 written. Near ties keep the smaller pitch.
    constexpr float of_reads = 5, of_writes = 4;
    const float limit = padding > 0 ? best - 0.25f : FLT_MAX;
    if (limit < of_reads + of_writes) return;
    const float passes =
        of_reads * bank_conflicts(reads, 4, 0, limit / of_reads) + of_writes * bank_conflicts(writes, 4, 0);
    if (passes >= limit) continue;
    best = passes;
    params->columns_pitch = pitch;
  }
}

}  // namespace

bool place_columns(const Tile& tile, TilePlan* plan) {
  TileParams& params = plan->tile;
  const int64_t run = int64_t{params.dst_run_elements.per_index} *
                      (params.dst_run_elements.cut == TileCount::whole ? 1 : params.dst_block + params.halo);
  params.num_table_entries = static_cast<uint32_t>(run);
  params.words_per_run = Divider(static_cast<uint32_t>(ceil_div(run, 4)));
  params.dst_rows_have_ends = !tile.dst.fills_vectors;
  const int64_t num_columns = params.num_dst_rows.divisor;
  const int32_t joined_columns = join_runs(tile, &params);
  choose_vectors(tile, plan);
  const int64_t max_items = int64_t{max_items_per_thread} * plan->launch.num_threads;
  params.src_rows_are_words = std::all_of(params.table, params.table + params.table_rank,
                                          [](const TileTableDim& dim) { return dim.shared_step % 4 == 0; });
  if (params.src_rows_are_words)
    choose_turns(tile.src.alignment, num_columns, &params);
  else
    choose_skew(max_items, num_columns, &params);
  if (params.num_word_items > max_items) return false;
  choose_columns_pitch(tile, joined_columns, &params);
  if (joined_columns > 0) params.joined_run_gap = joined_columns * params.columns_pitch - tile.dst.bytes;
  // Skewed columns start before the first row and end after the last.
  const int64_t skew_bytes = 4 * int64_t{params.skew_mask};
  const int64_t lead_bytes = round_up(skew_bytes, int64_t{params.shift_mask} + 1);
  params.shared_lead_bytes += static_cast<int32_t>(lead_bytes);
  const int64_t src_bytes = plan->launch.shared_bytes + lead_bytes + skew_bytes + 2 * vector_bytes;
  // A vector's five words may end after its row.
  const int64_t dst_bytes = int64_t{params.columns_pitch} * (num_columns + 6) + vector_bytes;
  const int64_t bytes = round_up(std::max(src_bytes, dst_bytes), line_bytes);
  if (bytes > max_tile_span_bytes) return false;
  params.table_offset_bytes = static_cast<int32_t>(bytes);
  plan->launch.shared_bytes = static_cast<int32_t>(
      bytes + round_up(4 * static_cast<int64_t>(sizeof(TileTableEntry)) * params.words_per_run.divisor, vector_bytes));
  return true;
}

}  // namespace flowk::permute
