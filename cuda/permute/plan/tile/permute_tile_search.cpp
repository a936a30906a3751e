// SPDX-License-Identifier: Apache-2.0
// The choice of a tile: candidates for the run of either side, an estimate of the time of every pair, and the cheapest
// pair.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// The estimated pitch of source rows in shared memory: exact where rows have one dimension.
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
    const int64_t pitch = congruent_pitch(src.bytes, stride, src.alignment >= vector_bytes, modulus);
    if (pitch * 100 <= src.bytes * max_congruent_percent || modulus == vector_bytes) return pitch;
  }
}

// Makes the tile of two runs; false where they make no box of min_bytes to max_bytes.
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
    if (src.block < dst.block)
      set_run(problem, src_side, src.num_whole, src.per_index, dst.block, &tile->src);
    else
      set_run(problem, dst_side, dst.num_whole, dst.per_index, src.block, &tile->dst);
  }
  // Source rows: the dimensions that only the destination run has.
  int64_t src_rows = dst.elements;
  if (!is_disjoint) {
    src_rows = 1;
    for (int i = 0; i < dst.num_whole; ++i)
      if (!contains(src.dims, dst_side.dims[i])) src_rows *= problem.extents[dst_side.dims[i]];
    if (dst.cut >= 0 && dst.cut != src.cut) src_rows *= dst.block;
  }
  tile->elements = src_rows * tile->src.elements;
  const bool fills_vectors = problem.has_aligned_tile && is_disjoint && src.fills_vectors && dst.fills_vectors;
  const auto indices_in = [&](const Run& run, int d) {
    return d == run.cut ? run.block : static_cast<int32_t>(problem.extents[d]);
  };
  tile->dense_rows = 1;
  if (!fills_vectors) {
    // The first dimension of the source rows: do they lie one after the other?
    for (int i = tile->dst.num_dims() - 1; i >= 0; --i) {
      const int d = dst_side.dims[i];
      if (contains(tile->src.dims, d)) continue;
      tile->dense_rows = are_dense(problem, tile->src, d) ? indices_in(tile->dst, d) : 1;
    }
  }
  tile->shared_bytes = src_rows * pitch_of(problem, dst_side, *tile, fills_vectors);
  if (tile->dst.num_dims() > 1 && !fills_vectors)
    tile->shared_bytes += static_cast<int64_t>(sizeof(TileTableEntry)) * tile->dst.period;
  tile->src_rows = static_cast<int32_t>(src_rows);
  if (!fills_vectors) tile->shared_bytes += dst_row_bytes * (tile->elements / tile->dst.elements);
  tile->is_byte_tile = is_byte_tile(problem, tile->src, tile->dst);
  tile->adjacent_rows = 1;
  if (tile->is_byte_tile && dst.cut < 0) {
    for (int i = 0; i < src.num_dims(); ++i)
      if (problem.dst_strides[src_side.dims[i]] == tile->dst.bytes)
        tile->adjacent_rows = indices_in(src, src_side.dims[i]);
  }
  if (tile->is_byte_tile && tile->dense_rows == 1) {
    for (int i = 0; i < tile->dst.num_dims(); ++i)
      if (are_dense(problem, tile->src, dst_side.dims[i])) tile->dense_rows = indices_in(tile->dst, dst_side.dims[i]);
  }
  return problem.bytes_of(tile->elements) <= max_bytes && tile->shared_bytes <= max_shared_bytes;
}

// Reverses dimensions that run downwards in dst, except those of src's run. Where such a dimension is innermost in dst
// and not in src, src's run ends before it.
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

// Tiles below this size take further dimensions: 8 KB, or less where an SM would have fewer than two tiles.
int64_t least_tile_bytes(float num_bytes, const Device& device) {
  constexpr float small_tile_bytes = 8 * 1024;
  return static_cast<int64_t>(
      std::min(small_tile_bytes, num_bytes / static_cast<float>(2 * device.num_multiprocessors)));
}

// Both sides and their runs; `problem` as the tiles see it, with dimensions reversed where that helps.
struct Search {
  PermuteProblem problem;  // the sides point into it
  float num_elements = 1;
  float num_bytes = 0;
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
  search->num_bytes = search->num_elements * static_cast<float>(problem.unit_bytes + problem.dst_unit_bytes) / 2;
  for (Side* side : {&search->src_side, &search->dst_side}) finish_side(problem, side);
  find_choices(problem, 0, &search->src_side);
  find_choices(problem, moves_bytes(problem) ? sector_bytes - 1 : 0, &search->dst_side);
}

bool make_tile(const Search& search, const Device& device, int src_choice, int dst_choice, int64_t min_bytes,
               int64_t max_bytes, Tile* tile) {
  if (!join(search.problem, search.src_side, search.src_side.choices[src_choice], search.dst_side,
            search.dst_side.choices[dst_choice], min_bytes, max_bytes, tile))
    return false;
  tile->least_bytes = least_tile_bytes(search.num_bytes, device);
  estimate_tile(search.problem, device, search.num_elements, tile);
  return true;
}

// The cheapest tile of min_bytes to max_bytes, of equal ones the first; its cost is < 0 if there is none.
Tile find_tile(const Search& search, const Device& device, int64_t min_bytes, int64_t max_bytes) {
  Tile tile, best;
  best.cost = -1;
  for (int src = 0; src < search.src_side.num_choices; ++src)
    for (int dst = 0; dst < search.dst_side.num_choices; ++dst)
      if (make_tile(search, device, src, dst, min_bytes, max_bytes, &tile) && (best.cost < 0 || tile.cost < best.cost))
        best = tile;
  return best;
}

}  // namespace

void plan_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  // Where tiles of this size fill the GPU several times, smaller ones are tried only if there is no other.
  constexpr int64_t usual_min_bytes = 6 * 1024;
  Search search;
  make_search(problem, &search);
  const bool is_large = search.num_bytes > static_cast<float>(32 * usual_min_bytes * device.num_multiprocessors);
  Tile best = find_tile(search, device, is_large ? usual_min_bytes : 0, max_tile_bytes);
  // Rows of several short dimensions may take twice the shared memory that a search counts.
  for (int64_t max_bytes = max_tile_bytes;; max_bytes /= 2) {
    if (best.cost < 0) best = find_tile(search, device, 0, max_bytes);
    if (best.cost < 0) return plan_strided_tile(problem, device, plan);
    if (build_tile(search.problem, device, best, search.src_side, search.dst_side, plan)) return;
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
      !build_tile(search.problem, device, tile, search.src_side, search.dst_side, plan))
    return TileCandidate::no_box;
  return TileCandidate::planned;
}

}  // namespace flowk::permute
