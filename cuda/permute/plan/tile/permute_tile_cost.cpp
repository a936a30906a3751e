// SPDX-License-Identifier: Apache-2.0
// The estimate of a tile's time.
#include "permute/plan/permute_tuning.h"
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

constexpr float max_halo = 0.75f;  // over the block

const TileCosts& tile_costs_of(const PermuteProblem& problem) {
  return moves_bytes(problem) ? byte_unit_tile_costs : unit_tile_costs;
}

// The terms that depend on the tile's size only.
float size_cost(const TileCosts& costs, float kb) {
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
float src_run_cost(const TileCosts& costs, const Run& run, int32_t run_bytes) {
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
int32_t store_alignment(const Run& run) {
  return std::min(run.alignment, static_cast<int32_t>(lowest_bit(static_cast<uint64_t>(run.bytes), line_bytes)));
}

float dst_run_cost(const TileCosts& costs, int32_t alignment, int32_t run_bytes) {
  const float lines = static_cast<float>(line_bytes - alignment);
  const float sectors = static_cast<float>(sector_bytes - std::min<int64_t>(alignment, sector_bytes));
  return (costs.dst_lines * lines + costs.dst_sectors * sectors) / static_cast<float>(run_bytes);
}

// Is the tile an aligned_tile: whole vectors on both sides, and runs that share no dimension?
bool is_aligned(const PermuteProblem& problem, const Tile& tile) {
  if (!problem.has_aligned_tile) return false;
  if ((tile.src.dims & tile.dst.dims) != 0 || !tile.src.fills_vectors || !tile.dst.fills_vectors) return false;
  if (problem.unit_bytes >= 4) return true;
  // Rows that one thread stores together are neighbours in src's innermost dimension.
  const int64_t extent = problem.extents[tile.src_innermost];
  const int64_t block = tile.src_cut == tile.src_innermost ? tile.src.block : extent;
  return (block | extent) % (4 / problem.unit_bytes) == 0;
}

// Unused shared memory that limits the resident tiles of a multiprocessor: with several waves too many are slower.
int32_t least_shared_bytes(const Device& device, float num_tiles, int64_t tile_bytes, bool has_plain_rows) {
  const int64_t resident = has_plain_rows ? ceil_div(aligned_tile_bytes_in_flight, tile_bytes) : max_resident_tiles - 1;
  if (resident >= max_resident_tiles) return 0;
  if (num_tiles < several_waves * static_cast<float>(device.num_multiprocessors * resident)) return 0;
  const int64_t that_fit_once_more = device.shared_bytes_per_multiprocessor / (resident + 1) - reserved_shared_bytes;
  return static_cast<int32_t>(that_fit_once_more / line_bytes * line_bytes + line_bytes);
}

}  // namespace

void estimate_tile(const PermuteProblem& problem, const Device& device, float num_elements, Tile* tile) {
  const TileCosts& costs = tile_costs_of(problem);
  const Run& src = tile->src;
  const Run& dst = tile->dst;
  tile->aligned = is_aligned(problem, *tile);
  const bool is_disjoint = (src.dims & dst.dims) == 0;
  float with_halo = 1;  // elements loaded, over those of the block
  // Rows that start inside a sector load a halo if that costs little: then one tile stores each sector.
  tile->halo = 0;
  if (tile->dst_cut >= 0 && tile->dst_cut != tile->src_cut && dst.alignment < sector_bytes) {
    const int32_t needed = halo_elements(problem, tile->aligned);
    // Whole vectors of halo, where rows start on vectors.
    const int32_t per_index_bytes = dst.per_index * problem.dst_unit_bytes;
    const auto halo = static_cast<int32_t>(
        tile->aligned ? vector_bytes / lowest_bit(static_cast<uint64_t>(per_index_bytes), vector_bytes)
                      : ceil_div32(needed, dst.per_index));
    const int32_t loaded = is_disjoint ? needed : halo * dst.per_index;
    const float extra = static_cast<float>(loaded) / static_cast<float>(dst.elements);
    if (extra <= max_halo && static_cast<float>(tile->shared_bytes) * (1 + extra) <= float{max_shared_bytes}) {
      tile->halo = halo;
      with_halo += extra;
    }
  }
  tile->least_shared_bytes = 0;
  if (tile->is_byte_tile) {
    tile->cost = byte_tile_cost(problem, device, num_elements, with_halo, *tile);
    return;
  }
  const int32_t src_run_bytes = src.bytes * tile->dense_rows;
  const float tile_kb = static_cast<float>(problem.bytes_of(tile->elements)) / 1024.0f;
  const bool src_is_aligned = src.alignment >= vector_bytes;
  const bool is_partial = dst.alignment < vector_bytes && tile->halo == 0;
  const int32_t dst_alignment = tile->halo > 0 ? static_cast<int32_t>(sector_bytes) : store_alignment(dst);
  float cost = costs.copy + costs.halo * (with_halo - 1) + size_cost(costs, tile_kb);
  cost += src_run_cost(costs, src, src_run_bytes) + dst_run_cost(costs, dst_alignment, dst.bytes);

  // Passes of the block's threads over loads, table and stores.
  float passes = 0;
  const int32_t src_rows = static_cast<int32_t>(static_cast<float>(tile->src_rows) * with_halo);
  const int32_t src_vectors = ceil_div32(src_run_bytes + (src_is_aligned ? 0 : vector_bytes - 1), vector_bytes);
  const int32_t loads = ceil_div32(ceil_div32(src_rows, tile->dense_rows), std::max(tile_threads / src_vectors, 1)) *
                        ceil_div32(src_vectors, tile_threads);
  if (!src_is_aligned) passes += costs.unaligned_load * static_cast<float>(loads);
  const uint64_t row_dims = dst.dims & ~src.dims, but_one = row_dims & (row_dims - 1);
  if ((but_one & (but_one - 1)) != 0) passes += costs.row_of_dims * static_cast<float>(loads);
  const int32_t elements_per_vector = vector_bytes / problem.dst_unit_bytes;
  if (!tile->aligned && dst.num_dims() > 1) {
    const int32_t entries = dst.period + elements_per_vector - 1;
    passes += costs.table * static_cast<float>(entries) * (sizeof(uint32_t) / 1024.0f);
  }
  const int32_t rows_per_item = tile->aligned && problem.unit_bytes < 4 ? 4 / problem.unit_bytes : 1;
  const int32_t dst_rows = static_cast<int32_t>(tile->elements) / (dst.elements * rows_per_item);
  if (!tile->aligned) passes += costs.dst_row * static_cast<float>(ceil_div32(dst_rows, tile_threads));
  const int32_t vectors = ceil_div32(dst.bytes, vector_bytes) + (is_partial ? 1 : 0);
  const int32_t per_group = vectors_per_group_of(vectors);
  float per_element = tile->aligned ? 0.0f : costs.element_gather;
  if (is_partial) per_element += costs.partial_store * std::min(1.0f, 128.0f / static_cast<float>(dst.bytes));
  const int32_t items = ceil_div32(vectors, per_group) * dst_rows;
  passes += (costs.store + per_element * static_cast<float>(elements_per_vector)) *
            static_cast<float>(ceil_div32(items, tile_threads / per_group));
  cost += passes / tile_kb;

  // Blocks that are resident together, the bytes they keep in flight, and the last wave's idle blocks.
  const auto resident = static_cast<float>(resident_tiles(device, *tile, with_halo, max_resident_tiles));
  cost += costs.few_bytes_in_flight * std::max(0.0f, 1.0f - resident * tile_kb / 64.0f);
  const float padding = src.padding * (dst.cut == src.cut ? 1.0f : dst.padding);
  cost += costs.padding * (padding - 1);
  const float num_tiles = padding * num_elements / static_cast<float>(tile->elements);
  const float waves = num_tiles / (static_cast<float>(device.num_multiprocessors) * resident);
  cost += costs.idle * idle_share(waves);
  const bool has_plain_rows = src.num_dims() == 1 && dst.num_dims() == 1 && tile->halo == 0;
  if (tile->aligned && tile_kb > 12)
    tile->least_shared_bytes = least_shared_bytes(device, num_tiles, problem.bytes_of(tile->elements), has_plain_rows);
  if (src_is_aligned && src_rows > 1)
    for (int mask = swizzle_mask_of(src.bytes); mask < 7; mask = 2 * mask + 1) cost += costs.conflicts;
  tile->cost = cost;
}

}  // namespace flowk::permute
