// SPDX-License-Identifier: Apache-2.0
// The estimate of a tile's time, relative to a copy.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

constexpr float max_halo = 0.75f;  // over the slice; not measured

// The terms that depend on the tile's size only.
float size_cost(const TileCosts& costs, float kb) {
  float cost = 0;
  if (kb < 14) cost += costs.below_14_kb;
  if (kb > 20) cost += costs.above_20_kb;
  if (kb > 33) cost += costs.above_33_kb;
  return cost;
}

// The bytes that `num_ranges` ranges touch beyond their own, if they start on multiples of `alignment` and whole blocks
// of `block_bytes` are touched.
float touched_bytes(int64_t num_ranges, int64_t alignment, int64_t block_bytes) {
  return static_cast<float>(num_ranges * (block_bytes - std::min(alignment, block_bytes)));
}

// The terms of source runs that are loaded `run_bytes` at a time.
float src_run_cost(const TileCosts& costs, const Run& run, int64_t run_bytes) {
  const int64_t alignment = lowest_bit(static_cast<uint64_t>(run_bytes), run.alignment);
  return (costs.src_sectors * touched_bytes(1, run.alignment, sector_bytes) +
          costs.src_requests * touched_bytes(1, alignment, line_bytes)) /
         static_cast<float>(run_bytes);
}

// The cost of storing the tile's destination runs, `per_segment` vectors of a run at a time.
float dst_run_cost(const TileCosts& costs, const PermuteProblem& problem, const Tile& tile, int32_t per_segment) {
  const Run& dst = tile.dst;
  const int64_t vectors = dst_vectors_of(problem, tile), segments = ceil_div(vectors, per_segment);
  const auto starts = static_cast<uint64_t>(std::max(dst.alignment, dst_granule_of(tile)) | per_segment * vector_bytes);
  const int64_t alignment = lowest_bit(starts, line_bytes);
  const auto extra_bytes = static_cast<float>(vectors * vector_bytes - dst.bytes);
  float sectors = touched_bytes(segments, alignment, sector_bytes);
  if (tile.halo == 0)
    sectors += touched_bytes(1, lowest_bit(static_cast<uint64_t>(dst.bytes), dst.alignment), sector_bytes);
  return (costs.dst_sectors * sectors +
          costs.dst_requests * (touched_bytes(segments, alignment, line_bytes) + extra_bytes)) /
         static_cast<float>(dst.bytes);
}

// Is the tile an aligned_tile: whole vectors in src and in dst, and runs that share no dimension?
bool is_aligned(const TileSearch& search, const Tile& tile) {
  const PermuteProblem& problem = search.problem;
  if (!problem.has_aligned_tile || !tile.is_disjoint() || !tile.src.fills_vectors || !tile.dst.fills_vectors)
    return false;
  // Rows that one thread stores together are neighbours in src's innermost dimension.
  const int innermost = search.src.dims[0];
  const int64_t extent = problem.extents[innermost];
  const int64_t slice = tile.src_cut == innermost ? tile.src.slice : extent;
  return (slice | extent) % (int64_t{1} << log2_rows_of_word(problem.unit_bytes)) == 0;
}

// Gives rows that start inside a sector a halo if that costs little: then one tile stores each sector. Returns how
// often an element is loaded, in the mean.
float choose_halo(const PermuteProblem& problem, Tile* tile) {
  const Run& dst = tile->dst;
  if (tile->dst_cut < 0 || tile->dst_cut == tile->src_cut || dst.alignment >= sector_bytes) return 1;
  const int32_t needed = max_halo_elements(problem, dst.alignment);
  // Whole vectors of halo, if rows start on vectors.
  const auto per_index_bytes = static_cast<uint64_t>(dst.per_index * problem.dst_unit_bytes);
  const int64_t halo =
      tile->aligned ? vector_bytes / lowest_bit(per_index_bytes, vector_bytes) : ceil_div(needed, dst.per_index);
  const int64_t loaded = tile->is_disjoint() ? needed : halo * dst.per_index;
  const float extra = static_cast<float>(loaded) / static_cast<float>(dst.elements);
  if (extra > max_halo || static_cast<float>(tile->shared_bytes) * (1 + extra) > float{max_shared_bytes}) return 1;
  tile->halo = halo;
  return 1 + extra;
}

// The shared memory that a block asks for so that no more than `resident` blocks are resident on a multiprocessor.
int32_t shared_bytes_that_admit(const Device& device, int64_t resident) {
  const int64_t that_fit_once_more = device.shared_bytes_per_multiprocessor / (resident + 1) - reserved_shared_bytes;
  return static_cast<int32_t>(that_fit_once_more / line_bytes * line_bytes + line_bytes);
}

// The shared memory that a block asks for so that fewer tiles are resident: with several waves, too many are slower.
int32_t min_shared_bytes(const Device& device, float num_tiles, int64_t tile_bytes, bool has_plain_rows) {
  const int64_t resident = has_plain_rows ? ceil_div(aligned_tile_bytes_in_flight, tile_bytes) : max_resident_tiles - 1;
  if (resident >= max_resident_tiles) return 0;
  if (num_tiles < several_waves * static_cast<float>(device.num_multiprocessors * resident)) return 0;
  return shared_bytes_that_admit(device, resident);
}

// The start of a block, and the passes of its threads over loads, table and stores, by their cost.
float passes_cost(const PermuteProblem& problem, const TileCosts& costs, const Tile& tile, int64_t src_rows,
                  int32_t per_segment) {
  const Run &src = tile.src, &dst = tile.dst;
  const auto passes = [](float cost, int64_t n) { return cost * static_cast<float>(n); };
  const bool src_is_aligned = src.alignment >= vector_bytes;
  const int64_t src_run_bytes = src.bytes * tile.dense_rows;
  const int64_t src_vectors = ceil_div(src_run_bytes + (src_is_aligned ? 0 : vector_bytes - 1), vector_bytes);
  const int64_t loads =
      ceil_div(ceil_div(src_rows, tile.dense_rows), std::max<int64_t>(tile_threads / src_vectors, 1)) *
      ceil_div(src_vectors, tile_threads);
  float cost = costs.block;
  if (!src_is_aligned) cost += passes(costs.unaligned_load, loads);
  const int32_t elements_per_vector = vector_bytes / problem.dst_unit_bytes;
  if (!tile.aligned && dst.num_dims() > 1)
    cost += passes(costs.table, dst.period + elements_per_vector - 1) * (sizeof(uint32_t) / 1024.0f);
  const int32_t rows_of_word = tile.aligned ? 1 << log2_rows_of_word(problem.unit_bytes) : 1;
  const int64_t dst_rows = tile.elements / (int64_t{dst.elements} * rows_of_word);
  if (!tile.aligned) cost += passes(costs.dst_row, ceil_div(dst_rows, tile_threads));
  float per_element = 0;
  if (!tile.aligned || problem.is_converted()) per_element += costs.element_gather * static_cast<float>(rows_of_word);
  if (dst.alignment < vector_bytes && tile.halo == 0)
    per_element += costs.partial_store * std::min(1.0f, line_bytes / static_cast<float>(dst.bytes));
  const int64_t items = ceil_div(dst_vectors_of(problem, tile), per_segment) * dst_rows;
  return cost + passes(costs.store + per_element * static_cast<float>(elements_per_vector),
                       ceil_div(items, tile_threads / per_segment));
}

// The bytes at the ends of a run that are in sectors of other runs too, over the run's bytes.
float parts_of(int32_t alignment, int64_t bytes) {
  return static_cast<float>(sector_bytes - std::min(alignment, sector_bytes)) / static_cast<float>(bytes);
}

// The bytes of a byte_tile's destination row: of a run, or of runs that lie one after the other.
int64_t joined_row_bytes(const TileSearch& search, const Tile& tile) {
  int64_t bytes = tile.dst.bytes;
  if (tile.join_dim < 0) return bytes;
  const int num_dims = tile.src.num_dims() + (tile.batch_dim >= 0 ? 1 : 0);
  for (int i = 0; i < num_dims; ++i) {
    const int d = i < tile.src.num_dims() ? search.src.dims[i] : tile.batch_dim;
    if (search.problem.dst_strides[d] != bytes) continue;
    bytes *= d == tile.join_dim ? tile.join_extent : d == tile.batch_dim ? tile.batch : search.problem.extents[d];
  }
  return bytes;
}

// The number of elements in all tiles, divided by that of the tensor. The last tiles reach past its ends.
float padding_of(const PermuteProblem& problem, const Tile& tile) {
  if (tile.dst_cut < 0 || tile.dst_cut == tile.src_cut) return tile.src.padding;
  const int64_t extent = problem.extents[tile.dst_cut];
  const int64_t indices = round_up(extent + tile.halo, tile.dst.slice);
  return tile.src.padding * static_cast<float>(indices) / static_cast<float>(extent);
}

// The estimate of a byte_tile; the halo makes its destination runs longer by the factor `with_halo`.
float byte_tile_cost(const TileSearch& search, const ByteTileCosts& costs, float with_halo, const Tile& tile) {
  const auto elements = static_cast<float>(tile.elements);
  const auto dst_elements = static_cast<int64_t>(static_cast<float>(tile.dst.elements) * with_halo);
  const auto src_rows =
      static_cast<int64_t>(static_cast<float>(tile.src_rows) * with_halo / static_cast<float>(tile.dense_rows));
  const int64_t words = tile.batch * byte_tile_words(tile.src.bytes, dst_elements);
  const int num_threads = byte_tile_threads_of(words, dst_elements);
  const auto passes = [&](float cost, int64_t n) { return cost * static_cast<float>(ceil_div(n, num_threads)); };
  const int64_t src_run_bytes = int64_t{tile.src.bytes} * tile.dense_rows;
  const int64_t src_row_vectors = ceil_div(src_run_bytes, vector_bytes) + 1;
  const int64_t loads = ceil_div(tile.batch * src_rows, std::max<int64_t>(num_threads / src_row_vectors, 1)) *
                        ceil_div(src_row_vectors, num_threads);
  const int64_t row_bytes = joined_row_bytes(search, tile);
  const int64_t num_rows = tile.elements / row_bytes;
  const bool has_ends = tile.halo == 0;
  const auto store_bytes =
      tile.join_dim < 0 ? 4.0f : static_cast<float>(lowest_bit(static_cast<uint64_t>(tile.dst.bytes), 4));
  float item = costs.part * (4 / store_bytes - 1);
  if (tile.src.alignment < rows_per_item) item += costs.src_shift;
  float cost = costs.block + costs.load * static_cast<float>(loads) + passes(costs.row, num_rows) +
               passes(item, ceil_div(words, max_words_per_item)) +
               passes(costs.store, num_rows * (row_bytes / vector_bytes + 1));
  if (tile.dst.num_dims() > 1) cost += passes(costs.table, dst_elements);
  if (!tile.dst.fills_vectors && has_ends) cost += passes(costs.end, 2 * num_rows);
  cost *= static_cast<float>(num_threads * vector_bytes) / elements;
  cost += costs.copy + costs.src_sectors * parts_of(tile.src.alignment, src_run_bytes);
  const bool ends_as_it_starts = row_bytes % sector_bytes == 0 || tile.dst.is_cut();
  if (has_ends) cost += costs.dst_sectors * parts_of(ends_as_it_starts ? tile.dst.alignment : 1, row_bytes);
  const float padding = padding_of(search.problem, tile);
  cost += costs.padding * (padding - 1);
  const int resident = resident_tiles(search.device, tile, with_halo, byte_tile_resident_threads / num_threads);
  const float waves =
      padding * search.num_elements / elements / static_cast<float>(search.device.num_multiprocessors * resident);
  return cost + costs.idle * idle_share(waves);
}

}  // namespace

void estimate_tile(const TileSearch& search, const AllTileCosts& all_costs, Tile* tile) {
  const PermuteProblem& problem = search.problem;
  const Device& device = search.device;
  const Run &src = tile->src, &dst = tile->dst;
  tile->aligned = is_aligned(search, *tile);
  const float with_halo = choose_halo(problem, tile);
  if (tile->is_byte_tile) {
    tile->cost = byte_tile_cost(search, all_costs.byte_tile, with_halo, *tile);
    return;
  }
  const TileCosts& costs = problem.is_converted() ? all_costs.converted
                           : moves_bytes(problem) ? all_costs.byte_units
                                                  : all_costs.units;
  const int64_t tile_bytes = problem.bytes_of(tile->elements);
  const float tile_kb = static_cast<float>(tile_bytes) / 1024.0f;
  const auto src_rows = static_cast<int64_t>(static_cast<float>(tile->src_rows) * with_halo);
  const int32_t per_segment = vectors_per_segment_of(static_cast<int32_t>(dst_vectors_of(problem, *tile)));
  float cost = costs.copy + costs.halo * (with_halo - 1) + size_cost(costs, tile_kb);
  cost += src_run_cost(costs, src, int64_t{src.bytes} * tile->dense_rows);
  cost += dst_run_cost(costs, problem, *tile, per_segment);
  cost += passes_cost(problem, costs, *tile, src_rows, per_segment) / tile_kb;

  // Blocks that are resident together, and the last wave's idle blocks.
  const auto resident = static_cast<float>(resident_tiles(device, *tile, with_halo, max_resident_tiles));
  const float padding = padding_of(problem, *tile);
  cost += costs.padding * (padding - 1);
  const float num_tiles = padding * search.num_elements / static_cast<float>(tile->elements);
  const float waves = num_tiles / (static_cast<float>(device.num_multiprocessors) * resident);
  cost += costs.idle * idle_share(waves);
  tile->cost = cost;
  const bool has_plain_rows = src.num_dims() == 1 && dst.num_dims() == 1 && tile->halo == 0;
  if (tile->aligned && tile_kb > 12 && !converts_bytes(problem))
    tile->min_shared_bytes = min_shared_bytes(device, num_tiles, tile_bytes, has_plain_rows);
  // A general_tile that converts has registers for 8 blocks, and is slower with more than 6.
  if (!tile->aligned && problem.is_converted())
    tile->min_shared_bytes = shared_bytes_that_admit(device, max_resident_tiles);
}

}  // namespace flowk::permute
