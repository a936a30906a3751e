// SPDX-License-Identifier: Apache-2.0
// The estimate of a tile's time.
#include "permute/permute_tile.h"

namespace flowk {
namespace {

constexpr float max_halo = 0.75f;  // over the block

// Can the tile be copied, transposed and stored in whole chunks, without a run that shares dimensions with the other?
bool is_aligned(const PermuteProblem& problem, const Tile& tile) {
  if ((tile.src.dims & tile.dst.dims) != 0 || !tile.src.fills_chunks || !tile.dst.fills_chunks) return false;
  if (problem.unit_bytes >= 4) return true;
  // Rows that one thread stores together are neighbours in src's innermost dimension.
  const int64_t extent = problem.extents[tile.src_innermost];
  const int64_t block = tile.src_cut == tile.src_innermost ? tile.src.block : extent;
  return (block | extent) % (4 / problem.unit_bytes) == 0;
}

// What a tile's time is made of, relative to a copy of the same bytes: fitted to tiles timed on an H200
// (bench/tune_permute.py) so that the cheapest tile of a case is a fast one.
struct Weights {
  float copy;
  float src_sectors;       // 32-byte sectors of src touched twice, over those needed
  float dst_lines;         // the same for 128-byte lines of dst
  float dst_sectors;       // sectors of dst stored in parts
  float src_line_ends;     // lines of src that a run ends in
  float short_src_run;     // below 256 bytes
  float shortest_src_run;  // one line or less
  float halo;              // over the block
  float block;             // the start of a block, over the tile's KB
  float unaligned_load;    // passes of the block's threads over the tile, over its KB
  float row_of_dims;       // more where source rows have three dimensions or more
  float dst_row;           // over the table of destination rows
  float store;
  float element_gather;  // for each element of a chunk
  float partial_store;
  float table;  // KB of table
  float few_bytes_in_flight;
  float idle;        // blocks that the last wave leaves out
  float padding;     // of tiles at the edge, over the tensor
  float conflicts;   // for each bit that the swizzle lacks
  float below_8_kb;  // of the tile; each adds to the ones before it
  float below_11_kb;
  float below_14_kb;
  float above_17_kb;
  float above_20_kb;
  float above_25_kb;
  float above_33_kb;
};

// From 20000 tiles of 287 cases: the pick is 2.1% slower than the case's best tile there, and 3.2% in 122 random cases
// that were kept out.
constexpr Weights weights_of_units = {
    .copy = 1.0501f,
    .src_sectors = 0.0235f,
    .dst_lines = 0.0231f,
    .dst_sectors = 0.1687f,
    .src_line_ends = 0.0206f,
    .short_src_run = 0.0138f,
    .shortest_src_run = 0.0202f,
    .halo = 0.1143f,
    .block = 0.0230f,
    .unaligned_load = 0.0623f,
    .row_of_dims = 0.0687f,
    .dst_row = 0.0055f,
    .store = 0.0933f,
    .element_gather = 0.0201f,
    .partial_store = 0.0178f,
    .table = 0.0996f,
    .few_bytes_in_flight = 0.0181f,
    .idle = 0.0820f,
    .padding = 0.1096f,
    .conflicts = 0.0031f,
    .below_8_kb = 0.0045f,
    .below_11_kb = 0.0199f,
    .below_14_kb = 0.0169f,
    .above_17_kb = 0.0036f,
    .above_20_kb = 0.0109f,
    .above_25_kb = 0.0049f,
    .above_33_kb = 0.0108f,
};

// Of 1-byte elements, from 15000 tiles of 196 random cases: 3.6% there, 3.2% in 23 cases that were kept out.
constexpr Weights weights_of_bytes = {
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

const Weights& weights_of(const PermuteProblem& problem) {
  return moves_bytes(problem) ? weights_of_bytes : weights_of_units;
}

// Of a tile of so many KB, whatever its runs.
float size_cost(const Weights& weight, float kb) {
  float cost = weight.block / kb;
  if (kb < 14) cost += weight.below_14_kb;
  if (kb < 11) cost += weight.below_11_kb;
  if (kb < 8) cost += weight.below_8_kb;
  if (kb > 17) cost += weight.above_17_kb;
  if (kb > 20) cost += weight.above_20_kb;
  if (kb > 25) cost += weight.above_25_kb;
  if (kb > 33) cost += weight.above_33_kb;
  return cost;
}

// Of source runs that are loaded `run_bytes` at a time.
float src_run_cost(const Weights& weight, const Run& run, int32_t run_bytes) {
  const float bytes = static_cast<float>(run_bytes);
  float cost =
      weight.src_sectors * static_cast<float>(sector_bytes - std::min<int64_t>(run.alignment, sector_bytes)) / bytes;
  if (run.alignment >= chunk_limit_bytes && run.bytes % line_bytes != 0)
    cost += weight.src_line_ends * 128.0f / std::max(bytes, 128.0f);
  if (run_bytes < 2 * line_bytes) cost += weight.short_src_run;
  if (run_bytes <= line_bytes) cost += weight.shortest_src_run;
  return cost;
}

// What every stored run starts and ends on without a halo.
int32_t store_alignment(const Run& run) {
  return std::min(run.alignment, static_cast<int32_t>(lowest_bit(static_cast<uint64_t>(run.bytes), line_bytes)));
}

float dst_run_cost(const Weights& weight, int32_t alignment, int32_t run_bytes) {
  const float lines = static_cast<float>(line_bytes - alignment);
  const float sectors = static_cast<float>(sector_bytes - std::min<int64_t>(alignment, sector_bytes));
  return (weight.dst_lines * lines + weight.dst_sectors * sectors) / static_cast<float>(run_bytes);
}

// Tiles of several waves are best with about 64 KB in flight an SM, not all that fit: in TTC's cases with plain rows 4
// of 16 KB reach 0.5-2% more than 6, 3 of 24 KB 1-3% more, 3 of 16 KB 4% less; with other rows 5 reach 0.5% more than 6
// and 4 up to 4% less; two_sided_tile only loses (H200). Shared memory that no one uses keeps the others out.
int32_t least_shared_bytes(const Device& device, float num_tiles, int64_t tile_bytes, bool has_plain_rows) {
  constexpr int64_t bytes_in_flight = 64 * 1024, reserved_bytes = 1024;
  constexpr float min_waves = 4;
  const int64_t resident = has_plain_rows ? ceil_div(bytes_in_flight, tile_bytes) : max_resident_tiles - 1;
  if (resident >= max_resident_tiles) return 0;
  if (num_tiles < min_waves * static_cast<float>(device.num_multiprocessors * resident)) return 0;
  const int64_t that_fit_once_more = device.shared_bytes_per_multiprocessor / (resident + 1) - reserved_bytes;
  return static_cast<int32_t>(that_fit_once_more / line_bytes * line_bytes + line_bytes);
}

constexpr float rounding = 1e-5f;  // of sums in another order

// Of a chunk that a thread stores.
float least_item_cost(const PermuteProblem& problem, bool is_aligned) {
  const Weights& weight = weights_of(problem);
  if (!is_aligned)
    return weight.store + static_cast<float>(chunk_limit_bytes / problem.dst_unit_bytes) * weight.element_gather;
  return problem.unit_bytes >= 4 ? weight.store
                                 : weight.store * static_cast<float>(problem.unit_bytes) / 4;  // several rows at once
}

}  // namespace

// Chooses the halo, and estimates the tile's time.
void estimate_tile(const PermuteProblem& problem, const Device& device, float num_elements, Tile* tile) {
  const Weights& weight = weights_of(problem);
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
  tile->least_shared_bytes = 0;
  if (tile->two_steps) {
    tile->cost = two_step_cost(problem, device, num_elements, with_halo, *tile);
    return;
  }
  const int32_t src_run_bytes = src.bytes * tile->dense_rows;
  const float tile_kb = static_cast<float>(problem.bytes_of(tile->elements)) / 1024.0f;
  const bool src_is_aligned = src.alignment >= chunk_limit_bytes;
  const bool is_partial = dst.alignment < chunk_limit_bytes && tile->halo == 0;
  const int32_t dst_alignment = tile->halo > 0 ? static_cast<int32_t>(sector_bytes) : store_alignment(dst);
  float cost = weight.copy + weight.halo * (with_halo - 1) + size_cost(weight, tile_kb);
  cost += src_run_cost(weight, src, src_run_bytes) + dst_run_cost(weight, dst_alignment, dst.bytes);

  // Passes of the block's threads: loads, the table, stores.
  float passes = 0;
  const int32_t src_rows = static_cast<int32_t>(static_cast<float>(tile->src_rows) * with_halo);
  const int32_t src_chunks =
      ceil_div32(src_run_bytes + (src_is_aligned ? 0 : chunk_limit_bytes - 1), chunk_limit_bytes);
  const int32_t loads = ceil_div32(ceil_div32(src_rows, tile->dense_rows), std::max(tile_threads / src_chunks, 1)) *
                        ceil_div32(src_chunks, tile_threads);
  if (!src_is_aligned) passes += weight.unaligned_load * static_cast<float>(loads);
  const uint64_t row_dims = dst.dims & ~src.dims, but_one = row_dims & (row_dims - 1);
  if ((but_one & (but_one - 1)) != 0) passes += weight.row_of_dims * static_cast<float>(loads);
  const int32_t elements_per_chunk = chunk_limit_bytes / problem.dst_unit_bytes;
  if (!tile->aligned && dst.num_dims() > 1) {
    const int32_t entries = dst.period + elements_per_chunk - 1;
    passes += weight.table * static_cast<float>(entries) * (sizeof(uint32_t) / 1024.0f);
  }
  const int32_t rows_per_item = tile->aligned && problem.unit_bytes < 4 ? 4 / problem.unit_bytes : 1;
  const int32_t dst_rows = static_cast<int32_t>(tile->elements) / (dst.elements * rows_per_item);
  if (!tile->aligned) passes += weight.dst_row * static_cast<float>(ceil_div32(dst_rows, tile_threads));
  const int32_t chunks = ceil_div32(dst.bytes, chunk_limit_bytes) + (is_partial ? 1 : 0);
  const int32_t per_group = chunks_per_group_of(chunks);
  float per_element = tile->aligned ? 0.0f : weight.element_gather;
  if (is_partial) per_element += weight.partial_store * std::min(1.0f, 128.0f / static_cast<float>(dst.bytes));
  const int32_t items = ceil_div32(chunks, per_group) * dst_rows;
  passes += (weight.store + per_element * static_cast<float>(elements_per_chunk)) *
            static_cast<float>(ceil_div32(items, tile_threads / per_group));
  cost += passes / tile_kb;

  // Blocks that are resident together, the bytes they keep in flight, and the last wave's idle blocks.
  const int32_t shared_bytes = static_cast<int32_t>(static_cast<float>(tile->shared_bytes) * with_halo) + 1024;
  const float resident =
      static_cast<float>(std::clamp(device.shared_bytes_per_multiprocessor / shared_bytes, 1, max_resident_tiles));
  cost += weight.few_bytes_in_flight * std::max(0.0f, 1.0f - resident * tile_kb / 64.0f);
  const float padding = src.padding * (dst.cut == src.cut ? 1.0f : dst.padding);
  cost += weight.padding * (padding - 1);
  const float num_tiles = padding * num_elements / static_cast<float>(tile->elements);
  const float waves = num_tiles / (static_cast<float>(device.num_multiprocessors) * resident);
  if (waves < 4) cost += weight.idle * (static_cast<float>(static_cast<int64_t>(waves) + 1) / waves - 1);
  const bool has_plain_rows = src.num_dims() == 1 && dst.num_dims() == 1 && tile->halo == 0;
  if (tile->aligned && tile_kb > 12)
    tile->least_shared_bytes = least_shared_bytes(device, num_tiles, problem.bytes_of(tile->elements), has_plain_rows);
  if (src_is_aligned && src_rows > 1)
    for (int mask = swizzle_mask_of(src.bytes); mask < 7; mask = 2 * mask + 1) cost += weight.conflicts;
  tile->cost = cost;
}

// What a tile costs at least for the run that it has on a side: exact but for what only the pair decides.
void set_least_costs(const PermuteProblem& problem, Side* src_side, Side* dst_side) {
  const Weights& weight = weights_of(problem);
  const float bytes_per_element = static_cast<float>(problem.unit_bytes + problem.dst_unit_bytes) / 2;
  constexpr float chunks_per_kb = 1024.0f / (tile_threads * chunk_limit_bytes);  // that a thread has of 1 KB
  for (int i = 0; i < src_side->num_choices; ++i) {
    Run& run = src_side->choices[i];
    run.run_cost = src_run_cost(weight, run, run.bytes);
    if (run.alignment < chunk_limit_bytes)
      run.run_cost +=
          weight.unaligned_load * chunks_per_kb * static_cast<float>(problem.unit_bytes) / bytes_per_element;
    run.least_cost = weight.padding * (run.padding - 1) + run.run_cost;
  }
  const int32_t elements_per_chunk = chunk_limit_bytes / problem.dst_unit_bytes;
  for (int j = 0; j < dst_side->num_choices; ++j) {
    Run& run = dst_side->choices[j];
    const int32_t chunks = ceil_div32(run.bytes, chunk_limit_bytes), per_group = chunks_per_group_of(chunks);
    run.store_passes = static_cast<float>(ceil_div32(chunks, per_group) * per_group * elements_per_chunk) /
                       static_cast<float>(run.elements) * chunks_per_kb * static_cast<float>(problem.dst_unit_bytes) /
                       bytes_per_element;
    float cost = dst_run_cost(weight, store_alignment(run), run.bytes);
    if (run.alignment < chunk_limit_bytes)
      cost += weight.partial_store * std::min(1.0f, 128.0f / static_cast<float>(run.bytes)) *
              static_cast<float>(elements_per_chunk) * run.store_passes;
    if (run.is_cut() && run.alignment < sector_bytes) {
      const float halo = static_cast<float>(halo_elements(problem, run.fills_chunks));
      cost = std::min(cost, dst_run_cost(weight, static_cast<int32_t>(sector_bytes), run.bytes) +
                                weight.halo * halo / static_cast<float>(run.elements));
    }
    run.least_cost = weight.padding * (run.padding - 1) + cost;
    run.least_store = least_item_cost(problem, run.fills_chunks) * run.store_passes;
    const float with_stores = run.least_cost + run.least_store;
    dst_side->least_cost = j == 0 ? with_stores : std::min(dst_side->least_cost, with_stores);
  }
  if (moves_bytes(problem)) set_least_two_step_costs(src_side, dst_side);
}

float least_cost_of_source_run(const PermuteProblem& problem, const Side& src_side, int choice, const Side& dst_side) {
  const Weights& weight = weights_of(problem);
  const Run& src = src_side.choices[choice];
  float cost = weight.copy - rounding;
  // Where both runs are cut along one dimension, the larger block is both sides'.
  const bool may_share_cut = src.is_cut() && contains(dst_side.masks[dst_side.num_dims], src.cut);
  const bool is_first_block = choice == 0 || src_side.choices[choice - 1].cut != src.cut;
  if (!may_share_cut || !is_first_block) cost += src.least_cost - src.run_cost;
  if (!may_share_cut) cost += dst_side.least_cost;
  return moves_bytes(problem) ? std::min(cost, least_two_step_cost_of_source_run(src) - rounding) : cost;
}

float least_cost_apart(const PermuteProblem& problem, const Run& src, bool is_dense, const Run& dst) {
  const Weights& weight = weights_of(problem);
  const float src_cost = src.least_cost - (is_dense ? src.run_cost : 0);
  const float cost = weight.copy + src_cost + dst.least_cost + dst.least_store;
  return (moves_bytes(problem) ? std::min(cost, least_two_step_cost_of_source_run(src)) : cost) - rounding;
}

float least_cost(const PermuteProblem& problem, const Run& src, bool is_dense, const Run& dst, int64_t tile_bytes) {
  if (takes_two_steps(problem, src, dst)) return least_two_step_cost(src, is_dense, dst) - rounding;
  const Weights& weight = weights_of(problem);
  const float src_cost = src.least_cost - (is_dense ? src.run_cost : 0);
  const bool shares_cut = src.cut >= 0 && src.cut == dst.cut;
  const float dst_cost = dst.least_cost - (shares_cut ? weight.padding * (dst.padding - 1) : 0);
  const float cost = weight.copy - rounding + size_cost(weight, static_cast<float>(tile_bytes) / 1024.0f);
  if (shares_cut && src.block != dst.block) return cost + (src.block > dst.block ? src_cost : dst_cost);
  const bool is_aligned = (src.dims & dst.dims) == 0 && src.fills_chunks && dst.fills_chunks;
  return cost + src_cost + dst_cost + least_item_cost(problem, is_aligned) * dst.store_passes;
}

}  // namespace flowk
