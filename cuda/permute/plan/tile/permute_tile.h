// SPDX-License-Identifier: Apache-2.0
// Tiles while the planner chooses one. Included by plan/tile/ only.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <cstdlib>

#include "permute/plan/permute_problem.h"

namespace flowk::permute {

constexpr int64_t sector_bytes = 32;  // the unit of L2 and memory traffic
constexpr int max_choices = 48;
constexpr int64_t max_tile_bytes = 40 * 1024;
constexpr int64_t max_shared_bytes = 56 * 1024;     // of a tile, as the search estimates it
constexpr int64_t max_block_shared_bytes = 101376;  // of a block on sm_86, the least of all GPUs
constexpr int32_t reserved_shared_bytes = 1024;     // of a multiprocessor, for each block
constexpr int max_resident_tiles = 6;               // blocks per SM: min_tile_blocks of the kernels
constexpr float several_waves = 4;                  // from here on the last wave counts little

// A run: the innermost `num_whole` dimensions of a side, and `block` indices of the next (1: not cut). The other fields
// follow from these; they are stored because every pair of runs needs them.
struct Run {
  int num_whole;
  int32_t block;
  int32_t per_index;  // elements for one index of the cut dimension; all of them if the run is whole
  int32_t elements;
  int32_t period;  // elements for one index of the outermost dimension
  int32_t bytes;
  int32_t alignment;   // every start of the run in memory is a multiple of it; at most 128
  bool fills_vectors;  // every block of it, the last one too, consists of aligned vectors
  float padding;       // indices in whole blocks of the cut dimension, over its extent
  int cut;       // the cut dimension, or -1
  uint64_t whole_dims;
  uint64_t dims;  // the cut one too
  bool is_cut() const { return block > 1; }
  int num_dims() const { return num_whole + (is_cut() ? 1 : 0); }
};

// One side's dimensions that lie one after the other in memory, innermost first, and the runs to choose from.
struct Side {
  const void* pointer = nullptr;
  const int64_t* strides = nullptr;
  int32_t unit_bytes = 0;
  int num_dims = 0;
  int dims[max_tile_dims];
  uint64_t masks[max_tile_dims + 1];   // of the first n dimensions
  uint64_t starts[max_tile_dims + 1];  // OR of the addresses where runs of those start, except steps along the next
  int num_choices = 0;
  Run choices[max_choices];
};

// The tile of a pair of runs.
struct Tile {
  Run src = {}, dst = {};
  int src_innermost = -1;
  int src_cut = -1, dst_cut = -1;  // dimensions
  int32_t src_rows = 1;
  int32_t dense_rows = 1;     // source rows that lie one after the other in src
  int32_t adjacent_rows = 1;  // byte_tile: destination runs that lie one after the other in dst, joined to a row
  int64_t elements = 1;
  int64_t shared_bytes = 0;        // estimated
  int32_t least_shared_bytes = 0;  // of a block of aligned_tile
  int64_t halo = 0;
  int64_t least_bytes = 0;    // a smaller tile takes further dimensions as rows on both sides
  bool aligned = false;       // both sides to 16 bytes throughout
  bool is_byte_tile = false;  // byte_tile, unless both sides take further dimensions as rows
  float cost = 0;
  int64_t blocks[max_rank];  // of every dimension; filled by build_tile()
};

// ceil_div() in 32 bits: one search calls it thousands of times.
constexpr int32_t ceil_div32(int64_t n, int64_t d) {
  return static_cast<int32_t>((static_cast<uint32_t>(n) + static_cast<uint32_t>(d) - 1) / static_cast<uint32_t>(d));
}

// Blocks of the tile that are resident on a multiprocessor at once; its shared memory is longer by `with_halo`.
inline int resident_tiles(const Device& device, const Tile& tile, float with_halo, int most) {
  const auto bytes = static_cast<int32_t>(static_cast<float>(tile.shared_bytes) * with_halo) + reserved_shared_bytes;
  return std::clamp(device.shared_bytes_per_multiprocessor / bytes, 1, most);
}

// Blocks that the last wave leaves out, over all blocks.
inline float idle_share(float waves) {
  return waves < several_waves ? static_cast<float>(static_cast<int64_t>(waves) + 1) / waves - 1 : 0;
}

// The most elements that may lie before a destination row in its first sector.
inline int32_t halo_elements(const PermuteProblem& problem, bool starts_on_vector) {
  const int32_t in_sector = static_cast<int32_t>(sector_bytes) / problem.dst_unit_bytes;
  return starts_on_vector ? in_sector / 2 : in_sector - 1;
}

// The largest power of 2 that divides `value`, at most `limit`.
inline int64_t lowest_bit(uint64_t value, int64_t limit) {
  const uint64_t bit = value & (~value + 1);
  return bit == 0 || bit > static_cast<uint64_t>(limit) ? limit : static_cast<int64_t>(bit);
}

inline bool contains(uint64_t mask, int dim) { return dim >= 0 && (mask >> dim & 1) != 0; }

// The mask of the keys that swizzle source rows of aligned_tile: the largest of 7, 3, 1, 0 for which the row rounded up
// to (mask + 1) vectors is at most 15% longer.
inline int32_t swizzle_mask_of(int32_t run_bytes) {
  int32_t mask = 7;
  const auto pitch = [&] { return (run_bytes + 16 * mask + 15) & ~(16 * mask + 15); };  // mask + 1 is a power of 2
  while (mask > 0 && pitch() * 20 > run_bytes * 23) mask >>= 1;
  return mask;
}

// The least value from `least` on that agrees with `stride` modulo `modulus`, a power of 2.
inline int64_t congruent_from(int64_t least, int64_t stride, int64_t modulus) {
  return least + ((stride - least) & (modulus - 1));
}

// The pitch of the source rows of aligned_tile. Rows share no line, since each has its own key. The pitch is congruent
// to src's modulo 128 where that takes little shared memory, otherwise a multiple of the swizzle's line.
inline int64_t swizzled_pitch(int32_t run_bytes, int64_t src_stride, int32_t alignment, bool* is_congruent) {
  const int64_t line = vector_bytes * (swizzle_mask_of(run_bytes) + 1);
  const int64_t pitch = round_up(run_bytes, line);
  *is_congruent = false;
  if (line < line_bytes) return pitch;
  const uint64_t starts = static_cast<uint64_t>((src_stride & (line_bytes - 1)) | run_bytes | alignment);
  const int64_t gap = line_bytes - static_cast<int64_t>(starts & (~starts + 1));
  const int64_t congruent = congruent_from(run_bytes + gap, src_stride, line_bytes);
  *is_congruent = congruent * 4 <= pitch * 7;
  return *is_congruent ? congruent : pitch;
}

// The pitch of the source rows of other tiles: congruent to src's modulo `modulus`. Neighbours share no vector.
inline int64_t congruent_pitch(int64_t run_bytes, int64_t src_stride, bool is_aligned, int64_t modulus) {
  const int64_t least = is_aligned ? round_up(run_bytes, vector_bytes) : run_bytes + vector_bytes - 1;
  return congruent_from(least, src_stride, modulus);
}

// The most shared memory of rows, in percent of their bytes, for offsets congruent modulo 128; above it a smaller power
// of 2 is tried.
constexpr int64_t max_congruent_percent = 130;

// Vectors of one destination row that neighbouring threads store: a line's, fewer for a short row, and an even number,
// because warps of 5 or 7 vectors have bank conflicts.
inline int32_t vectors_per_group_of(int32_t vectors) {
  constexpr uint32_t vectors_per_line = line_bytes / vector_bytes;
  const uint32_t groups = (static_cast<uint32_t>(vectors) + vectors_per_line - 1) / vectors_per_line;
  const uint32_t per_group = (static_cast<uint32_t>(vectors) + groups - 1) / groups;
  if (vectors % 4 == 0 && per_group > 4 && per_group < vectors_per_line) return 4;  // no lane idle, no conflict
  return per_group <= 1 ? 1 : static_cast<int32_t>((per_group + 1) / 2 * 2);
}

// The rows of one side: dimensions, indices of each, and their product.
struct RowDims {
  int rank = 0;
  int dims[max_tile_dims];
  int64_t extents[max_tile_dims];
  int64_t count = 1;
  void add(int dim, int64_t extent) {
    dims[rank] = dim;
    extents[rank++] = extent;
    count *= extent;
  }
  int find(int dim) const { return static_cast<int>(std::find(dims, dims + rank, dim) - dims); }
};

// A chosen tile, its rows, and the offsets of its source rows in shared memory.
struct TileLayout {
  Tile tile;
  RowDims src_rows, dst_rows;
  int shared_row_cut = -1;           // a dimension of both sides' rows that is cut
  int64_t row_steps[max_tile_dims];  // bytes in shared memory, of each source row dimension
  int64_t span_bytes = 0;
  int32_t swizzle_mask = 0;  // of the keys of aligned_tile
  int32_t shift_mask = 0;
  int64_t dense_rows = 1;  // source rows of the first dimension that are loaded as one
  bool rows_are_in_dst_order = true;
  int64_t skipped_elements = 0;
  int64_t skipped_bytes = 0;
};

// A plan of a tile while it is filled in.
struct TilePlan {
  PermuteKernel kernel = PermuteKernel::general_tile;
  int32_t unit_bytes = 0;
  LaunchConfig launch;
  TileParams tile;
};

// Indices of one dimension of the tile, with the halo.
inline int64_t indices_of(const Tile& tile, int dim) {
  return tile.blocks[dim] + (dim == tile.dst_cut ? tile.halo : 0);
}

// Do the source rows along `dim` lie one after the other in src? Rows of a cut run do not: they overlap, and the last
// block's are shorter than their distance.
inline bool are_dense(const PermuteProblem& problem, const Run& src, int dim) {
  return !src.is_cut() && problem.src_strides[dim] == src.bytes;
}

// Finds a side's dimensions. The first has a stride of one unit, each next one the extent of all before it as its
// stride; permute_tile_runs.cpp.
void find_chain(const PermuteProblem& problem, const void* pointer, const int64_t* strides, int32_t unit_bytes,
                Side* side);

// Sets masks and starts from the dimensions.
void finish_side(const PermuteProblem& problem, Side* side);

// Lists a side's runs, shorter ones first. Blocks of runs that start inside sectors leave room for halo_bytes.
void find_choices(const PermuteProblem& problem, int64_t halo_bytes, Side* side);

// Fills in a run of a finished side, except its costs.
void set_run(const PermuteProblem& problem, const Side& side, int num_whole, int32_t per_index, int64_t block,
             Run* run);

// Chooses the halo, and estimates the tile's time; permute_tile_cost.cpp.
void estimate_tile(const PermuteProblem& problem, const Device& device, float num_elements, Tile* tile);

// Chooses the rows of both sides, and further dimensions for a small tile; permute_tile_rows.cpp.
void find_rows(const PermuteProblem& problem, const int* src_dims, int num_src_dims, const int* dst_dims,
               int num_dst_dims, TileLayout* layout);

// Places the source rows of the layout's tile in shared memory.
void place_rows(const PermuteProblem& problem, const Side& dst_side, TileLayout* layout);

// Plans a chosen tile; false, with the plan unchanged, where it does not fit shared memory; permute_tile_layout.cpp.
bool build_tile(const PermuteProblem& problem, const Device& device, const Tile& tile, const Side& src_side,
                const Side& dst_side, PermutePlan* plan);

// byte_tile moves items of 4 x 16 bytes: shorter runs leave most of one empty. In shared memory its destination rows
// are at most byte_tile_padding() bytes apart.
constexpr int32_t min_byte_tile_run_bytes = 16;
constexpr int32_t columns_per_item = 16;
inline int32_t byte_tile_padding(int32_t run_bytes) { return std::max(run_bytes / 8, 12); }

// Items of a byte_tile whose columns are not skewed.
inline int64_t byte_tile_items(int32_t src_run_bytes, int64_t dst_elements) {
  return int64_t{(src_run_bytes + columns_per_item - 1) / columns_per_item} * ((dst_elements + 3) / 4);
}

// Are elements single bytes that are not converted?
inline bool moves_bytes(const PermuteProblem& problem) { return problem.unit_bytes == 1 && !problem.is_converted; }

// Is a tile of these two runs a byte_tile?
inline bool is_byte_tile(const PermuteProblem& problem, const Run& src, const Run& dst) {
  return moves_bytes(problem) && (src.dims & dst.dims) == 0 && !(src.fills_vectors && dst.fills_vectors) &&
         std::min(src.bytes, dst.bytes) >= min_byte_tile_run_bytes &&
         byte_tile_items(src.bytes, dst.elements) <= max_items_per_thread * tile_threads;
}

inline int byte_tile_threads_of(int64_t items) {
  return items <= max_items_per_thread * byte_tile_threads ? byte_tile_threads : tile_threads;
}

// The estimate of a byte_tile's time; the halo makes its destination runs longer by the factor `with_halo`.
float byte_tile_cost(const PermuteProblem& problem, const Device& device, float num_elements, float with_halo,
                     const Tile& tile);

// Plans the transpose of a byte_tile, whose source rows take launch.shared_bytes; false where it has more items than a
// block's threads hold; byte_tile_layout.cpp.
bool place_columns(const Tile& tile, TilePlan* plan);

// As the kernels do: the shared offset of an element of the destination run by its table, and where a destination row
// starts in dst and in shared memory; permute_tile_banks.cpp.
int32_t element_offset(const TileParams& params, uint32_t element);
void locate_row(const TileParams& params, uint32_t row, int64_t* offset, int32_t* shared_offset);

// The time of a warp's access over one without conflicts, by the offset of each thread's element (< 0: none). With
// shift > 0 offsets are swizzled: offset ^ (offset >> shift & 0x70). Above `limit` it stops and returns more than that.
float bank_conflicts(const int32_t (&shared_offsets)[warp_lanes], int32_t unit_bytes, int32_t shift,
                     float limit = FLT_MAX);

// Chooses the swizzle of a general_tile, and the vectors of a destination row that neighbouring threads store, for few
// bank conflicts.
void choose_swizzle(int32_t dst_unit_bytes, TilePlan* plan);

// Sets the vectors of a destination row that neighbouring threads store.
void set_vectors_per_group(int64_t vectors, int64_t per_group, int num_threads, TileParams* params);

// Plans the tile of a problem that has no run on one side: the innermost dimension of each side, whatever its stride.
void plan_strided_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan);

}  // namespace flowk::permute
