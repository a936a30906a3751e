// SPDX-License-Identifier: Apache-2.0
// The estimate of a byte_tile's time.
#include "permute/plan/permute_tuning.h"
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// Parts of sectors at the ends of a run, over the run.
float parts_of(int64_t alignment, int64_t bytes) {
  return static_cast<float>(sector_bytes - std::min(alignment, sector_bytes)) / static_cast<float>(bytes);
}

// The alignment of both ends of a row of one or several runs.
int64_t row_alignment(const Run& dst, int64_t row_bytes) {
  return row_bytes % sector_bytes == 0 || dst.is_cut() ? dst.alignment : 1;
}

}  // namespace

float byte_tile_cost(const PermuteProblem& problem, const Device& device, float num_elements, float with_halo,
                     const Tile& tile) {
  const auto dst_elements = static_cast<int32_t>(static_cast<float>(tile.dst.elements) * with_halo);
  const auto src_rows =
      static_cast<int32_t>(static_cast<float>(tile.src_rows) * with_halo / static_cast<float>(tile.dense_rows));
  const int64_t items = byte_tile_items(tile.src.bytes, dst_elements);
  const int num_threads = byte_tile_threads_of(items);
  const auto passes = [&](int64_t n) { return static_cast<float>(ceil_div32(n, num_threads)); };
  const int32_t src_run_bytes = tile.src.bytes * tile.dense_rows;
  const int32_t src_row_vectors = ceil_div32(src_run_bytes, vector_bytes) + 1;
  const int32_t loads =
      ceil_div32(src_rows, std::max(num_threads / src_row_vectors, 1)) * ceil_div32(src_row_vectors, num_threads);
  const int32_t row_bytes = tile.dst.bytes * tile.adjacent_rows;
  const int32_t num_rows = static_cast<int32_t>(tile.elements) / row_bytes;
  const float store = tile.adjacent_rows > 1 ? byte_tile_costs.store + byte_tile_costs.joint : byte_tile_costs.store;
  float cost = byte_tile_costs.block + byte_tile_costs.load * static_cast<float>(loads) +
               byte_tile_costs.table * passes(dst_elements) + byte_tile_costs.row * passes(num_rows) +
               byte_tile_costs.item * passes(items) +
               store * passes(int64_t{num_rows} * (row_bytes / vector_bytes + 1));
  if (!tile.dst.fills_vectors && tile.halo == 0) cost += byte_tile_costs.end * passes(2 * num_rows);
  cost *= static_cast<float>(num_threads * vector_bytes) / static_cast<float>(tile.elements);
  cost += byte_tile_costs.copy + byte_tile_costs.src_sectors * parts_of(tile.src.alignment, src_run_bytes);
  if (tile.halo == 0) cost += byte_tile_costs.dst_sectors * parts_of(row_alignment(tile.dst, row_bytes), row_bytes);
  float padding = tile.src.padding;
  if (tile.dst_cut >= 0) {
    const int64_t extent = problem.extents[tile.dst_cut];
    padding *=
        static_cast<float>(ceil_div(extent + tile.halo, tile.dst.block) * tile.dst.block) / static_cast<float>(extent);
  }
  cost += byte_tile_costs.padding * (padding - 1);
  const int resident = resident_tiles(device, tile, with_halo, byte_tile_resident_threads / num_threads);
  const float waves = padding * num_elements / static_cast<float>(tile.elements) /
                      static_cast<float>(device.num_multiprocessors * resident);
  return cost + byte_tile_costs.idle * idle_share(waves);
}

}  // namespace flowk::permute
