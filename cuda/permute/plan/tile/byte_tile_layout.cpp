// SPDX-License-Identifier: Apache-2.0
// A byte_tile in shared memory: the items of its threads, and the columns, with few bank conflicts.
#include "permute/plan/tile/permute_tile.h"
#include "permute/tile_index.h"

namespace flowk::permute {
namespace {

constexpr int max_log2_skew = 4;      // of rows an odd multiple of 16 bytes apart
constexpr int32_t above_zero = 1024;  // makes offsets positive and keeps their banks

// A way to divide the tile into items, and its cost in wavefronts of shared memory. 4 instructions count as one
// wavefront, which is not measured.
struct Items {
  int32_t words_per_item;
  int32_t rotation_shift;
  int32_t skew_shift;
  uint32_t skew_mask;
  int64_t sets_per_outer;
  int32_t columns_pitch;
  bool are_aligned;
  float cost;
};

// The columns in the order of src.
struct Columns {
  int64_t inner;
  int64_t outer;
  int32_t run_bytes;  // of a destination run, with the halo
  int64_t row_bytes;  // of one column, or of the runs along the outer dimension that are joined
  bool joins_outer;   // the joined runs are the outer dimension's
  bool joins_inner;
  int32_t alignment;  // of all rows in dst
};

Columns columns_of(const TileLayout& layout, const ByteTileParams& params) {
  const Tile& tile = layout.tile;
  const TileRowDim* dims = params.tile.dst_row_dims;
  const int rank = params.tile.dst_row_rank;
  Columns columns = {};
  columns.run_bytes = static_cast<int32_t>(params.table.num_entries);
  columns.joins_inner = tile.join_dim >= 0 && tile.join_dim == layout.dst_rows.dims[0];
  columns.joins_outer = tile.join_dim >= 0 && !columns.joins_inner && tile.batch_dim < 0;
  const bool has_outer = columns.joins_outer || tile.batch_dim >= 0;
  columns.outer = has_outer ? dims[rank - 1].divider.divisor : 1;
  columns.inner = params.store.num_rows.divisor / columns.outer;
  columns.row_bytes = columns.run_bytes * (columns.joins_outer ? columns.outer : 1);
  columns.alignment = static_cast<int32_t>(lowest_bit(static_cast<uint64_t>(params.halo_bytes), tile.dst.alignment));
  return columns;
}

// The step in shared memory along dimension `d` of the destination rows, if columns are `pitch` bytes apart.
int64_t column_step(const Columns& columns, const ByteTileParams& params, int d, int64_t pitch) {
  if (columns.joins_outer && d == params.tile.dst_row_rank - 1) return columns.run_bytes;
  int64_t before = 1;
  for (int i = 0; i < d; ++i) before *= params.tile.dst_row_dims[i].divider.divisor;
  return before * pitch;
}

// Does every row have the same offset in a vector in dst and in shared memory?
bool are_congruent(const Columns& columns, const ByteTileParams& params, int64_t pitch) {
  for (int d = 0; d < params.tile.dst_row_rank; ++d) {
    const TileRowDim& dim = params.tile.dst_row_dims[d];
    if (dim.divider.divisor > 1 && (dim.stride - column_step(columns, params, d, pitch)) % vector_bytes != 0)
      return false;
  }
  return true;
}

// If all rows start at the same offset in a word, lanes with rows in one bank take the words of their columns in
// rotated order. Otherwise, if the rows that the lanes read are 2, 4, 8 or 16 words apart, that number of sets of lanes
// share a bank: each set takes columns one word to the left of the set before. Returns the wavefronts of a read.
float choose_reads(const ByteTileParams& params, int choice, Items* items) {
  const uint32_t num_words = params.words_per_run.divisor;
  const int32_t columns_per_item = columns_per_word * items->words_per_item;
  items->rotation_shift = no_rotation;
  items->skew_shift = 0;
  items->skew_mask = 0;
  if (params.src_rows_are_words && choice > 0) items->rotation_shift = 1 + choice;  // 1, 2, 4, 8 lanes
  if (!params.src_rows_are_words) {
    items->skew_shift = 5 - choice;
    items->skew_mask = (1u << choice) - 1;
  }
  int32_t shared_offsets[warp_lanes];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t word = lane % num_words;
    const auto element = static_cast<int32_t>(rows_per_item * word);
    shared_offsets[lane] = above_zero + locate_run_element(params.table, static_cast<uint32_t>(element)) +
                           columns_per_item * static_cast<int32_t>(lane / num_words) +
                           4 * first_word_of(element, items->rotation_shift) -
                           skew_of(word, items->skew_shift, items->skew_mask);
  }
  return bank_conflicts(shared_offsets, 4, 0);
}

// The wavefronts of a column's store, and of the vectors that a thread reads of a row.
void count_passes(const Columns& columns, const ByteTileParams& params, const Items& items, float* stores,
                  float* loads) {
  const uint32_t num_words = params.words_per_run.divisor;
  const uint32_t per_segment = params.store.vectors_per_segment.divisor;
  const auto num_rows = static_cast<uint32_t>(columns.inner * columns.outer * columns.run_bytes / columns.row_bytes);
  int32_t written[warp_lanes], read[warp_lanes];
  for (uint32_t lane = 0; lane < warp_lanes; ++lane) {
    const uint32_t word = lane % num_words;
    const int32_t column =
        columns_per_word * items.words_per_item * static_cast<int32_t>(lane / num_words) +
        columns_per_word * first_word_of(static_cast<int32_t>(rows_per_item * word), items.rotation_shift) -
        skew_of(word, items.skew_shift, items.skew_mask);
    written[lane] = (above_zero + column) * items.columns_pitch + static_cast<int32_t>(rows_per_item * word);
    const uint32_t item = lane / per_segment, row = item % num_rows;
    const uint32_t vector = item / num_rows * per_segment + lane % per_segment;
    read[lane] = static_cast<int32_t>(columns.joins_inner
                                          ? lane * vector_bytes
                                          : row * static_cast<uint32_t>(items.columns_pitch) + vector * vector_bytes);
    if (items.are_aligned) read[lane] &= -vector_bytes;
  }
  *stores = bank_conflicts(written, 4, 0);
  *loads = items.are_aligned ? 4 * bank_conflicts(read, vector_bytes, 0) + 3 : 5 * bank_conflicts(read, 4, 0) + 6;
}

// Chooses the items, at most max_items, and the pitch of the columns. Rows that are joined have no padding; others
// start on words. Returns the items' cost.
float choose_items(const Columns& columns, int32_t src_alignment, int64_t max_items, ByteTileParams* params) {
  const bool joins = columns.joins_inner || columns.joins_outer;
  const int64_t num_vectors = ceil_div(columns.inner * columns.outer * columns.run_bytes, vector_bytes);
  const int32_t min_pitch =
      static_cast<int32_t>(columns.joins_inner ? columns.run_bytes : round_up(columns.row_bytes, rows_per_item));
  const int32_t max_padding = columns.joins_inner ? 0 : byte_tile_padding(static_cast<int32_t>(columns.row_bytes));
  Items best = {};
  best.cost = FLT_MAX;
  for (int words_per_item = 1; words_per_item <= max_words_per_item; ++words_per_item) {
    if (words_per_item > 1 && columns_per_word * (words_per_item - 1) >= columns.inner + column_margin) break;
    for (int choice = 0; choice <= max_log2_skew; ++choice) {
      if (params->src_rows_are_words && choice > 0 && words_per_item < max_words_per_item) break;
      Items items = {};
      items.words_per_item = words_per_item;
      const float reads = choose_reads(*params, choice, &items);
      const int64_t extra = params->src_rows_are_words ? (src_alignment >= rows_per_item ? 0 : column_margin)
                                                       : columns_per_word * int64_t{items.skew_mask};
      items.sets_per_outer = ceil_div(columns.inner + extra, columns_per_word * words_per_item);
      if (items.sets_per_outer * columns.outer * params->words_per_run.divisor > max_items) continue;
      const auto num_items =
          static_cast<float>(items.sets_per_outer * columns.outer * params->words_per_run.divisor) / warp_lanes;
      for (int32_t padding = 0; padding < 32 && padding <= max_padding; padding += rows_per_item) {
        items.columns_pitch = min_pitch + padding;
        const int32_t store_bytes =
            joins ? static_cast<int32_t>(lowest_bit(static_cast<uint64_t>(columns.run_bytes), 4)) : 4;
        items.are_aligned =
            are_congruent(columns, *params, items.columns_pitch) && (joins || columns.alignment >= store_bytes);
        const auto words = static_cast<float>(words_per_item);
        const float parts = items.are_aligned ? 4.0f / static_cast<float>(std::min(store_bytes, columns.alignment))
                                              : 4.0f / static_cast<float>(store_bytes);
        float stores = 0, loads = 0;
        count_passes(columns, *params, items, &stores, &loads);
        const float item = 10 + (params->src_rows_are_words ? 4 * words : 4 * words + 4) * reads +
                           words * (4 + 4 * parts * stores + 2 * (parts - 1));
        items.cost = num_items * item + static_cast<float>(num_vectors) / warp_lanes * loads;
        if (items.cost >= best.cost - 0.01f) continue;
        best = items;
        params->store_bytes = static_cast<int32_t>(4 / parts);
      }
    }
  }
  params->words_per_item = best.words_per_item;
  params->rotation_shift = best.rotation_shift;
  params->skew_shift = best.skew_shift;
  params->skew_mask = best.skew_mask;
  params->columns_pitch = best.columns_pitch;
  params->dst_rows_are_aligned = best.are_aligned;
  params->sets_per_outer = Divider(static_cast<uint32_t>(best.sets_per_outer));
  params->num_items = static_cast<uint32_t>(best.sets_per_outer * columns.outer * params->words_per_run.divisor);
  return best.cost;
}

// Do all destination rows consist of aligned vectors? Those of the joined dimensions are parts of a row.
bool fill_vectors(const TileSearch& search, const TileLayout& layout, int64_t row_bytes, uint64_t joined_dims) {
  const PermuteProblem& problem = search.problem;
  uint64_t starts = reinterpret_cast<uintptr_t>(problem.dst) | static_cast<uint64_t>(row_bytes);
  for (int d = 0; d < problem.rank; ++d) {
    const bool is_whole = contains(layout.tile.dst.whole_dims | joined_dims, d);
    if (!is_whole) starts |= static_cast<uint64_t>(std::abs(problem.dst_strides[d]));
    if (is_whole && layout.extents[d] < problem.extents[d]) {
      const int64_t last = problem.extents[d] % layout.extents[d];
      starts |= static_cast<uint64_t>(problem.dst_strides[d] * layout.extents[d] | problem.dst_strides[d] * last);
    }
  }
  return starts % vector_bytes == 0;
}

// Joins destination rows that lie one after the other in dst and in shared memory. Returns the bytes of a row.
int64_t join_rows(const TileLayout& layout, ByteTileParams* params, uint64_t* joined_dims) {
  TileRowDim* const dims = params->tile.dst_row_dims;
  int64_t row_bytes = layout.tile.dst.bytes, num_runs = 1;
  int row_dims[max_tile_dims];
  std::copy(layout.dst_rows.dims, layout.dst_rows.dims + layout.dst_rows.rank, row_dims);
  while (layout.tile.join_dim >= 0 && !params->joins_src_cut) {
    int& rank = params->tile.dst_row_rank;
    const TileRowDim* const end = dims + rank;
    TileRowDim* const joined = std::find_if(dims, dims + rank, [&](const TileRowDim& dim) {
      return dim.stride == row_bytes && dim.shared_step == row_bytes;
    });
    if (joined == end) break;
    row_bytes *= joined->divider.divisor;
    num_runs *= joined->divider.divisor;
    params->joins_src_cut = layout.tile.src_cut >= 0 && joined == end - 1;  // a cut dimension is the last
    *joined_dims |= uint64_t{1} << row_dims[joined - dims];
    std::copy(row_dims + (joined - dims) + 1, row_dims + rank, row_dims + (joined - dims));
    std::copy(joined + 1, dims + rank, joined);
    dims[--rank] = {};
  }
  const uint32_t num_rows = params->store.num_rows.divisor / static_cast<uint32_t>(num_runs);
  params->store.num_rows = Divider(num_rows);
  params->run_join = Divider(params->joins_src_cut ? num_rows : static_cast<uint32_t>(num_runs));
  return row_bytes;
}

// Chooses the largest number of vectors in a destination row, and how many of them neighbouring threads store. With a
// halo rows start and end on sectors. Long rows are stored line by line.
void choose_vectors(const Tile& tile, int64_t row_bytes, int num_threads, ByteTileParams* params) {
  int64_t vectors = row_bytes / vector_bytes;
  params->dst_granule = vector_bytes;
  if (tile.halo > 0) {
    params->store.span_end_mask = sector_bytes - 1;
    if (row_bytes % sector_bytes != 0) vectors = round_up(row_bytes, sector_bytes) / vector_bytes;
  } else if (tile.dst.alignment < line_bytes && row_bytes >= 4 * line_bytes) {
    params->dst_granule = line_bytes;
    vectors += line_vectors - 1;
  }
  vectors = std::max<int64_t>(vectors, 1);
  const int64_t per_segment =
      params->dst_granule == line_bytes ? line_vectors : ceil_div(vectors, ceil_div(vectors, line_vectors));
  set_segments(vectors, per_segment, num_threads, &params->store);
}

}  // namespace

float place_columns(const TileSearch& search, const TileLayout& layout, LaunchConfig* launch, ByteTileParams* params) {
  const Tile& tile = layout.tile;
  RunTable& table = params->table;
  table.num_entries = static_cast<uint32_t>(params->tile.whole_count(params->tile.dst_run_elements));
  params->words_per_run = Divider(static_cast<uint32_t>(ceil_div(table.num_entries, rows_per_item)));
  params->halo_bytes = params->tile.halo * tile.dst.per_index;
  const Columns columns = columns_of(layout, *params);
  TileRowDim* const dims = params->tile.dst_row_dims;
  TileRowDim& outermost = dims[params->tile.dst_row_rank - 1];
  params->has_outer = columns.joins_outer || tile.batch_dim >= 0;
  params->inner_columns = Divider(static_cast<uint32_t>(columns.inner));
  params->src_outer_step = params->has_outer ? outermost.shared_step : 0;
  params->src_rows_are_words =
      params->src_outer_step % rows_per_item == 0 &&
      std::all_of(table.dims, table.dims + table.rank, [](const RunTableDim& dim) { return dim.shared_step % 4 == 0; });
  // A first guess of the segments: count_passes() reads them.
  choose_vectors(tile, columns.joins_outer ? columns.row_bytes : tile.dst.bytes, launch->num_threads, params);
  const int64_t max_items = int64_t{max_items_per_thread} * launch->num_threads;
  const float wavefronts = choose_items(columns, tile.src.alignment, max_items, params);
  if (params->num_items == 0) return 0;
  for (int d = params->tile.dst_row_rank - 1; d >= 0; --d)
    dims[d].shared_step = static_cast<int32_t>(column_step(columns, *params, d, params->columns_pitch));
  params->dst_outer_step = params->has_outer ? outermost.shared_step : 0;
  uint64_t joined_dims = 0;
  const int64_t row_bytes = join_rows(layout, params, &joined_dims);
  choose_vectors(tile, row_bytes, launch->num_threads, params);
  params->dst_rows_have_ends =
      tile.dst.is_cut() ? !tile.dst.fills_vectors : !fill_vectors(search, layout, row_bytes, joined_dims);
  // Skewed columns start before the first row and end after the last one. The five words that a vector is cut from may
  // end after its row.
  const int64_t skew_bytes = 4 * int64_t{params->skew_mask};
  const int64_t start_bytes = round_up(skew_bytes, int64_t{params->load.shift_mask} + 1);
  params->load.start_offset_bytes += static_cast<int32_t>(start_bytes);
  const int64_t src_bytes = launch->shared_bytes + start_bytes + skew_bytes + 2 * vector_bytes;
  const int64_t columns_bytes =
      columns.inner * params->columns_pitch * (columns.joins_outer ? 1 : columns.outer) + 2 * vector_bytes;
  const int64_t bytes = round_up(std::max(src_bytes, columns_bytes), line_bytes);
  if (bytes > max_tile_span_bytes) return 0;
  table.offset_bytes = static_cast<int32_t>(bytes);
  const int64_t entries = table.rank > 1 ? rows_per_item * int64_t{params->words_per_run.divisor} : 0;
  launch->shared_bytes =
      static_cast<int32_t>(table.offset_bytes + round_up(int64_t{sizeof(RunTableEntry)} * entries, vector_bytes));
  return wavefronts * (warp_lanes * vector_bytes) /
         static_cast<float>(columns.inner * columns.outer * columns.run_bytes);
}

}  // namespace flowk::permute
