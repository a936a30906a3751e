// SPDX-License-Identifier: Apache-2.0
// The estimate of a byte_tile's time.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// The terms, in the unit of CostCoefficients and fitted with those of 1-byte elements. Per pass of a block's threads,
// except where another unit is given.
namespace coefficient {
constexpr float copy = 0.695f;
constexpr float block = 0.389f;        // the start of a block
constexpr float load = 0.0608f;        // vectors of src
constexpr float table = 0.0413f;       // entries of the table
constexpr float row = 0.130f;          // entries of the table of rows
constexpr float item = 0.206f;         // items of 4 x 16 bytes
constexpr float store = 0.112f;        // vectors of dst
constexpr float joint = 0.0210f;       // more where rows are joined runs
constexpr float end = 0.122f;          // heads and tails
constexpr float src_sectors = 0.480f;  // parts of sectors at the ends of a source run, over the run
constexpr float dst_sectors = 3.06f;   // of a destination row: stores of 32 sectors hold up shared memory
constexpr float padding = 0.810f;
constexpr float idle = 0.0471f;  // blocks that the last wave leaves out
}  // namespace coefficient

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
  const float store = tile.adjacent_rows > 1 ? coefficient::store + coefficient::joint : coefficient::store;
  float cost = coefficient::block + coefficient::load * static_cast<float>(loads) +
               coefficient::table * passes(dst_elements) + coefficient::row * passes(num_rows) +
               coefficient::item * passes(items) + store * passes(int64_t{num_rows} * (row_bytes / vector_bytes + 1));
  if (!tile.dst.fills_vectors && tile.halo == 0) cost += coefficient::end * passes(2 * num_rows);
  cost *= static_cast<float>(num_threads * vector_bytes) / static_cast<float>(tile.elements);
  cost += coefficient::copy + coefficient::src_sectors * parts_of(tile.src.alignment, src_run_bytes);
  if (tile.halo == 0) cost += coefficient::dst_sectors * parts_of(row_alignment(tile.dst, row_bytes), row_bytes);
  float padding = tile.src.padding;
  if (tile.dst_cut >= 0) {
    const int64_t extent = problem.extents[tile.dst_cut];
    padding *=
        static_cast<float>(ceil_div(extent + tile.halo, tile.dst.block) * tile.dst.block) / static_cast<float>(extent);
  }
  cost += coefficient::padding * (padding - 1);
  const auto shared_bytes = static_cast<int32_t>(static_cast<float>(tile.shared_bytes) * with_halo) + 1024;
  const int resident =
      std::clamp(device.shared_bytes_per_multiprocessor / shared_bytes, 1, byte_tile_resident_threads / num_threads);
  const float waves = padding * num_elements / static_cast<float>(tile.elements) /
                      static_cast<float>(device.num_multiprocessors * resident);
  if (waves < 4) cost += coefficient::idle * (static_cast<float>(static_cast<int64_t>(waves) + 1) / waves - 1);
  return cost;
}

void set_least_byte_tile_costs(Side* src_side, Side* dst_side) {
  constexpr float vector = static_cast<float>(vector_bytes);
  for (int i = 0; i < src_side->num_choices; ++i) {
    Run& run = src_side->choices[i];
    const float bytes = static_cast<float>(run.bytes);
    run.byte_tile_items = vector * static_cast<float>(ceil_div32(run.bytes, columns_per_item)) / bytes;
    run.byte_tile_run_cost = coefficient::src_sectors * parts_of(run.alignment, run.bytes);
    run.least_byte_tile_cost = coefficient::copy + coefficient::load + coefficient::store +
                               coefficient::padding * (run.padding - 1) + coefficient::table * vector / bytes +
                               run.byte_tile_run_cost;
  }
  for (int j = 0; j < dst_side->num_choices; ++j) {
    Run& run = dst_side->choices[j];
    const float bytes = static_cast<float>(run.bytes);
    run.byte_tile_items = static_cast<float>(ceil_div32(run.elements, 4)) / static_cast<float>(run.elements);
    run.least_byte_tile_cost =
        coefficient::row * vector / bytes +
        coefficient::store * (vector * static_cast<float>(run.bytes / vector_bytes + 1) / bytes - 1);
    if (run.is_cut()) continue;  // and may have a halo
    run.least_byte_tile_cost += coefficient::dst_sectors * parts_of(row_alignment(run, run.bytes), run.bytes);
    if (!run.fills_vectors) run.least_byte_tile_cost += coefficient::end * 2 * vector / bytes;
  }
}

float least_byte_tile_cost(const Run& src, bool is_dense, const Run& dst) {
  float cost = src.least_byte_tile_cost + coefficient::item * src.byte_tile_items * dst.byte_tile_items;
  if (is_dense) cost -= src.byte_tile_run_cost;
  // Runs that lie one after the other in dst are one row.
  return cost + (contains(src.dims, dst.next_dim) ? coefficient::joint : dst.least_byte_tile_cost);
}

}  // namespace flowk::permute
