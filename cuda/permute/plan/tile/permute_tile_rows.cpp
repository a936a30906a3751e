// SPDX-License-Identifier: Apache-2.0
// The source rows and destination rows of a tile, and the offsets of source rows in shared memory.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// The smallest pitch from `min_pitch` on that agrees with `stride` modulo `modulus`, a power of 2.
int64_t congruent_from(int64_t min_pitch, int64_t stride, int64_t modulus) {
  return min_pitch + ((stride - min_pitch) & (modulus - 1));
}

// Source rows of aligned_tile, at one pitch. Offsets agree with addresses modulo 128 if they can: an asynchronous
// copy splits a line of src that straddles two lines of shared memory.
void place_swizzled_rows(const PermuteProblem& problem, TileLayout* layout) {
  const RowDims& rows = layout->src_rows;
  const Run& src = layout->tile.src;
  layout->swizzle_mask = swizzle_mask_of(src.bytes);
  bool is_congruent = false;
  const int64_t pitch = swizzled_pitch(src.bytes, problem.src_strides[rows.dims[0]], src.alignment, &is_congruent);
  for (int i = 0; i < rows.rank; ++i)
    layout->row_steps[i] = i == 0 ? pitch : layout->row_steps[i - 1] * rows.extents[i - 1];
  layout->shift_mask = is_congruent ? line_bytes - 1 : 0;
  layout->span_bytes = pitch * rows.count + layout->shift_mask + 1;
}

// Source rows of other tiles. Their offsets agree with addresses for the same reason. Rows that byte_tile reads at once
// are an odd multiple of 16 bytes apart, for few bank conflicts.
void place_congruent_rows(const PermuteProblem& problem, TileLayout* layout) {
  const RowDims& rows = layout->src_rows;
  const int64_t run_bytes = layout->tile.src.bytes;
  const bool is_aligned = layout->tile.src.alignment >= vector_bytes, is_byte_tile = layout->tile.is_byte_tile;
  const bool splits_lines = is_byte_tile && problem.src_strides[rows.dims[0]] % sector_bytes == 0;
  for (int64_t modulus = splits_lines ? vector_bytes : line_bytes; modulus >= vector_bytes; modulus /= 2) {
    int64_t span = run_bytes;
    for (int i = 0; i < rows.rank; ++i) {
      layout->row_steps[i] = congruent_pitch(span, problem.src_strides[rows.dims[i]], is_aligned, modulus);
      if (i == 0 && layout->dense_rows > 1)
        layout->row_steps[i] = run_bytes;
      else if (i == 0 && is_byte_tile && layout->row_steps[i] % sector_bytes == 0)
        layout->row_steps[i] += vector_bytes;
      span += layout->row_steps[i] * (rows.extents[i] - 1);
    }
    layout->span_bytes = span + modulus + vector_bytes;
    layout->shift_mask = static_cast<int32_t>(modulus - 1);
    if (span * 100 <= run_bytes * rows.count * max_congruent_percent) break;
  }
}

// Leaves out the elements at the start of the halo that no row needs, and their shared memory.
void skip_halo(const TileSearch& search, TileLayout* layout) {
  const Tile& tile = layout->tile;
  if (tile.halo == 0 || !tile.is_disjoint()) return;
  if (layout->src_rows.rank != tile.dst.num_dims() || !layout->rows_are_in_dst_order)
    return;  // with further dimensions elements are not rows
  const int64_t needed = max_halo_elements(search.problem, tile.dst.alignment);
  // Whole words of byte_tile.
  const int64_t granule = tile.aligned ? needed : 4;
  layout->skipped_elements = std::max<int64_t>(tile.halo * tile.dst.per_index - needed, 0) / granule * granule;
  int64_t rest = layout->skipped_elements / layout->dense_rows * layout->dense_rows, shared_offset = 0;
  for (int i = 0; i < tile.dst.num_dims(); ++i) {
    const int64_t extent = layout->extent_with_halo(search.dst.dims[i]);
    shared_offset += rest % extent * layout->row_steps[i];
    rest /= extent;
  }
  layout->skipped_bytes = shared_offset / line_bytes * line_bytes;
  layout->span_bytes -= layout->skipped_bytes;
}

}  // namespace

int32_t swizzle_mask_of(int32_t run_bytes) {
  int32_t mask = 7;
  while (mask > 0 && round_up(run_bytes, vector_bytes * (mask + 1)) * 20 > run_bytes * 23) mask >>= 1;
  return mask;
}

int64_t swizzled_pitch(int32_t run_bytes, int64_t src_stride, int32_t alignment, bool* is_congruent) {
  const int64_t line = vector_bytes * (swizzle_mask_of(run_bytes) + 1);
  const int64_t pitch = round_up(run_bytes, line);
  *is_congruent = false;
  if (line < line_bytes) return pitch;
  const auto starts = static_cast<uint64_t>((src_stride & (line_bytes - 1)) | run_bytes | alignment);
  const int64_t congruent =
      congruent_from(run_bytes + line_bytes - lowest_bit(starts, INT64_MAX), src_stride, line_bytes);
  *is_congruent = congruent * 4 <= pitch * 7;
  return *is_congruent ? congruent : pitch;
}

int64_t congruent_pitch(int64_t run_bytes, int64_t src_stride, bool is_aligned, int64_t modulus) {
  const int64_t min_pitch = is_aligned ? round_up(run_bytes, vector_bytes) : run_bytes + vector_bytes - 1;
  return congruent_from(min_pitch, src_stride, modulus);
}

// The source rows are the dimensions of the destination run, and the other way round; a small tile of whole runs takes
// further dimensions as both, in dst order. A cut dimension comes last: a short last slice has fewer rows.
void find_rows(const TileSearch& search, TileLayout* layout) {
  const PermuteProblem& problem = search.problem;
  Tile& tile = layout->tile;
  const auto add_rows = [&](bool cut) {
    for (int i = 0; i < tile.dst.num_dims(); ++i) {
      const int d = search.dst.dims[i];
      if (!contains(tile.src.dims, d) && (d == tile.dst_cut) == cut)
        layout->src_rows.add(d, layout->extent_with_halo(d));
    }
    for (int i = 0; i < tile.src.num_dims(); ++i) {
      const int d = search.src.dims[i];
      if (!contains(tile.dst.dims, d) && (d == tile.src_cut) == cut) layout->dst_rows.add(d, layout->extents[d]);
    }
  };
  add_rows(false);
  int64_t bytes = problem.bytes_of(tile.elements);
  if (tile.batch_dim >= 0) {
    const bool cuts = tile.batch < problem.extents[tile.batch_dim];
    layout->src_rows.add(tile.batch_dim, tile.batch);
    layout->dst_rows.add(tile.batch_dim, tile.batch);
    layout->extents[tile.batch_dim] = tile.batch;
    if (cuts) layout->shared_row_cut = tile.src_cut = tile.batch_dim;
  }
  for (int d = problem.rank - 1; !tile.is_byte_tile && d >= 0 && bytes < tile.min_bytes; --d) {
    if (contains(tile.src.dims | tile.dst.dims, d)) continue;
    if (layout->src_rows.rank + 2 > max_tile_dims || layout->dst_rows.rank + 2 > max_tile_dims) break;
    const int64_t fitting = max_shared_bytes / std::max<int64_t>(tile.shared_bytes, 1);
    const int64_t indices = std::min({problem.extents[d], 2 * tile.min_bytes / bytes, fitting});
    const bool cuts = indices < problem.extents[d];
    if (indices < 2 || (cuts && (tile.src_cut >= 0 || tile.dst_cut >= 0))) break;
    layout->src_rows.add(d, indices);
    layout->dst_rows.add(d, indices);
    layout->extents[d] = indices;
    tile.aligned = false;
    bytes *= indices;
    tile.shared_bytes *= indices;
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
    if (!contains(tile.dst.dims, rows.dims[i]) || !are_dense(problem, tile.src, rows.dims[i])) continue;
    std::rotate(rows.dims, rows.dims + i, rows.dims + i + 1);
    std::rotate(rows.extents, rows.extents + i, rows.extents + i + 1);
    layout->rows_are_in_dst_order = false;
  }
}

void place_rows(const TileSearch& search, TileLayout* layout) {
  const Tile& tile = layout->tile;
  const RowDims& rows = layout->src_rows;
  if (!tile.aligned && rows.rank > 0 && contains(tile.dst.dims, rows.dims[0]) &&
      are_dense(search.problem, tile.src, rows.dims[0]))
    layout->dense_rows = rows.extents[0];
  if (tile.aligned)
    place_swizzled_rows(search.problem, layout);
  else
    place_congruent_rows(search.problem, layout);
  skip_halo(search, layout);
}

}  // namespace flowk::permute
