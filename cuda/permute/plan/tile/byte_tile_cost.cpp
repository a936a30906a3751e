// SPDX-License-Identifier: Apache-2.0
// The estimate of a byte_tile's time.
#include "permute/plan/permute_tuning.h"
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// Parts of sectors at the ends of a run, over the run.
float parts_of(int32_t alignment, int64_t bytes) {
  return static_cast<float>(sector_bytes - std::min(alignment, sector_bytes)) / static_cast<float>(bytes);
}

}  // namespace

float byte_tile_cost(const TileSearch& search, float with_halo, const Tile& tile) {
  constexpr const ByteTileCosts& costs = byte_tile_costs;
  const auto elements = static_cast<float>(tile.elements);
  const auto dst_elements = static_cast<int64_t>(static_cast<float>(tile.dst.elements) * with_halo);
  const auto src_rows =
      static_cast<int64_t>(static_cast<float>(tile.src_rows) * with_halo / static_cast<float>(tile.dense_rows));
  const int64_t items = byte_tile_items(tile.src.bytes, dst_elements);
  const int num_threads = byte_tile_threads_of(items);
  const auto passes = [&](float cost, int64_t n) { return cost * static_cast<float>(ceil_div(n, num_threads)); };
  const int64_t src_run_bytes = int64_t{tile.src.bytes} * tile.dense_rows;
  const int64_t src_row_vectors = ceil_div(src_run_bytes, vector_bytes) + 1;
  const int64_t loads =
      ceil_div(src_rows, std::max<int64_t>(num_threads / src_row_vectors, 1)) * ceil_div(src_row_vectors, num_threads);
  const int64_t row_bytes = int64_t{tile.dst.bytes} * tile.adjacent_rows;
  const int64_t num_rows = tile.elements / row_bytes;
  const bool has_ends = tile.halo == 0;
  const float store = tile.adjacent_rows > 1 ? costs.store + costs.joint : costs.store;
  float cost = costs.block + costs.load * static_cast<float>(loads) + passes(costs.table, dst_elements) +
               passes(costs.row, num_rows) + passes(costs.item, items) +
               passes(store, num_rows * (row_bytes / vector_bytes + 1));
  if (!tile.dst.fills_vectors && has_ends) cost += passes(costs.end, 2 * num_rows);
  cost *= static_cast<float>(num_threads * vector_bytes) / elements;
  cost += costs.copy + costs.src_sectors * parts_of(tile.src.alignment, src_run_bytes);
  const bool ends_as_it_starts = row_bytes % sector_bytes == 0 || tile.dst.is_cut();
  if (has_ends) cost += costs.dst_sectors * parts_of(ends_as_it_starts ? tile.dst.alignment : 1, row_bytes);
  float padding = tile.src.padding;
  if (tile.dst_cut >= 0) {
    const int64_t extent = search.problem.extents[tile.dst_cut];
    const int64_t indices = round_up(extent + tile.halo, tile.dst.slice);
    padding *= static_cast<float>(indices) / static_cast<float>(extent);
  }
  cost += costs.padding * (padding - 1);
  const int resident = resident_tiles(search.device, tile, with_halo, byte_tile_resident_threads / num_threads);
  const float waves =
      padding * search.num_elements / elements / static_cast<float>(search.device.num_multiprocessors * resident);
  return cost + costs.idle * idle_share(waves);
}

}  // namespace flowk::permute
