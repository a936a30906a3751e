// SPDX-License-Identifier: Apache-2.0
// A byte_tile in shared memory: the items of its threads, and a pitch of destination rows with few bank conflicts.
#include "permute/plan/tile/permute_tile.h"
#include "permute/tile_index.h"

namespace flowk::permute {
namespace {

constexpr int max_log2_skew = 4;      // rows a multiple of 16 bytes apart; build_tile() makes it an odd one
constexpr int32_t above_zero = 1024;  // keeps offsets positive; a multiple of the banks' period

// Joins runs that lie one after the other in dst to one row. Returns the columns from one run to the next.
int32_t join_runs(const Tile& tile, ByteTileParams* params) {
  if (tile.adjacent_rows == 1) return 0;
  TileRowDim* const dims = params->tile.dst_row_dims;
  int d = 0;
  while (dims[d].stride != tile.dst.bytes) ++d;
  const TileRowDim joined = dims[d];
  const int rank = --params->tile.dst_row_rank;
  std::copy(dims + d + 1, dims + rank + 1, dims + d);
  dims[rank] = {};
  params->store.num_rows = Divider(params->store.num_rows.divisor / joined.divider.divisor);
  params->joins_src_cut = d == rank;  // a cut dimension is the last
  params->run_join = params->joins_src_cut ? params->store.num_rows : joined.divider;
  params->joined_run_bytes = Divider(static_cast<uint32_t>(tile.dst.bytes));
  return joined.shared_step;
}

// If all rows start at the same offset in a word, lanes with rows in one bank take the four words of their 16 columns
// in rotated order. Chooses how many lanes in a row take the same word.
void choose_rotation(int32_t src_alignment, int64_t num_columns, ByteTileParams* params) {
  const uint32_t num_words = params->words_per_run.divisor;
  const int64_t items = ceil_div(num_columns + (src_alignment >= 4 ? 0 : column_margin), columns_per_item);
  params->num_items = static_cast<uint32_t>(items) * num_words;
  float best = 0;
  for (int shift = 2; shift <= 5; ++shift) {  // 1, 2, 4, 8 lanes
    int32_t shared_offsets[warp_lanes];
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      const uint32_t element = rows_per_item * (lane % num_words);
      shared_offsets[lane] = above_zero + locate_run_element(params->table, element) +
                             columns_per_item * static_cast<int32_t>(lane / num_words) +
                             4 * first_word_of(static_cast<int32_t>(element), shift);
    }
    const float passes = bank_conflicts(shared_offsets, 4, 0);
    if (shift > 2 && passes >= best) continue;
    best = passes;
    params->rotation_shift = shift;
    if (best <= 1) return;
  }
}

// The rows that a warp's lanes read are 4 source rows apart. If that is 2, 4, 8 or 16 words, that number of sets of
// lanes share a bank: each set takes columns one word to the left of the set before, so the tile has more columns.
void choose_skew(int64_t max_items, int64_t num_columns, ByteTileParams* params) {
  const uint32_t num_words = params->words_per_run.divisor;
  int32_t rows[warp_lanes];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane)
    rows[lane] = locate_run_element(params->table, rows_per_item * (lane % num_words));
  float best = 0;
  for (int log2 = 0; log2 <= max_log2_skew; ++log2) {
    const int32_t shift = 5 - log2;
    const uint32_t mask = (1u << log2) - 1;
    int32_t shared_offsets[warp_lanes];
    for (uint32_t lane = 0; lane < warp_lanes; ++lane)
      shared_offsets[lane] = above_zero + rows[lane] + columns_per_item * static_cast<int32_t>(lane / num_words) -
                             skew_of(lane % num_words, shift, mask);
    const float passes = bank_conflicts(shared_offsets, 4, 0);
    const int64_t items = ceil_div(num_columns + 4 * int64_t{mask}, columns_per_item);
    if (log2 > 0 && items * num_words > max_items) return;
    // An item reads 4 rows of 5 words and writes 16, in some 110 instructions; 4 instructions cost as much as a
    // wavefront. Not measured.
    const float cost = static_cast<float>(items) * (20 * passes + 16 + 28);
    if (log2 == 0 || cost < best) {
      best = cost;
      params->skew_shift = shift;
      params->skew_mask = mask;
      params->num_items = static_cast<uint32_t>(items) * num_words;
    }
    if (passes <= 1) return;
  }
}

// The most vectors of a destination row, and those that neighbouring threads store. With a halo rows start and end on
// sectors; long ones are taken line by line.
void choose_vectors(const Tile& tile, int num_threads, ByteTileParams* params) {
  const int32_t run_bytes = tile.dst.bytes * tile.adjacent_rows;
  params->halo_bytes = params->tile.halo * tile.dst.per_index;
  int64_t vectors = run_bytes / vector_bytes;
  params->dst_granule = vector_bytes;
  if (tile.halo > 0) {
    params->store.span_end_mask = sector_bytes - 1;
    if (run_bytes % sector_bytes != 0) vectors = round_up(run_bytes, sector_bytes) / vector_bytes;
  } else if (tile.dst.alignment < line_bytes && run_bytes >= 4 * line_bytes) {
    params->dst_granule = line_bytes;
    vectors += line_vectors - 1;
  }
  vectors = std::max<int64_t>(vectors, 1);
  const int64_t per_segment =
      params->dst_granule == line_bytes ? line_vectors : ceil_div(vectors, ceil_div(vectors, line_vectors));
  set_segments(vectors, per_segment, num_threads, &params->store);
}

// Chooses the pitch of destination rows: lanes write words of one run, and read vectors of several rows.
void choose_columns_pitch(const Tile& tile, int32_t joined_columns, ByteTileParams* params) {
  constexpr int num_paddings = 8;
  const uint32_t num_words = params->words_per_run.divisor;
  const uint32_t per_segment = params->store.vectors_per_segment.divisor;
  const auto run = static_cast<int32_t>(params->table.num_entries);
  const int32_t row_bytes = run * tile.adjacent_rows;
  int32_t read_columns[warp_lanes], read_elements[warp_lanes];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    uint32_t segment = lane / per_segment;
    const uint32_t row = take_index(&segment, params->store.num_rows);
    int64_t offset;
    locate_tile_row(params->tile.dst_row_dims, params->tile.dst_row_rank, row, &offset, &read_columns[lane]);
    const auto address = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(params->tile.dst + offset));
    const uint32_t first = tile.halo > 0 ? 0 - (address & params->store.span_end_mask) : (0 - address) % vector_bytes;
    const int32_t element = params->halo_bytes + static_cast<int32_t>(first) +
                            static_cast<int32_t>((segment * per_segment + lane % per_segment) * vector_bytes);
    const bool is_inside = element + vector_bytes <= row_bytes;
    read_columns[lane] += element / run * joined_columns;
    read_elements[lane] = is_inside ? element % run : -1;
  }
  const auto run_bytes = static_cast<int32_t>(rows_per_item * num_words);
  float best = 0;
  for (int32_t padding = 0; padding < 4 * num_paddings && padding <= byte_tile_padding(run); padding += 4) {
    const int32_t pitch = run_bytes + padding;
    int32_t reads[warp_lanes], writes[warp_lanes];
    for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
      reads[lane] = read_elements[lane] < 0 ? -1 : above_zero + read_columns[lane] * pitch + read_elements[lane];
      const uint32_t word = lane % num_words;
      const int32_t column = columns_per_item * static_cast<int32_t>(lane / num_words) -
                             skew_of(word, params->skew_shift, params->skew_mask);
      writes[lane] = (above_zero + column) * pitch + static_cast<int32_t>(rows_per_item * word);
    }
    // Wavefronts per vector: 5 words read, and 16 / 4 written. Near ties keep the smaller pitch.
    const float passes = 5 * bank_conflicts(reads, 4, 0) + 4 * bank_conflicts(writes, 4, 0);
    if (padding > 0 && passes >= best - 0.25f) continue;
    best = passes;
    params->columns_pitch = pitch;
  }
}

}  // namespace

bool place_columns(const Tile& tile, LaunchConfig* launch, ByteTileParams* params) {
  RunTable& table = params->table;
  table.num_entries = static_cast<uint32_t>(params->tile.whole_count(params->tile.dst_run_elements));
  params->words_per_run = Divider(static_cast<uint32_t>(ceil_div(table.num_entries, rows_per_item)));
  params->dst_rows_have_ends = !tile.dst.fills_vectors;
  const int64_t num_columns = params->store.num_rows.divisor;
  const int32_t joined_columns = join_runs(tile, params);
  choose_vectors(tile, launch->num_threads, params);
  const int64_t max_items = int64_t{max_items_per_thread} * launch->num_threads;
  params->src_rows_are_words =
      std::all_of(table.dims, table.dims + table.rank, [](const RunTableDim& dim) { return dim.shared_step % 4 == 0; });
  if (params->src_rows_are_words)
    choose_rotation(tile.src.alignment, num_columns, params);
  else
    choose_skew(max_items, num_columns, params);
  if (params->num_items > max_items) return false;
  choose_columns_pitch(tile, joined_columns, params);
  if (joined_columns > 0) params->joined_run_gap = joined_columns * params->columns_pitch - tile.dst.bytes;
  // Skewed columns start before the first row and end after the last.
  const int64_t skew_bytes = 4 * int64_t{params->skew_mask};
  const int64_t start_bytes = round_up(skew_bytes, int64_t{params->load.shift_mask} + 1);
  params->load.start_offset_bytes += static_cast<int32_t>(start_bytes);
  const int64_t src_bytes = launch->shared_bytes + start_bytes + skew_bytes + 2 * vector_bytes;
  // A vector's five words may end after its row.
  const int64_t dst_bytes = int64_t{params->columns_pitch} * (num_columns + 2 * column_margin) + vector_bytes;
  const int64_t bytes = round_up(std::max(src_bytes, dst_bytes), line_bytes);
  if (bytes > max_tile_span_bytes) return false;
  table.offset_bytes = static_cast<int32_t>(bytes);
  const int64_t entries = rows_per_item * int64_t{params->words_per_run.divisor};
  launch->shared_bytes = static_cast<int32_t>(bytes + round_up(int64_t{sizeof(RunTableEntry)} * entries, vector_bytes));
  return true;
}

}  // namespace flowk::permute
