// SPDX-License-Identifier: Apache-2.0
// The choice of a tile: candidates for the run of either side, an estimate of the time of every pair, and the cheapest
// pair.
#include "permute/permute_tile.h"

namespace flowk {
namespace {

constexpr int64_t max_tile_bytes = 40 * 1024;
constexpr int64_t max_whole_run_bytes = 24 * 1024;
constexpr float max_halo = 0.75f;  // over the block
constexpr int32_t target_run_bytes[] = {64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384, 24576};

// ceil_div() in 32 bits, of which a search takes thousands.
constexpr int32_t ceil_div32(int64_t n, int64_t d) {
  return static_cast<int32_t>((static_cast<uint32_t>(n) + static_cast<uint32_t>(d) - 1) / static_cast<uint32_t>(d));
}

int64_t lowest_bit(uint64_t value, int64_t limit) {
  const uint64_t bit = value & (~value + 1);
  return bit == 0 || bit > static_cast<uint64_t>(limit) ? limit : static_cast<int64_t>(bit);
}

// A stride of one unit starts the chain; each next one steps over just the whole of those before it.
void find_chain(const PermuteProblem& problem, const void* pointer, const int64_t* strides, int32_t unit_bytes,
                Side* side) {
  side->pointer = pointer;
  side->strides = strides;
  side->unit_bytes = unit_bytes;
  int64_t next = unit_bytes;
  while (side->num_dims < max_tile_dims) {
    int found = -1;
    for (int d = problem.rank - 1; d >= 0 && found < 0; --d)
      if (strides[d] == next) found = d;
    if (found < 0) return;
    side->dims[side->num_dims++] = found;
    next *= problem.extents[found];
  }
}

// Fills in what follows from a run's dimensions and block.
void finish_run(const PermuteProblem& problem, const Side& side, Run* run) {
  run->elements = run->per_index * run->block;
  run->bytes = run->elements * side.unit_bytes;
  run->period = run->per_index;
  if (!run->is_cut() && run->num_whole > 0)
    run->period /= static_cast<int32_t>(problem.extents[side.dims[run->num_whole - 1]]);
  run->whole_dims = 0;
  for (int i = 0; i < run->num_whole; ++i) run->whole_dims |= uint64_t{1} << side.dims[i];
  run->cut = run->is_cut() ? side.dims[run->num_whole] : -1;
  run->dims = run->whole_dims | (run->is_cut() ? uint64_t{1} << run->cut : 0);
  uint64_t starts = reinterpret_cast<uintptr_t>(side.pointer);
  for (int d = 0; d < problem.rank; ++d)
    if (!contains(run->whole_dims, d))
      starts |= static_cast<uint64_t>(std::abs(side.strides[d]) * (d == run->cut ? run->block : 1));
  run->alignment = static_cast<int32_t>(lowest_bit(starts, line_bytes));
  run->fills_chunks = run->alignment >= chunk_limit_bytes && run->bytes % chunk_limit_bytes == 0;
  run->padding = 1;
  if (run->is_cut()) {
    const int64_t extent = problem.extents[run->cut];
    const int64_t num_blocks = ceil_div(extent, run->block);
    const int64_t last_block = extent - (num_blocks - 1) * run->block;
    run->fills_chunks &= last_block * run->per_index * side.unit_bytes % chunk_limit_bytes == 0;
    run->padding = static_cast<float>(num_blocks * run->block) / static_cast<float>(extent);
  }
}

void add_choice(const PermuteProblem& problem, Run run, Side* side) {
  if (side->num_choices == max_choices) return;
  finish_run(problem, *side, &run);
  side->choices[side->num_choices++] = run;
}

// `halo_bytes` come on top of a side's runs where they start inside sectors.
void find_choices(const PermuteProblem& problem, int64_t halo_bytes, Side* side) {
  Run run;
  for (int i = 0; i < side->num_dims; ++i) {
    const int64_t extent = problem.extents[side->dims[i]];
    const int64_t inner_bytes = int64_t{run.per_index} * side->unit_bytes;
    // Blocks of nearly one size, in whole sectors where they are several times as large.
    const int64_t granule =
        std::max<int64_t>(sector_bytes / lowest_bit(static_cast<uint64_t>(inner_bytes), sector_bytes), 1);
    int64_t last_block = 0;
    for (const int32_t target_bytes : target_run_bytes) {
      int64_t block = target_bytes / inner_bytes;
      if (block < 2) continue;
      if (block >= extent) break;
      block = ceil_div(extent, ceil_div(extent, block));
      if (2 * granule <= block) block = round_up(block, granule);
      if (block >= extent) break;
      if (block == last_block) continue;
      last_block = block;
      Run cut = run;
      cut.block = static_cast<int32_t>(block);
      if (halo_bytes > 0) {
        finish_run(problem, *side, &cut);
        const int64_t with_halo = extent + ceil_div(halo_bytes, inner_bytes);
        if (cut.alignment < sector_bytes)
          block = round_up(ceil_div(with_halo, ceil_div(with_halo, block)), 2 * granule <= block ? granule : 1);
        if (block >= extent) break;
        cut.block = static_cast<int32_t>(block);
      }
      add_choice(problem, cut, side);
    }
    if (inner_bytes * extent > max_whole_run_bytes) return;
    run.per_index *= static_cast<int32_t>(extent);
    ++run.num_whole;
    add_choice(problem, run, side);
  }
}

// About what a source row takes of shared memory: what it does where rows have one dimension.
int64_t pitch_of(const PermuteProblem& problem, const Side& dst_side, const Tile& tile, bool is_aligned) {
  const Run& src = tile.src;
  int row_dim = -1;  // the first dimension of the source rows
  for (int i = tile.dst.num_dims() - 1; i >= 0; --i)
    if (!contains(src.dims, dst_side.dims[i])) row_dim = dst_side.dims[i];
  if (row_dim < 0 || tile.dense_rows > 1) return src.bytes;
  const int64_t stride = problem.src_strides[row_dim];
  bool is_congruent = false;
  if (is_aligned) return swizzled_pitch(src.bytes, stride, src.alignment, &is_congruent);
  for (int64_t modulus = line_bytes;; modulus /= 2) {
    const int64_t pitch = congruent_pitch(src.bytes, stride, src.alignment >= chunk_limit_bytes, modulus);
    if (pitch * 100 <= src.bytes * max_congruent_percent || modulus == chunk_limit_bytes) return pitch;
  }
}

// False where the two runs do not make a box, or one that is too large, or smaller than `min_bytes`.
bool join(const PermuteProblem& problem, const Side& src_side, const Run& src, const Side& dst_side, const Run& dst,
          int64_t min_bytes, int64_t max_bytes, Tile* tile) {
  if (contains(dst.whole_dims, src.cut) || contains(src.whole_dims, dst.cut)) return false;
  const bool is_disjoint = (src.dims & dst.dims) == 0;
  if (is_disjoint) {  // most pairs end here
    const int64_t bytes = problem.bytes_of(int64_t{src.elements} * dst.elements);
    if (bytes > max_bytes || bytes < min_bytes) return false;
  }
  tile->src = src;
  tile->dst = dst;
  tile->src_innermost = src_side.dims[0];
  tile->src_cut = src.cut;
  tile->dst_cut = dst.cut;
  if (src.cut >= 0 && src.cut == dst.cut && src.block != dst.block) {
    // One dimension, one block: the larger.
    Run& smaller = src.block < dst.block ? tile->src : tile->dst;
    smaller.block = std::max(src.block, dst.block);
    finish_run(problem, &smaller == &tile->src ? src_side : dst_side, &smaller);
  }
  // Source rows are the indices of the destination run's dimensions that the source run has not.
  int64_t src_rows = dst.elements;
  if (!is_disjoint) {
    src_rows = 1;
    for (int i = 0; i < dst.num_whole; ++i)
      if (!contains(src.dims, dst_side.dims[i])) src_rows *= problem.extents[dst_side.dims[i]];
    if (dst.cut >= 0 && dst.cut != src.cut) src_rows *= dst.block;
  }
  tile->elements = src_rows * tile->src.elements;
  const bool fills_chunks = is_disjoint && src.fills_chunks && dst.fills_chunks;
  tile->dense_rows = 1;
  if (!fills_chunks) {
    // The first dimension of the source rows: do they lie one after the other?
    for (int i = tile->dst.num_dims() - 1; i >= 0; --i) {
      const int d = dst_side.dims[i];
      if (contains(tile->src.dims, d)) continue;
      const bool is_dense = problem.src_strides[d] == tile->src.bytes;
      tile->dense_rows = !is_dense            ? 1
                         : d == tile->dst_cut ? tile->dst.block
                                              : static_cast<int32_t>(problem.extents[d]);
    }
  }
  tile->shared_bytes = src_rows * pitch_of(problem, dst_side, *tile, fills_chunks);
  if (tile->dst.num_dims() > 1 && !fills_chunks) {
    tile->shared_bytes += static_cast<int64_t>(sizeof(TileTableEntry)) * tile->dst.period;
  }
  tile->src_rows = static_cast<int32_t>(src_rows);
  if (!fills_chunks) tile->shared_bytes += dst_row_bytes * (tile->elements / tile->dst.elements);
  tile->two_steps = problem.unit_bytes == 1 && !problem.is_converted && is_disjoint && !fills_chunks &&
                    std::min(tile->src.bytes, tile->dst.bytes) >= min_two_step_run_bytes &&
                    two_step_items(tile->src.bytes, tile->dst.elements) <= max_items_per_thread * tile_threads;
  tile->adjacent_rows = 1;
  if (tile->two_steps && dst.cut < 0) {
    for (int i = 0; i < src.num_dims(); ++i) {
      const int d = src_side.dims[i];
      if (problem.dst_strides[d] == tile->dst.bytes)
        tile->adjacent_rows = d == src.cut ? src.block : static_cast<int32_t>(problem.extents[d]);
    }
  }
  if (tile->two_steps && tile->dense_rows == 1) {
    for (int i = 0; i < tile->dst.num_dims(); ++i) {
      const int d = dst_side.dims[i];
      if (problem.src_strides[d] == tile->src.bytes)
        tile->dense_rows = d == tile->dst_cut ? tile->dst.block : static_cast<int32_t>(problem.extents[d]);
    }
  }
  return problem.bytes_of(tile->elements) <= max_bytes && tile->shared_bytes <= max_shared_bytes;
}

// Can the tile be copied, transposed and stored in whole chunks, without a run that shares dimensions with the other?
bool is_aligned(const PermuteProblem& problem, const Tile& tile) {
  if ((tile.src.dims & tile.dst.dims) != 0 || !tile.src.fills_chunks || !tile.dst.fills_chunks) return false;
  if (problem.unit_bytes >= 4) return true;
  // Rows that one thread stores together are neighbours in src's innermost dimension.
  const int64_t extent = problem.extents[tile.src_innermost];
  const int64_t block = tile.src_cut == tile.src_innermost ? tile.src.block : extent;
  return (block | extent) % (4 / problem.unit_bytes) == 0;
}

// What a tile's time is made of, relative to a copy of the same bytes: fitted to 20000 tiles of 287 cases timed on an
// H200 (bench/tune_permute.py) so that the cheapest tile of a case is a fast one. Its pick is 2.1% slower than the
// case's best tile there (1-byte elements 3%), and 3.2% in 122 random cases that were kept out.
namespace weight {
constexpr float copy = 1.0501f;
constexpr float src_sectors = 0.0235f;       // 32-byte sectors of src touched twice, over those needed
constexpr float dst_lines = 0.0231f;         // the same for 128-byte lines of dst
constexpr float dst_sectors = 0.1687f;       // sectors of dst stored in parts
constexpr float src_line_ends = 0.0206f;     // lines of src that a run ends in
constexpr float short_src_run = 0.0138f;     // below 256 bytes
constexpr float shortest_src_run = 0.0202f;  // one line or less
constexpr float halo = 0.1143f;              // over the block
constexpr float block = 0.0230f;             // the start of a block, over the tile's KB
constexpr float unaligned_load = 0.0623f;    // passes of the block's threads over the tile, over its KB
constexpr float row_of_dims = 0.0687f;       // more where source rows have three dimensions or more
constexpr float dst_row = 0.0055f;           // over the table of destination rows
constexpr float store = 0.0933f;
constexpr float element_gather = 0.0201f;  // for each element of a chunk
constexpr float partial_store = 0.0178f;
constexpr float table = 0.0996f;  // KB of table
constexpr float few_bytes_in_flight = 0.0181f;
constexpr float idle = 0.0820f;        // blocks that the last wave leaves out
constexpr float padding = 0.1096f;     // of tiles at the edge, over the tensor
constexpr float conflicts = 0.0031f;   // for each bit that the swizzle lacks
constexpr float below_8_kb = 0.0045f;  // of the tile; each adds to the ones before it
constexpr float below_11_kb = 0.0199f;
constexpr float below_14_kb = 0.0169f;
constexpr float above_17_kb = 0.0036f;
constexpr float above_20_kb = 0.0109f;
constexpr float above_25_kb = 0.0049f;
constexpr float above_33_kb = 0.0108f;
}  // namespace weight

// Chooses the halo, and estimates the tile's time.
void estimate(const PermuteProblem& problem, const Device& device, float num_elements, Tile* tile) {
  const Run& src = tile->src;
  const Run& dst = tile->dst;
  tile->aligned = is_aligned(problem, *tile);
  const bool is_disjoint = (src.dims & dst.dims) == 0;
  float with_halo = 1;  // elements loaded, over those of the block
  // Rows that start inside a sector: load a halo, so that every sector is stored by one tile, if that costs little.
  tile->halo = 0;
  if (tile->dst_cut >= 0 && tile->dst_cut != tile->src_cut && dst.alignment < sector_bytes) {
    const int32_t needed = halo_elements(problem, tile->aligned);
    // Rows that start on chunks keep doing so with whole chunks of halo.
    const int32_t per_index_bytes = dst.per_index * problem.dst_unit_bytes;
    const auto halo = static_cast<int32_t>(
        tile->aligned ? chunk_limit_bytes / lowest_bit(static_cast<uint64_t>(per_index_bytes), chunk_limit_bytes)
                      : ceil_div32(needed, dst.per_index));
    const int32_t loaded = is_disjoint ? needed : halo * dst.per_index;
    const float extra = static_cast<float>(loaded) / static_cast<float>(dst.elements);
    if (extra <= max_halo && static_cast<float>(tile->shared_bytes) * (1 + extra) <= float{max_shared_bytes}) {
      tile->halo = halo;
      with_halo += extra;
    }
  }
  if (tile->two_steps) {
    tile->cost = two_step_cost(problem, device, num_elements, with_halo, *tile);
    return;
  }
  const int32_t src_run_bytes = src.bytes * tile->dense_rows;
  const float src_run = static_cast<float>(src_run_bytes), dst_run = static_cast<float>(dst.bytes);
  const float tile_kb = static_cast<float>(problem.bytes_of(tile->elements)) / 1024.0f;
  const bool src_is_aligned = src.alignment >= chunk_limit_bytes;
  const bool is_partial = dst.alignment < chunk_limit_bytes && tile->halo == 0;
  const int64_t dst_alignment =
      tile->halo > 0 ? sector_bytes
                     : std::min<int64_t>(dst.alignment, lowest_bit(static_cast<uint64_t>(dst.bytes), line_bytes));
  float cost = weight::copy + weight::halo * (with_halo - 1) + weight::block / tile_kb;
  cost +=
      weight::src_sectors * static_cast<float>(sector_bytes - std::min<int64_t>(src.alignment, sector_bytes)) / src_run;
  cost += weight::dst_lines * static_cast<float>(line_bytes - dst_alignment) / dst_run;
  cost +=
      weight::dst_sectors * static_cast<float>(sector_bytes - std::min<int64_t>(dst_alignment, sector_bytes)) / dst_run;
  if (src_is_aligned && src.bytes % line_bytes != 0) cost += weight::src_line_ends * 128.0f / std::max(src_run, 128.0f);
  if (src_run_bytes < 2 * line_bytes) cost += weight::short_src_run;
  if (src_run_bytes <= line_bytes) cost += weight::shortest_src_run;
  if (tile_kb < 14) cost += weight::below_14_kb;
  if (tile_kb < 11) cost += weight::below_11_kb;
  if (tile_kb < 8) cost += weight::below_8_kb;
  if (tile_kb > 17) cost += weight::above_17_kb;
  if (tile_kb > 20) cost += weight::above_20_kb;
  if (tile_kb > 25) cost += weight::above_25_kb;
  if (tile_kb > 33) cost += weight::above_33_kb;

  // Passes of the block's threads: loads, the table, stores.
  float passes = 0;
  const int32_t src_rows = static_cast<int32_t>(static_cast<float>(tile->src_rows) * with_halo);
  const int32_t src_chunks =
      ceil_div32(src_run_bytes + (src_is_aligned ? 0 : chunk_limit_bytes - 1), chunk_limit_bytes);
  const int32_t loads = ceil_div32(ceil_div32(src_rows, tile->dense_rows), std::max(tile_threads / src_chunks, 1)) *
                        ceil_div32(src_chunks, tile_threads);
  if (!src_is_aligned) passes += weight::unaligned_load * static_cast<float>(loads);
  if (__builtin_popcountll(dst.dims & ~src.dims) > 2) passes += weight::row_of_dims * static_cast<float>(loads);
  const int32_t elements_per_chunk = chunk_limit_bytes / problem.dst_unit_bytes;
  if (!tile->aligned && dst.num_dims() > 1) {
    const int32_t entries = dst.period + elements_per_chunk - 1;
    passes += weight::table * static_cast<float>(entries) * (sizeof(uint32_t) / 1024.0f);
  }
  const int32_t rows_per_item = tile->aligned && problem.unit_bytes < 4 ? 4 / problem.unit_bytes : 1;
  const int32_t dst_rows = static_cast<int32_t>(tile->elements) / (dst.elements * rows_per_item);
  if (!tile->aligned) passes += weight::dst_row * static_cast<float>(ceil_div32(dst_rows, tile_threads));
  const int32_t chunks = ceil_div32(dst.bytes, chunk_limit_bytes) + (is_partial ? 1 : 0);
  const int32_t per_group = chunks_per_group_of(chunks);
  float per_element = tile->aligned ? 0.0f : weight::element_gather;
  if (is_partial) per_element += weight::partial_store * std::min(1.0f, 128.0f / dst_run);
  const int32_t items = ceil_div32(chunks, per_group) * dst_rows;
  passes += (weight::store + per_element * static_cast<float>(elements_per_chunk)) *
            static_cast<float>(ceil_div32(items, tile_threads / per_group));
  cost += passes / tile_kb;

  // Blocks that are resident together, the bytes they keep in flight, and the last wave's idle blocks.
  const int32_t shared_bytes = static_cast<int32_t>(static_cast<float>(tile->shared_bytes) * with_halo) + 1024;
  const float resident =
      static_cast<float>(std::clamp(device.shared_bytes_per_multiprocessor / shared_bytes, 1, max_resident_tiles));
  cost += weight::few_bytes_in_flight * std::max(0.0f, 1.0f - resident * tile_kb / 64.0f);
  const float padding = src.padding * (dst.cut == src.cut ? 1.0f : dst.padding);
  cost += weight::padding * (padding - 1);
  const float num_tiles = padding * num_elements / static_cast<float>(tile->elements);
  const float waves = num_tiles / (static_cast<float>(device.num_multiprocessors) * resident);
  if (waves < 4) cost += weight::idle * (static_cast<float>(static_cast<int64_t>(waves) + 1) / waves - 1);
  if (src_is_aligned && src_rows > 1)
    for (int mask = swizzle_mask_of(src.bytes); mask < 7; mask = 2 * mask + 1) cost += weight::conflicts;
  tile->cost = cost;
}

// A dimension that dst walks down is walked the other way round, unless src's run needs it as it is. Where it is dst's
// innermost and not src's, src's run ends before it.
void flip_down_dims(Side* src_side, PermuteProblem* problem) {
  for (int d = 0; d < problem->rank; ++d) {
    if (problem->dst_strides[d] >= 0) continue;
    const int* end = src_side->dims + src_side->num_dims;
    const auto at = static_cast<int>(std::find(static_cast<const int*>(src_side->dims), end, d) - src_side->dims);
    const bool is_dst_innermost = problem->dst_strides[d] == -int64_t{problem->dst_unit_bytes};
    if (at < src_side->num_dims && !(is_dst_innermost && at > 0)) continue;
    src_side->num_dims = std::min(src_side->num_dims, at);
    problem->src += problem->src_strides[d] * (problem->extents[d] - 1);
    problem->dst += problem->dst_strides[d] * (problem->extents[d] - 1);
    problem->src_strides[d] = -problem->src_strides[d];
    problem->dst_strides[d] = -problem->dst_strides[d];
  }
}

// Both sides and their runs; `problem` as the tiles see it, with dimensions turned round where that helps.
struct Search {
  PermuteProblem problem;  // the sides point into it
  float num_elements = 1;
  Side src_side, dst_side;
};

void make_search(const PermuteProblem& given, Search* search) {
  search->problem = given;
  PermuteProblem& problem = search->problem;
  find_chain(problem, problem.src, problem.src_strides, problem.unit_bytes, &search->src_side);
  flip_down_dims(&search->src_side, &problem);
  search->src_side.pointer = problem.src;
  find_chain(problem, problem.dst, problem.dst_strides, problem.dst_unit_bytes, &search->dst_side);
  for (int d = 0; d < problem.rank; ++d) search->num_elements *= static_cast<float>(problem.extents[d]);
  find_choices(problem, 0, &search->src_side);
  const bool is_bytes = problem.unit_bytes == 1 && !problem.is_converted;
  find_choices(problem, is_bytes ? sector_bytes - 1 : 0, &search->dst_side);
}

bool make_tile(const Search& search, const Device& device, int src_choice, int dst_choice, int64_t min_bytes,
               int64_t max_bytes, Tile* tile) {
  if (!join(search.problem, search.src_side, search.src_side.choices[src_choice], search.dst_side,
            search.dst_side.choices[dst_choice], min_bytes, max_bytes, tile))
    return false;
  estimate(search.problem, device, search.num_elements, tile);
  return true;
}

// The cheapest tile of min_bytes to max_bytes; its cost is < 0 if there is none.
Tile find_tile(const Search& search, const Device& device, int64_t min_bytes, int64_t max_bytes) {
  Tile best;
  best.cost = -1;
  for (int i = 0; i < search.src_side.num_choices; ++i) {
    for (int j = 0; j < search.dst_side.num_choices; ++j) {
      Tile tile;
      if (make_tile(search, device, i, j, min_bytes, max_bytes, &tile) && (best.cost < 0 || tile.cost < best.cost))
        best = tile;
    }
  }
  return best;
}

}  // namespace

void plan_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  // Where tiles of this size fill the GPU several times over, smaller ones are asked only if there is no other.
  constexpr int64_t usual_min_bytes = 6 * 1024;
  Search search;
  make_search(problem, &search);
  const float num_bytes = search.num_elements * static_cast<float>(problem.unit_bytes + problem.dst_unit_bytes) / 2;
  const bool is_large = num_bytes > static_cast<float>(32 * usual_min_bytes * device.num_multiprocessors);
  Tile best = find_tile(search, device, is_large ? usual_min_bytes : 0, max_tile_bytes);
  // Rows of several short dimensions may take twice the shared memory that a search counts.
  for (int64_t max_bytes = max_tile_bytes;; max_bytes /= 2) {
    if (best.cost < 0) best = find_tile(search, device, 0, max_bytes);
    if (best.cost < 0) return plan_strided_tile(problem, plan);
    if (build_tile(search.problem, best, search.src_side, search.dst_side, plan)) return;
    best.cost = -1;
  }
}

TileCandidate plan_tile_candidate(const PermuteProblem& problem, const Device& device, int src_choice, int dst_choice,
                                  PermutePlan* plan) {
  Search search;
  make_search(problem, &search);
  if (src_choice >= search.src_side.num_choices || dst_choice >= search.dst_side.num_choices)
    return TileCandidate::out_of_range;
  Tile tile;
  if (!make_tile(search, device, src_choice, dst_choice, 0, max_tile_bytes, &tile) ||
      !build_tile(search.problem, tile, search.src_side, search.dst_side, plan))
    return TileCandidate::no_box;
  return TileCandidate::planned;
}

}  // namespace flowk
