// SPDX-License-Identifier: Apache-2.0
// The rows of a tile on both sides, and the offsets of source rows in shared memory.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// Source rows of aligned_tile, at one pitch. Offsets agree with addresses modulo 128 where they can: an asynchronous
// copy splits a line of src that straddles two lines of shared memory.
void place_swizzled_rows(const PermuteProblem& problem, int32_t run_bytes, TileLayout* layout) {
  const RowDims& rows = layout->src_rows;
  layout->swizzle_mask = swizzle_mask_of(run_bytes);
  bool is_congruent = false;
  const int64_t pitch =
      swizzled_pitch(run_bytes, problem.src_strides[rows.dims[0]], layout->tile.src.alignment, &is_congruent);
  for (int i = 0; i < rows.rank; ++i)
    layout->row_steps[i] = i == 0 ? pitch : layout->row_steps[i - 1] * rows.extents[i - 1];
  layout->shift_mask = is_congruent ? static_cast<int32_t>(line_bytes - 1) : 0;
  layout->span_bytes = pitch * rows.count + layout->shift_mask + 1;
}

// Source rows of other tiles, congruent for the same reason. Rows that byte_tile reads side by side are an odd multiple
// of 16 bytes apart, for few bank conflicts.
void place_congruent_rows(const PermuteProblem& problem, int64_t run_bytes, bool is_aligned, TileLayout* layout) {
  const RowDims& rows = layout->src_rows;
  const bool splits_lines = layout->tile.is_byte_tile && problem.src_strides[rows.dims[0]] % sector_bytes == 0;
  for (int64_t modulus = splits_lines ? vector_bytes : line_bytes; modulus >= vector_bytes; modulus /= 2) {
    int64_t span = run_bytes;
    for (int i = 0; i < rows.rank; ++i) {
      layout->row_steps[i] = congruent_pitch(span, problem.src_strides[rows.dims[i]], is_aligned, modulus);
      if (i == 0 && layout->dense_rows > 1)
        layout->row_steps[i] = run_bytes;
      else if (i == 0 && layout->tile.is_byte_tile && layout->row_steps[i] % sector_bytes == 0)
        layout->row_steps[i] += vector_bytes;
      span += layout->row_steps[i] * (rows.extents[i] - 1);
    }
    layout->span_bytes = span + modulus + vector_bytes;
    layout->shift_mask = static_cast<int32_t>(modulus - 1);
    if (span * 100 <= run_bytes * rows.count * max_congruent_percent) break;
  }
}

// Leaves out the elements at the start of the halo that no row needs, and their shared memory.
void skip_halo(const PermuteProblem& problem, const Side& dst_side, TileLayout* layout) {
  const Tile& tile = layout->tile;
  if (tile.halo == 0 || (tile.src.dims & tile.dst.dims) != 0) return;
  if (layout->src_rows.rank != tile.dst.num_dims() || !layout->rows_are_in_dst_order)
    return;  // with further dimensions elements are not rows
  const int64_t needed = halo_elements(problem, tile.aligned);
  // Whole words of byte_tile.
  const int64_t granule = tile.aligned ? needed : 4;
  layout->skipped_elements = std::max<int64_t>(tile.halo * tile.dst.per_index - needed, 0) / granule * granule;
  int64_t rest = layout->skipped_elements / layout->dense_rows * layout->dense_rows, shared_offset = 0;
  for (int i = 0; i < tile.dst.num_dims(); ++i) {
    const int64_t extent = indices_of(tile, dst_side.dims[i]);
    shared_offset += rest % extent * layout->row_steps[i];
    rest /= extent;
  }
  layout->skipped_bytes = shared_offset / line_bytes * line_bytes;
  layout->span_bytes -= layout->skipped_bytes;
}

}  // namespace

// The rows of a side are the dimensions of the other side's run; a small tile whose runs are whole takes further
// dimensions as rows on both sides, in dst order. A cut dimension comes last: a short last block has fewer rows.
void find_rows(const PermuteProblem& problem, const int* src_dims, int num_src_dims, const int* dst_dims,
               int num_dst_dims, TileLayout* layout) {
  Tile& tile = layout->tile;
  const auto add_rows = [&](bool cut) {
    for (int i = 0; i < num_dst_dims; ++i)
      if (!contains(tile.src.dims, dst_dims[i]) && (dst_dims[i] == tile.dst_cut) == cut)
        layout->src_rows.add(dst_dims[i], indices_of(tile, dst_dims[i]));
    for (int i = 0; i < num_src_dims; ++i)
      if (!contains(tile.dst.dims, src_dims[i]) && (src_dims[i] == tile.src_cut) == cut)
        layout->dst_rows.add(src_dims[i], tile.blocks[src_dims[i]]);
  };
  add_rows(false);
  int64_t bytes = problem.bytes_of(tile.elements);
  for (int d = problem.rank - 1; d >= 0 && bytes < tile.least_bytes; --d) {
    if (contains(tile.src.dims | tile.dst.dims, d)) continue;
    if (layout->src_rows.rank + 2 > max_tile_dims || layout->dst_rows.rank + 2 > max_tile_dims) break;
    const int64_t fitting = max_shared_bytes / std::max<int64_t>(tile.shared_bytes, 1);
    const int64_t block = std::min({problem.extents[d], 2 * tile.least_bytes / bytes, fitting});
    if (block < 2) break;
    const bool cuts = block < problem.extents[d];
    if (cuts && (tile.src_cut >= 0 || tile.dst_cut >= 0)) break;
    layout->src_rows.add(d, block);
    layout->dst_rows.add(d, block);
    tile.blocks[d] = block;
    tile.aligned = false;
    tile.is_byte_tile = false;
    bytes *= block;
    tile.shared_bytes *= block;
    if (cuts) {
      layout->shared_row_cut = tile.src_cut = d;
      break;
    }
  }
  add_rows(true);
  if (!tile.is_byte_tile) return;
  // Rows that lie one after the other in src are loaded as one; a table finds them in any order.
  RowDims& rows = layout->src_rows;
  for (int i = 1; i < rows.rank; ++i) {
    if (!are_dense(problem, tile.src, rows.dims[i])) continue;
    std::rotate(rows.dims, rows.dims + i, rows.dims + i + 1);
    std::rotate(rows.extents, rows.extents + i, rows.extents + i + 1);
    layout->rows_are_in_dst_order = false;
  }
}

void place_rows(const PermuteProblem& problem, const Side& dst_side, TileLayout* layout) {
  const Tile& tile = layout->tile;
  const RowDims& rows = layout->src_rows;
  if (!tile.aligned && rows.rank > 0 && contains(tile.dst.dims, rows.dims[0]) &&
      are_dense(problem, tile.src, rows.dims[0]))
    layout->dense_rows = rows.extents[0];
  if (tile.aligned)
    place_swizzled_rows(problem, tile.src.bytes, layout);
  else
    place_congruent_rows(problem, tile.src.bytes, tile.src.alignment >= vector_bytes, layout);
  skip_halo(problem, dst_side, layout);
}

}  // namespace flowk::permute
