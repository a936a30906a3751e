// SPDX-License-Identifier: Apache-2.0
// Tiles while the planner chooses one. Included by plan/tile/ only.
//
//   permute_tile_runs.cpp                          the runs that a tile may have in src and in dst
//   permute_tile_search.cpp                        the pairs of runs, and the cheapest of their tiles
//   permute_tile_cost.cpp                          the estimate of a tile's time
//   permute_tile_rows.cpp                          the chosen tile's rows, and where they stand in shared memory
//   permute_tile_layout.cpp, byte_tile_layout.cpp  the parameters of its kernel
//   permute_tile_banks.cpp                         the swizzle, by the bank conflicts of shared memory
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <cstdlib>

#include "permute/plan/permute_problem.h"
#include "permute/plan/permute_tuning.h"

namespace flowk::permute {

// The bounds of the search are not measured.
constexpr int max_choices = 48;
constexpr int64_t max_tile_bytes = 40 * 1024;
constexpr int64_t max_shared_bytes = 56 * 1024;     // of a tile, as the search estimates it
constexpr int64_t max_block_shared_bytes = 101376;  // of a block on sm_86, the least of all GPUs
constexpr int32_t reserved_shared_bytes = 1024;     // of a multiprocessor, for each block
constexpr float several_waves = 4;                  // with this many the last wave counts little

// The most shared memory for rows with offsets that are congruent modulo 128, in percent of the rows' bytes. Rows that
// need more are tried with a smaller power of 2. Not measured.
constexpr int64_t max_congruent_percent = 130;

// A run: the innermost `num_whole` dimensions of a chain, and `slice` indices of the next one (1: not cut). The other
// fields follow from these two.
struct Run {
  int num_whole;
  int32_t slice;
  int32_t per_index;  // elements for one index of the cut dimension; all of them if the run is whole
  int32_t elements;
  int32_t period;  // elements for one index of the outermost dimension
  int32_t bytes;
  int32_t alignment;   // every start of the run in memory is a multiple of it; at most 128
  bool fills_vectors;  // every slice of it, the last one too, consists of aligned vectors
  float padding;       // indices in whole slices of the cut dimension, over its extent
  int cut;             // the cut dimension, or -1
  uint64_t whole_dims;
  uint64_t dims;  // the cut one too
  bool is_cut() const { return slice > 1; }
  int num_dims() const { return num_whole + (is_cut() ? 1 : 0); }
};

// The dimensions of src or dst that lie one after the other in memory, innermost first, and the runs to choose from.
struct Chain {
  const void* pointer = nullptr;
  const int64_t* strides = nullptr;
  int32_t unit_bytes = 0;
  int num_dims = 0;
  int dims[max_tile_dims];
  int num_choices = 0;
  Run choices[max_choices];
};

// A problem, and the runs that its tile is chosen from.
struct TileSearch {
  Device device;
  PermuteProblem problem;  // with dimensions reversed if that helps; the chains point into it
  float num_elements = 1;
  float num_bytes = 0;
  Chain src, dst;
};

// The tile of a pair of runs.
struct Tile {
  Run src = {}, dst = {};
  int src_cut = -1, dst_cut = -1;  // dimensions
  int32_t src_rows = 1;
  int32_t dense_rows = 1;  // source rows that lie one after the other in src
  // byte_tile: the dimension of src's run along which destination runs lie one after the other in dst, joined to a row
  // of join_extent runs; -1: none. It is src's innermost, or the second of two.
  int join_dim = -1;
  int32_t join_extent = 1;
  int batch_dim = -1;  // byte_tile: a small tile also takes `batch` indices of this dimension
  int32_t batch = 1;
  int64_t elements = 1;
  int64_t shared_bytes = 0;      // estimated
  int32_t min_shared_bytes = 0;  // of a block
  int64_t halo = 0;
  int64_t min_bytes = 0;      // a smaller tile takes further dimensions as rows of src and of dst
  bool aligned = false;       // aligned_tile, unless it takes further dimensions
  bool is_byte_tile = false;  // byte_tile, unless it takes further dimensions
  float cost = 0;

  bool is_disjoint() const { return (src.dims & dst.dims) == 0; }
};

// The source rows or destination rows of a tile: dimensions, indices of each, and their product.
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
  int64_t extents[max_rank];  // of the tile, without the halo
  RowDims src_rows, dst_rows;
  int shared_row_cut = -1;           // a dimension of source rows and destination rows that is cut
  int64_t row_steps[max_tile_dims];  // bytes in shared memory, of each source row dimension
  int64_t span_bytes = 0;
  int32_t swizzle_mask = 0;  // of the keys of aligned_tile
  int32_t shift_mask = 0;
  int64_t dense_rows = 1;  // source rows of the first dimension that are loaded as one
  bool rows_are_in_dst_order = true;
  int64_t skipped_elements = 0;
  int64_t skipped_bytes = 0;

  int64_t extent_with_halo(int dim) const { return extents[dim] + (dim == tile.dst_cut ? tile.halo : 0); }
};

// Blocks of the tile that are resident on a multiprocessor at once. The halo makes its shared memory larger by the
// factor `with_halo`.
inline int resident_tiles(const Device& device, const Tile& tile, float with_halo, int max_resident) {
  const auto bytes = static_cast<int32_t>(static_cast<float>(tile.shared_bytes) * with_halo) + reserved_shared_bytes;
  return std::clamp(device.shared_bytes_per_multiprocessor / bytes, 1, max_resident);
}

// The blocks that are missing in the last wave, over all blocks.
inline float idle_share(float waves) {
  return waves < several_waves ? static_cast<float>(static_cast<int64_t>(waves) + 1) / waves - 1 : 0;
}

// The most elements that may lie before a destination row in its first sector.
inline int32_t max_halo_elements(const PermuteProblem& problem, int32_t alignment) {
  return (sector_bytes - std::min(alignment, sector_bytes)) / problem.dst_unit_bytes;
}

// The largest power of 2 that divides `value`, at most `limit`.
inline int64_t lowest_bit(uint64_t value, int64_t limit) {
  const uint64_t bit = value & (~value + 1);
  return bit == 0 || bit > static_cast<uint64_t>(limit) ? limit : static_cast<int64_t>(bit);
}

inline bool contains(uint64_t mask, int dim) { return dim >= 0 && (mask >> dim & 1) != 0; }

// Do the source rows along `dim` lie one after the other in src? Rows of a cut run do not, because the last slice's are
// shorter than their distance.
inline bool are_dense(const PermuteProblem& problem, const Run& src, int dim) {
  return !src.is_cut() && problem.src_strides[dim] == src.bytes;
}

// Finds the dimensions of a chain. The first has a stride of one unit, and the stride of each other is the extent of
// all before it; permute_tile_runs.cpp.
void find_chain(const PermuteProblem& problem, Chain* chain);

// Lists the runs of a chain, shorter ones first. Slices of runs that start inside sectors leave room for halo_bytes.
void find_choices(const PermuteProblem& problem, int64_t halo_bytes, Chain* chain);

void set_run(const PermuteProblem& problem, const Chain& chain, int num_whole, int64_t slice, Run* run);

struct AllTileCosts {
  TileCosts units, byte_units, converted;
  ByteTileCosts byte_tile;
};
// Chooses the halo, and estimates the tile's time: the sum of the costs' members, each times a number that follows from
// the tile; permute_tile_cost.cpp.
void estimate_tile(const TileSearch& search, const AllTileCosts& costs, Tile* tile);

// The pitch of the source rows of aligned_tile. Rows share no line, since each has its own key. The pitch is congruent
// to src's modulo 128 if that takes little shared memory, otherwise a multiple of the swizzle's line;
// permute_tile_rows.cpp.
int64_t swizzled_pitch(int32_t run_bytes, int64_t src_stride, int32_t alignment, bool* is_congruent);

// The mask of the keys that swizzle source rows of aligned_tile: the largest of 7, 3, 1 and 0 for which the row,
// rounded up to whole (mask + 1) vectors, is at most 15% longer. That bound is not measured.
int32_t swizzle_mask_of(int32_t run_bytes);

// The pitch in shared memory of the source rows of other tiles: congruent to src_stride modulo `modulus`. No two rows
// share a vector.
int64_t congruent_pitch(int64_t run_bytes, int64_t src_stride, bool is_aligned, int64_t modulus);

// Chooses the rows of the layout's tile, and further dimensions for a small one.
void find_rows(const TileSearch& search, TileLayout* layout);

// Places the source rows in shared memory.
void place_rows(const TileSearch& search, TileLayout* layout);

// Plans a chosen tile. False, with a plan that is not to be used, if it does not fit shared memory;
// permute_tile_layout.cpp.
bool build_tile(const TileSearch& search, const Tile& tile, PermutePlan* plan);

// Plans the tile of a problem in which src or dst has no run. The tile consists of the innermost dimension of each,
// whatever its stride.
void plan_strided_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan);

// How many vectors of one destination row neighbouring threads store: a line, or fewer of a short row. The number is
// even, because warps that store 5 or 7 vectors of a row have bank conflicts.
int32_t vectors_per_segment_of(int32_t vectors);

// The bytes that the vectors of a destination row are aligned to, and the largest number of vectors that a row may
// touch; permute_tile_layout.cpp.
int32_t dst_granule_of(const Tile& tile);
int64_t dst_vectors_of(const PermuteProblem& problem, const Tile& tile);

// Sets the segments of a row of `vectors`, of `per_segment` each, and the passes of a block over them.
void set_segments(int64_t vectors, int64_t per_segment, int num_threads, TileStore* store);

// byte_tile: the shortest source run, in bytes, and the most unused bytes behind a destination row in shared memory.
constexpr int32_t min_byte_tile_run_bytes = 2;
inline int32_t byte_tile_padding(int32_t row_bytes) { return std::max(row_bytes / 8, 12); }

// Words of 4 x 4 bytes in a byte_tile without skewed columns.
inline int64_t byte_tile_words(int32_t src_run_bytes, int64_t dst_elements) {
  return ceil_div(src_run_bytes, columns_per_word) * ceil_div(dst_elements, rows_per_item);
}

// Are elements single bytes that are not converted?
inline bool moves_bytes(const PermuteProblem& problem) { return problem.unit_bytes == 1 && !problem.is_converted(); }

// Are elements of 1 byte converted to elements of 1 or 2 bytes, or the other way round? The time of such a tile is that
// of its instructions, not of its bytes.
inline bool converts_bytes(const PermuteProblem& problem) {
  return problem.is_converted() && problem.unit_bytes * problem.dst_unit_bytes <= 2;
}

// The threads of a byte_tile's block. Items of short destination runs have up to 3 words, because with 4 more of a
// warp's columns would be in the same banks.
inline int byte_tile_threads_of(int64_t num_words, int64_t dst_elements) {
  constexpr int64_t short_run_elements = 32;
  const int64_t words_per_item = dst_elements < short_run_elements ? max_words_per_item - 1 : max_words_per_item;
  return num_words <= max_items_per_thread * words_per_item * byte_tile_threads ? byte_tile_threads : tile_threads;
}

// Plans the transpose of a byte_tile. Before the call launch.shared_bytes is the size of its source rows. Returns the
// wavefronts of shared memory for 32 vectors, or 0 if the tile does not fit shared memory; byte_tile_layout.cpp.
float place_columns(const TileSearch& search, const TileLayout& layout, LaunchConfig* launch, ByteTileParams* params);

// The time of a warp's access, over the time of one without bank conflicts, from the offset of each thread's element
// (< 0: none). With shift > 0 offsets are swizzled: offset ^ (offset >> shift & 0x70); permute_tile_banks.cpp.
float bank_conflicts(const int32_t (&shared_offsets)[warp_lanes], int32_t unit_bytes, int32_t shift);

// Chooses the swizzle of a general_tile, and the vectors of a segment, for few bank conflicts. Returns bank_conflicts()
// of the choice, times half_line_store_passes if a segment is half a line.
float choose_swizzle(int32_t unit_bytes, int32_t dst_unit_bytes, GeneralTileParams* params);

}  // namespace flowk::permute
