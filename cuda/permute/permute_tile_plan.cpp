// SPDX-License-Identifier: Apache-2.0
// The tile of a permute: candidates for the run of either side, a cost for every pair, and the cheapest pair's parameters.
#include <algorithm>
#include <cstdlib>

#include "permute/permute_problem.h"

namespace flowk {
namespace {

constexpr int tile_threads = 256;         // as in permute_tiles.cuh, whose registers allow this many blocks an SM
constexpr int max_blocks_by_registers = 6;
constexpr int64_t max_tile_bytes = 40 * 1024;
constexpr int64_t max_shared_bytes = 56 * 1024;
constexpr int64_t max_whole_run_bytes = 16 * 1024;
constexpr int64_t sector_bytes = 32;      // the unit of L2 and memory traffic
constexpr int64_t line_bytes = 128;
constexpr int max_choices = 40;

// A run: the innermost `num_whole` dimensions of a side, whole, and `block` indices of the next (1: it is not cut).
struct Run {
  int num_whole = 0;
  int64_t block = 1;
  int64_t elements = 1;
  int64_t bytes = 0;
  int64_t alignment = 0;  // bytes that every start of the run in memory is a multiple of, to 128
  bool is_cut() const { return block > 1; }
};

// One side's dimensions that lie one after the other in memory, innermost first, and the runs to choose from.
struct Side {
  const void* pointer = nullptr;
  const int64_t* strides = nullptr;
  int num_dims = 0;
  int dims[max_tile_dims];
  int num_choices = 0;
  Run choices[max_choices];
  int cut_dim(const Run& run) const { return run.is_cut() ? dims[run.num_whole] : -1; }
  uint64_t whole_dims(const Run& run) const {
    uint64_t mask = 0;
    for (int i = 0; i < run.num_whole; ++i) mask |= uint64_t{1} << dims[i];
    return mask;
  }
};

bool contains(uint64_t mask, int dim) { return dim >= 0 && (mask >> dim & 1) != 0; }

int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }
int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }
int64_t lowest_bit(uint64_t value, int64_t limit) {
  return std::min<int64_t>(static_cast<int64_t>(value & (~value + 1)) == 0 ? limit : static_cast<int64_t>(value & (~value + 1)), limit);
}

// A stride of one unit starts the chain; each next one steps over just the whole of those before it.
void find_chain(const PermuteProblem& problem, const void* pointer, const int64_t* strides, Side* side) {
  side->pointer = pointer;
  side->strides = strides;
  int64_t next = problem.unit_bytes;
  while (side->num_dims < max_tile_dims) {
    int found = -1;
    for (int d = problem.rank - 1; d >= 0 && found < 0; --d)
      if (strides[d] == next) found = d;
    if (found < 0) return;
    side->dims[side->num_dims++] = found;
    next *= problem.extents[found];
  }
}

// Fills in what follows from a run's dimensions and block.
void finish_run(const PermuteProblem& problem, const Side& side, Run* run) {
  run->bytes = run->elements * problem.unit_bytes;
  uint64_t starts = reinterpret_cast<uintptr_t>(side.pointer);
  const uint64_t whole = side.whole_dims(*run);
  const int cut = side.cut_dim(*run);
  for (int d = 0; d < problem.rank; ++d)
    if (!contains(whole, d)) starts |= static_cast<uint64_t>(std::abs(side.strides[d]) * (d == cut ? run->block : 1));
  run->alignment = lowest_bit(starts, line_bytes);
}

void add_choice(const PermuteProblem& problem, Run run, Side* side) {
  if (side->num_choices == max_choices) return;
  finish_run(problem, *side, &run);
  side->choices[side->num_choices++] = run;
}

void find_choices(const PermuteProblem& problem, Side* side) {
  Run run;
  for (int i = 0; i < side->num_dims; ++i) {
    const int64_t extent = problem.extents[side->dims[i]];
    const int64_t inner_bytes = run.elements * problem.unit_bytes;
    for (const int64_t target_bytes : {64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192}) {
      int64_t block = target_bytes / inner_bytes;
      if (block < 2 || block >= extent) continue;
      // Blocks of nearly one size, in whole sectors.
      const int64_t granule = std::max<int64_t>(sector_bytes / lowest_bit(static_cast<uint64_t>(inner_bytes), sector_bytes), 1);
      block = round_up(ceil_div(extent, ceil_div(extent, block)), granule);
      if (block >= extent) continue;
      Run cut = run;
      cut.block = block;
      cut.elements = run.elements * block;
      add_choice(problem, cut, side);
    }
    run.elements *= extent;
    ++run.num_whole;
    if (run.elements * problem.unit_bytes > max_whole_run_bytes) return;
    add_choice(problem, run, side);
  }
}

// What a pair of runs makes of the tile.
struct Tile {
  Run src, dst;
  int src_innermost = -1;
  int src_cut = -1, dst_cut = -1;  // dimensions
  uint64_t src_dims = 0, dst_dims = 0;  // all of a run's, the cut one too
  int64_t blocks[max_rank];        // of every dimension
  int64_t elements = 1;
  int64_t shared_bytes = 0;        // about
  int64_t halo = 0;
  bool aligned = false;            // both sides to 16 bytes throughout
  float cost = 0;
};

// False where the two runs do not make a box.
bool join(const PermuteProblem& problem, const Side& src_side, const Run& src, const Side& dst_side, const Run& dst, Tile* tile) {
  tile->src = src;
  tile->dst = dst;
  tile->src_innermost = src_side.dims[0];
  tile->src_cut = src_side.cut_dim(src);
  tile->dst_cut = dst_side.cut_dim(dst);
  tile->src_dims = src_side.whole_dims(src);
  tile->dst_dims = dst_side.whole_dims(dst);
  if (contains(tile->dst_dims, tile->src_cut) || contains(tile->src_dims, tile->dst_cut)) return false;
  if (tile->src_cut >= 0 && tile->src_cut == tile->dst_cut && src.block != dst.block) {
    // One dimension, one block: the larger.
    Run& smaller = src.block < dst.block ? tile->src : tile->dst;
    const int64_t block = std::max(src.block, dst.block);
    smaller.elements = smaller.elements / smaller.block * block;
    smaller.block = block;
    finish_run(problem, &smaller == &tile->src ? src_side : dst_side, &smaller);
  }
  for (int d = 0; d < problem.rank; ++d) tile->blocks[d] = contains(tile->src_dims | tile->dst_dims, d) ? problem.extents[d] : 1;
  if (tile->src_cut >= 0) {
    tile->blocks[tile->src_cut] = tile->src.block;
    tile->src_dims |= uint64_t{1} << tile->src_cut;
  }
  if (tile->dst_cut >= 0) {
    tile->blocks[tile->dst_cut] = tile->dst.block;
    tile->dst_dims |= uint64_t{1} << tile->dst_cut;
  }
  tile->elements = 1;
  for (int d = 0; d < problem.rank; ++d) tile->elements *= tile->blocks[d];
  // Rows that are not aligned stand at least a chunk apart, which short ones feel.
  const int64_t src_rows = tile->elements / tile->src.elements;
  const int64_t pitch = tile->src.alignment >= chunk_limit_bytes ? round_up(tile->src.bytes, chunk_limit_bytes)
                                                                    : tile->src.bytes + 3 * chunk_limit_bytes / 2;
  tile->shared_bytes = src_rows * pitch;
  return tile->elements * problem.unit_bytes <= max_tile_bytes && tile->shared_bytes <= max_shared_bytes;
}

// Can the tile be copied, transposed and stored in whole chunks, without a run that shares dimensions with the other?
bool is_aligned(const PermuteProblem& problem, const Tile& tile) {
  if ((tile.src_dims & tile.dst_dims) != 0) return false;
  if (problem.unit_bytes < 4) {  // rows that one thread stores together are neighbours in src's innermost dimension
    const int64_t innermost = problem.extents[tile.src_innermost];
    if ((tile.blocks[tile.src_innermost] | innermost) % (4 / problem.unit_bytes) != 0) return false;
  }
  for (const bool is_src : {true, false}) {
    const Run& run = is_src ? tile.src : tile.dst;
    const int cut = is_src ? tile.src_cut : tile.dst_cut;
    if (run.alignment < chunk_limit_bytes || run.bytes % chunk_limit_bytes != 0) return false;
    // The last block of a cut dimension must fill chunks too.
    if (cut >= 0 && run.bytes / run.block * (problem.extents[cut] % run.block) % chunk_limit_bytes != 0) return false;
  }
  return true;
}

// What a tile's time is made of, relative to a copy of the same bytes: non-negative least squares over 17000 tiles of 354
// cases timed on an H200 (bench/tune_permute.py), tiles near a case's best weighing most. The tile that it picks is 4-5%
// slower than the best one, in the cases it was fitted to and in others.
namespace weight {
constexpr float copy = 0.524f;
constexpr float src_sectors = 0.200f;       // 32-byte sectors of src touched twice, over those needed
constexpr float short_src_run = 0.013f;     // 128 bytes over the source run
constexpr float shortest_src_run = 0.075f;  // a source run of one line or less
constexpr float short_dst_run = 0.033f;
constexpr float halo = 1.187f;              // over the block
constexpr float block = 0.397f;             // the start of a block, over the tile's KB
constexpr float store = 0.182f;             // passes of the block's threads over the tile, each over its KB
constexpr float element_gather = 0.091f;    // the same for each element of a chunk
constexpr float word_gather = 0.065f;
constexpr float table_gather = 0.019f;
constexpr float partial_store = 0.385f;
constexpr float table = 0.692f;
constexpr float few_bytes_in_flight = 0.153f;
constexpr float few_blocks = 2.322f;        // over the blocks that are resident together
constexpr float large_tile = 0.192f;
constexpr float idle = 0.100f;              // blocks that the last wave leaves out
constexpr float conflicts = 0.032f;
}  // namespace weight

// Chooses the halo, and estimates the tile's time.
void estimate(const PermuteProblem& problem, const Device& device, Tile* tile) {
  const Run& src = tile->src;
  const Run& dst = tile->dst;
  tile->aligned = is_aligned(problem, *tile);
  // Rows that start inside a sector: load a halo, so that every sector is stored by one tile, if that costs little.
  const int64_t dst_per_index = dst.elements / dst.block;
  tile->halo = 0;
  if (!tile->aligned && tile->dst_cut >= 0 && tile->dst_cut != tile->src_cut && dst.alignment < sector_bytes) {
    const int64_t halo = ceil_div(sector_bytes / problem.unit_bytes - 1, dst_per_index);
    if (4 * halo <= 3 * tile->dst.block) tile->halo = halo;
  }
  const float tile_kb = static_cast<float>(tile->elements * problem.unit_bytes) / 1024.0f;
  const float with_halo = static_cast<float>(dst.block + tile->halo) / static_cast<float>(dst.block);
  const bool is_partial = dst.alignment < chunk_limit_bytes && tile->halo == 0;
  const auto passes = [](int64_t items, int64_t items_per_pass) { return static_cast<float>(ceil_div(items, std::max<int64_t>(items_per_pass, 1))); };

  float cost = weight::copy + weight::halo * (with_halo - 1);
  cost += weight::src_sectors * static_cast<float>(sector_bytes - std::min(src.alignment, sector_bytes)) / static_cast<float>(src.bytes);
  cost += weight::short_src_run * 128.0f / static_cast<float>(src.bytes) + (src.bytes <= line_bytes ? weight::shortest_src_run : 0.0f);
  cost += weight::short_dst_run * 128.0f / static_cast<float>(dst.bytes) + weight::block / tile_kb;

  const int64_t elements_per_chunk = chunk_limit_bytes / problem.unit_bytes;
  const int64_t rows_per_item = tile->aligned && problem.unit_bytes < 4 ? 4 / problem.unit_bytes : 1;
  const int64_t dst_rows = tile->elements / dst.elements / rows_per_item;
  const int64_t chunks = ceil_div(dst.bytes, chunk_limit_bytes) + (is_partial ? 1 : 0);
  const int64_t groups = ceil_div(chunks, line_bytes / chunk_limit_bytes);
  const float store_passes = passes(groups * dst_rows, tile_threads / ceil_div(chunks, groups)) / tile_kb;
  const bool needs_table = !tile->aligned && (tile->dst_dims & (tile->dst_dims - 1)) != 0;
  float per_element = tile->aligned ? weight::word_gather : weight::element_gather;
  if (needs_table) {
    per_element += weight::table_gather;
    const int64_t entries = tile->dst_cut >= 0 ? dst_per_index : dst.elements;
    cost += weight::table * passes(entries + elements_per_chunk, tile_threads) / tile_kb;
  }
  if (is_partial) per_element += weight::partial_store * std::min(1.0f, 128.0f / static_cast<float>(dst.bytes));
  cost += store_passes * (weight::store + per_element * static_cast<float>(elements_per_chunk));

  // Blocks that are resident together, the bytes they keep in flight, and the last wave's idle blocks.
  const float shared_bytes = static_cast<float>(tile->shared_bytes) * with_halo;
  const int64_t resident_by_shared = device.shared_bytes_per_multiprocessor / static_cast<int64_t>(shared_bytes + 1024);
  const float resident = static_cast<float>(std::clamp<int64_t>(resident_by_shared, 1, max_blocks_by_registers));
  cost += weight::few_bytes_in_flight * std::max(0.0f, 1.0f - resident * tile_kb / 64.0f) + weight::few_blocks / resident +
          weight::large_tile * std::max(0.0f, shared_bytes / 24576.0f - 1.0f);
  float num_tiles = 1;
  for (int d = 0; d < problem.rank; ++d) num_tiles *= static_cast<float>(ceil_div(problem.extents[d], tile->blocks[d]));
  const float waves = num_tiles / (static_cast<float>(device.num_multiprocessors) * resident);
  if (waves < 4) cost += weight::idle * (static_cast<float>(static_cast<int64_t>(waves) + 1) / waves - 1);
  if (tile->aligned) {
    int swizzle_bits = 3;
    while (swizzle_bits > 0 && round_up(src.bytes, chunk_limit_bytes << swizzle_bits) * 20 > src.bytes * 23) --swizzle_bits;
    cost += weight::conflicts * static_cast<float>(3 - swizzle_bits);
  }
  tile->cost = cost;
}

// The rows of one side: dimensions, how many indices of each, and what they add up to.
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

constexpr int64_t small_tile_bytes = 8 * 1024;

// A chosen tile with its rows, and where its source rows stand in shared memory.
struct TileLayout {
  Tile tile;
  RowDims src_rows, dst_rows;
  bool has_shared_rows = false;           // dimensions that are rows on both sides
  int shared_row_cut = -1;                // one of them that is cut
  int64_t row_steps[max_tile_dims];       // bytes in shared memory, of each source row dimension
  int64_t span_bytes = 0;
  bool rows_are_linear = false;           // source row r starts at r * row_steps[0]
  int32_t swizzle_mask = 0;
  int32_t shift_mask = 0;
};

int64_t indices_of(const Tile& tile, int dim) { return tile.blocks[dim] + (dim == tile.dst_cut ? tile.halo : 0); }

// Rows of either side are the dimensions of the other side's run; a small tile whose runs are whole takes further
// dimensions as rows on both sides, in dst order. A cut dimension comes last, so that a short last block has fewer rows.
void find_rows(const PermuteProblem& problem, const int* src_dims, int num_src_dims, const int* dst_dims, int num_dst_dims,
               TileLayout* layout) {
  Tile& tile = layout->tile;
  const auto add_rows = [&](bool cut) {
    for (int i = 0; i < num_dst_dims; ++i)
      if (!contains(tile.src_dims, dst_dims[i]) && (dst_dims[i] == tile.dst_cut) == cut)
        layout->src_rows.add(dst_dims[i], indices_of(tile, dst_dims[i]));
    for (int i = 0; i < num_src_dims; ++i)
      if (!contains(tile.dst_dims, src_dims[i]) && (src_dims[i] == tile.src_cut) == cut)
        layout->dst_rows.add(src_dims[i], tile.blocks[src_dims[i]]);
  };
  add_rows(false);
  int64_t bytes = tile.elements * problem.unit_bytes;
  for (int d = problem.rank - 1; d >= 0 && bytes < small_tile_bytes; --d) {
    if (contains(tile.src_dims | tile.dst_dims, d)) continue;
    if (layout->src_rows.rank + 2 > max_tile_dims || layout->dst_rows.rank + 2 > max_tile_dims) break;
    const int64_t block = std::min(problem.extents[d], std::max<int64_t>(2 * small_tile_bytes / bytes, 1));
    const bool cuts = block < problem.extents[d];
    if (cuts && (tile.src_cut >= 0 || tile.dst_cut >= 0)) break;
    layout->src_rows.add(d, block);
    layout->dst_rows.add(d, block);
    tile.blocks[d] = block;
    tile.aligned = false;
    layout->has_shared_rows = true;
    bytes *= block;
    if (cuts) {
      layout->shared_row_cut = tile.src_cut = d;
      break;
    }
  }
  add_rows(true);
}

// Rows one after the other, each from a multiple of the swizzle's reach on. The place of an element of the destination run
// must say which source row it is in, so there is no swizzle where the destination row says it too.
void place_swizzled_rows(int64_t run_bytes, TileLayout* layout) {
  int64_t pitch = 0;
  for (const int32_t mask : {7, 3, 1, 0}) {
    if (layout->has_shared_rows && mask > 0) continue;
    layout->swizzle_mask = mask;
    pitch = round_up(run_bytes, chunk_limit_bytes * (mask + 1));
    if (pitch * 20 <= run_bytes * 23) break;  // at most 15% more shared memory
  }
  for (int i = 0; i < layout->src_rows.rank; ++i) {
    layout->row_steps[i] = i == 0 ? pitch : layout->row_steps[i - 1] * layout->src_rows.extents[i - 1];
  }
  layout->span_bytes = pitch * layout->src_rows.count;
  layout->rows_are_linear = true;
}

// Rows whose places agree with their addresses modulo 128 (less where that would inflate short rows): an asynchronous copy
// splits a line of src in two requests where its place straddles a line of shared memory.
void place_congruent_rows(const PermuteProblem& problem, int64_t run_bytes, TileLayout* layout) {
  const RowDims& rows = layout->src_rows;
  for (int64_t modulus = line_bytes; modulus >= chunk_limit_bytes; modulus /= 2) {
    int64_t span = run_bytes;
    for (int i = 0; i < rows.rank; ++i) {
      const int64_t least = span + chunk_limit_bytes - 1;  // neighbours share no chunk
      const int64_t residue = problem.src_strides[rows.dims[i]] % modulus;
      layout->row_steps[i] = least + ((residue - least) % modulus + modulus) % modulus;
      span += layout->row_steps[i] * (rows.extents[i] - 1);
    }
    layout->span_bytes = span + modulus + chunk_limit_bytes;
    layout->shift_mask = static_cast<int32_t>(modulus - 1);
    if (span * 10 <= run_bytes * rows.count * 13) break;
  }
  layout->rows_are_linear = rows.rank <= 1;
}

void set_row_dim(TileRowDim* dim, int64_t extent, int64_t shared_step, int64_t stride) {
  dim->divider = Divider(static_cast<uint32_t>(extent));
  dim->shared_step = static_cast<int32_t>(shared_step);
  dim->stride = stride;
}

// Grid, cuts and counts.
void set_grid(const PermuteProblem& problem, const TileLayout& layout, PermutePlan* plan) {
  TileParams& params = plan->tile;
  const Tile& tile = layout.tile;
  params.src = problem.src;
  params.dst = problem.dst;
  params.src_end = problem.src_end;
  params.halo = static_cast<int32_t>(tile.halo);
  if (tile.halo > 0) params.src -= tile.halo * problem.src_strides[tile.dst_cut];
  plan->launch.num_blocks = 1;
  // Neighbouring tiles are neighbours in dst: 1-3% over src order (H200).
  for (int d = problem.rank - 1; d >= 0; --d) {
    const int64_t tiles = ceil_div(problem.extents[d] + (d == tile.dst_cut ? tile.halo : 0), tile.blocks[d]);
    if (tiles == 1) continue;
    const int at = params.grid_rank++;
    params.grid[at].divider = Divider(static_cast<uint32_t>(tiles));
    params.grid[at].src_step = tile.blocks[d] * problem.src_strides[d];
    params.grid[at].dst_step = tile.blocks[d] * problem.dst_strides[d];
    plan->launch.num_blocks *= tiles;
    if (d == tile.src_cut) {
      params.src_cut = at;
      params.src_block = static_cast<int32_t>(tile.blocks[d]);
      params.src_extent = problem.extents[d];
    }
    if (d == tile.dst_cut) {
      params.dst_cut = at;
      params.dst_block = static_cast<int32_t>(tile.blocks[d]);
      params.dst_extent = problem.extents[d];
    }
  }
}

TileCount count_of(int64_t total, int64_t block, bool is_cut, TileCount::Cut cut) {
  return is_cut ? TileCount{static_cast<int32_t>(total / block), cut, 0} : TileCount{static_cast<int32_t>(total), TileCount::whole, 0};
}

// What is common to all tiles: rows on both sides and how many of them a tile at the edge has.
void set_rows(const PermuteProblem& problem, const TileLayout& layout, int64_t run_elements, PermutePlan* plan) {
  TileParams& params = plan->tile;
  const Tile& tile = layout.tile;
  const int64_t src_block = tile.src_cut >= 0 ? tile.blocks[tile.src_cut] : 1;
  const int64_t dst_block = tile.dst_cut >= 0 ? tile.blocks[tile.dst_cut] + tile.halo : 1;
  const bool both = layout.shared_row_cut >= 0;
  const bool same = tile.src_cut >= 0 && tile.src_cut == tile.dst_cut;
  params.src_run_bytes = count_of(run_elements * problem.unit_bytes, src_block, tile.src_cut >= 0 && !both, TileCount::of_src_cut);
  params.src_rows = both ? count_of(layout.src_rows.count, src_block, true, TileCount::of_src_cut)
                         : count_of(layout.src_rows.count, dst_block, tile.dst_cut >= 0 && !same, TileCount::of_dst_cut);
  params.dst_rows = count_of(layout.dst_rows.count, src_block, tile.src_cut >= 0 && !same, TileCount::of_src_cut);
  params.src_row_rank = layout.src_rows.rank;
  for (int i = 0; i < layout.src_rows.rank; ++i)
    set_row_dim(&params.src_row_dims[i], layout.src_rows.extents[i], layout.row_steps[i],
                problem.src_strides[layout.src_rows.dims[i]]);
  params.src_tile_bytes = run_elements * problem.unit_bytes + chunk_limit_bytes;
  for (int i = 0; i < layout.src_rows.rank; ++i)
    params.src_tile_bytes += std::max<int64_t>(params.src_row_dims[i].stride, 0) * (layout.src_rows.extents[i] - 1);
  params.dst_row_rank = layout.dst_rows.rank;
  for (int i = 0; i < layout.dst_rows.rank; ++i) {
    const int dim = layout.dst_rows.dims[i];
    const int64_t shared_step = contains(tile.src_dims, dim) ? problem.src_strides[dim] : layout.row_steps[layout.src_rows.find(dim)];
    set_row_dim(&params.dst_row_dims[i], layout.dst_rows.extents[i], shared_step, problem.dst_strides[dim]);
  }
  params.num_dst_rows = Divider(static_cast<uint32_t>(layout.dst_rows.count));
  params.swizzle_mask = layout.swizzle_mask;
  params.shift_mask = static_cast<uint32_t>(layout.shift_mask);
  plan->unit_bytes = problem.unit_bytes;
  plan->launch.num_threads = tile_threads;
}

// Chunks of a destination row: from which boundary on, how many, and how many of them neighbouring threads store.
void set_chunks(const PermuteProblem& problem, const Tile& tile, PermutePlan* plan) {
  TileParams& params = plan->tile;
  const int64_t run_bytes = tile.dst.bytes;
  int64_t chunks = 0;
  if (tile.halo > 0) {
    params.dst_granule = sector_bytes;
    chunks = run_bytes / chunk_limit_bytes;  // blocks are whole sectors
  } else {
    const bool aligned = tile.dst.alignment >= chunk_limit_bytes;
    params.dst_granule = aligned ? chunk_limit_bytes : run_bytes >= 4 * line_bytes ? line_bytes : sector_bytes;
    chunks = ceil_div(run_bytes + (aligned ? 0 : params.dst_granule - problem.unit_bytes), chunk_limit_bytes);
  }
  constexpr int64_t chunks_per_line = line_bytes / chunk_limit_bytes;
  const int64_t groups = ceil_div(chunks, chunks_per_line);
  const int64_t per_group = ceil_div(chunks, groups);
  params.chunks_per_group = Divider(static_cast<uint32_t>(per_group));
  params.num_store_items = static_cast<uint32_t>(groups * params.num_dst_rows.divisor);
  params.store_items_per_pass = static_cast<uint32_t>(tile_threads / per_group);
}

// Neighbouring elements of src's innermost dimension, in one 32-bit word, are rows that one thread stores together.
void group_dst_rows(const PermuteProblem& problem, const TileLayout& layout, PermutePlan* plan) {
  if (problem.unit_bytes >= 4) return;
  TileParams& params = plan->tile;
  const int32_t log2_rows = problem.unit_bytes == 1 ? 2 : 1;
  TileRowDim& innermost = params.dst_row_dims[0];
  params.dst_row_step = innermost.stride;
  set_row_dim(&innermost, layout.dst_rows.extents[0] >> log2_rows, static_cast<int64_t>(innermost.shared_step) << log2_rows,
              innermost.stride * (int64_t{1} << log2_rows));
  params.dst_rows.shift = log2_rows;
  params.num_dst_rows = Divider(params.num_dst_rows.divisor >> log2_rows);
}

// Where element e of the destination run stands: e * run_pitch if its dimensions step evenly, by a table otherwise.
void set_places(const PermuteProblem& problem, const TileLayout& layout, const Side& dst_side, PermutePlan* plan) {
  TileParams& params = plan->tile;
  const Tile& tile = layout.tile;
  params.table_rank = tile.dst.num_whole + (tile.dst.is_cut() ? 1 : 0);
  for (int i = 0; i < params.table_rank; ++i) {
    const int dim = dst_side.dims[i];
    const int at = layout.src_rows.find(dim);
    int64_t rows_before = 1;
    for (int k = 0; k < at; ++k) rows_before *= layout.src_rows.extents[k];
    const bool is_row = at < layout.src_rows.rank;
    params.table[i].divider = Divider(static_cast<uint32_t>(indices_of(tile, dim)));
    params.table[i].shared_step = static_cast<int32_t>(is_row ? layout.row_steps[at] : problem.src_strides[dim]);
    params.table[i].src_row_step = static_cast<int32_t>(is_row ? rows_before : 0);
  }
  params.run_pitch = params.table[0].shared_step;
  bool is_even = params.table[0].src_row_step != 0 || params.table_rank == 1;
  for (int i = 1; i < params.table_rank; ++i) {
    const TileTableDim& inner = params.table[i - 1];
    const int32_t extent = static_cast<int32_t>(inner.divider.divisor);
    is_even &= params.table[i].shared_step == inner.shared_step * extent && params.table[i].src_row_step == inner.src_row_step * extent;
  }
  if (params.table[0].src_row_step == 0 && params.table_rank == 1) params.swizzle_mask = 0;  // all of a run is one row
  if (is_even) {
    params.table_rank = 0;
    return;
  }
  // A cut run repeats with every index of the cut dimension, unless the swizzle does not.
  const TileTableDim& outermost = params.table[params.table_rank - 1];
  const int64_t per_index = tile.dst.elements / tile.dst.block;
  const bool repeats = tile.dst_cut >= 0 && outermost.src_row_step % ((params.swizzle_mask + 1) << params.swizzle_shift) == 0;
  const int64_t period = repeats ? per_index : per_index * (tile.dst.block + tile.halo);
  params.table_period = Divider(static_cast<uint32_t>(period));
  params.period_step = repeats ? outermost.shared_step : 0;
  params.num_table_entries = static_cast<uint32_t>(period + chunk_limit_bytes / problem.unit_bytes - 1);
  params.table_offset_bytes = static_cast<int32_t>(round_up(layout.span_bytes, chunk_limit_bytes));
  plan->launch.shared_bytes = params.table_offset_bytes + static_cast<int32_t>(4 * params.num_table_entries);
}

int32_t log2_floor(int64_t n) { return n <= 1 ? 0 : 63 - __builtin_clzll(static_cast<uint64_t>(n)); }

void build_tile(const PermuteProblem& problem, const Tile& tile, const Side& src_side, const Side& dst_side, PermutePlan* plan) {
  TileLayout layout;
  layout.tile = tile;
  find_rows(problem, src_side.dims, tile.src.num_whole + (tile.src.is_cut() ? 1 : 0), dst_side.dims,
            tile.dst.num_whole + (tile.dst.is_cut() ? 1 : 0), &layout);
  if (tile.src.alignment >= chunk_limit_bytes)
    place_swizzled_rows(tile.src.bytes, &layout);
  else
    place_congruent_rows(problem, tile.src.bytes, &layout);
  set_grid(problem, layout, plan);
  set_rows(problem, layout, tile.src.elements, plan);
  TileParams& params = plan->tile;
  const int64_t per_index = tile.dst.elements / tile.dst.block;
  params.dst_run_elements = tile.dst_cut >= 0 ? TileCount{static_cast<int32_t>(per_index), TileCount::of_dst_cut, 0}
                                              : TileCount{static_cast<int32_t>(tile.dst.elements), TileCount::whole, 0};
  const bool src_is_aligned = tile.src.alignment >= chunk_limit_bytes;
  const int64_t chunks_per_row = ceil_div(tile.src.bytes + (src_is_aligned ? 0 : chunk_limit_bytes - 1), chunk_limit_bytes);
  params.chunks_per_src_row = Divider(static_cast<uint32_t>(std::min<int64_t>(chunks_per_row, tile_threads)));
  params.src_rows_per_pass = static_cast<uint32_t>(std::max<int64_t>(tile_threads / chunks_per_row, 1));
  plan->launch.shared_bytes = static_cast<int32_t>(round_up(layout.span_bytes, chunk_limit_bytes));
  plan->predicted_cost = tile.cost;
  // Destination chunks that neighbouring threads gather from start a chunk's elements apart: that many rows share a key.
  int64_t elements_per_row = 1;  // neighbours in the destination run that stand in one source row
  for (int i = 0; i < tile.dst.num_whole && contains(tile.src_dims, dst_side.dims[i]); ++i) elements_per_row *= problem.extents[dst_side.dims[i]];
  params.swizzle_shift = log2_floor(chunk_limit_bytes / problem.unit_bytes / elements_per_row);
  if (layout.tile.aligned) {
    plan->kernel = PermuteKernel::tiled_transpose;
    params.run_pitch = static_cast<int32_t>(layout.row_steps[0]);
    group_dst_rows(problem, layout, plan);
  } else {
    plan->kernel = PermuteKernel::two_sided_tile;
    set_places(problem, layout, dst_side, plan);
  }
  set_chunks(problem, tile, plan);
}

// Element by element: the innermost dimension of each side, whatever its stride, and rows of further ones.
void plan_strided_tile(const PermuteProblem& problem, PermutePlan* plan) {
  constexpr int64_t block_limit = 64;
  const int dst_dim = problem.rank - 1;
  int src_dim = dst_dim;
  for (int d = 0; d < problem.rank; ++d)
    if (problem.src_strides[d] > 0 && (problem.src_strides[src_dim] == 0 || problem.src_strides[d] < problem.src_strides[src_dim])) src_dim = d;
  TileLayout layout;
  Tile& tile = layout.tile;
  std::fill(tile.blocks, tile.blocks + problem.rank, 1);
  tile.src_dims = uint64_t{1} << src_dim;
  tile.dst_dims = uint64_t{1} << dst_dim;
  for (const int d : {src_dim, dst_dim}) tile.blocks[d] = std::min(problem.extents[d], src_dim == dst_dim ? 16 * block_limit : block_limit);
  if (tile.blocks[src_dim] < problem.extents[src_dim]) tile.src_cut = src_dim;
  if (tile.blocks[dst_dim] < problem.extents[dst_dim]) tile.dst_cut = dst_dim;
  tile.elements = tile.blocks[src_dim] * (src_dim == dst_dim ? 1 : tile.blocks[dst_dim]);
  find_rows(problem, &src_dim, 1, &dst_dim, 1, &layout);
  // One element more than the run, so that a column of the tile lies in as many banks as it has rows.
  const int64_t run_elements = tile.blocks[src_dim];
  int64_t span = (run_elements + 1) * problem.unit_bytes;
  for (int i = 0; i < layout.src_rows.rank; ++i) {
    layout.row_steps[i] = span;
    span *= layout.src_rows.extents[i];
  }
  set_grid(problem, layout, plan);
  set_rows(problem, layout, run_elements, plan);
  // In-run neighbours stand side by side in shared memory, whatever their stride in src.
  TileParams& params = plan->tile;
  for (int i = 0; i < layout.dst_rows.rank; ++i)
    if (layout.dst_rows.dims[i] == src_dim) params.dst_row_dims[i].shared_step = problem.unit_bytes;
  params.src_element_stride = problem.src_strides[src_dim];
  params.dst_element_stride = problem.dst_strides[dst_dim];
  params.chunks_per_src_row = Divider(static_cast<uint32_t>(run_elements));
  params.chunks_per_group = Divider(static_cast<uint32_t>(tile.blocks[dst_dim]));
  params.dst_run_elements = tile.dst_cut >= 0 ? TileCount{1, TileCount::of_dst_cut, 0}
                                              : TileCount{static_cast<int32_t>(tile.blocks[dst_dim]), TileCount::whole, 0};
  const int at = layout.src_rows.find(dst_dim);
  params.run_pitch = static_cast<int32_t>(at < layout.src_rows.rank ? layout.row_steps[at] : problem.unit_bytes);
  plan->kernel = PermuteKernel::strided_tile;
  plan->launch.shared_bytes = static_cast<int32_t>(span);
}

// A dimension that dst walks down is walked the other way round, unless src's run needs it as it is.
void flip_down_dims(const Side& src_side, PermuteProblem* problem) {
  for (int d = 0; d < problem->rank; ++d) {
    const bool in_src_chain = std::find(src_side.dims, src_side.dims + src_side.num_dims, d) != src_side.dims + src_side.num_dims;
    if (problem->dst_strides[d] >= 0 || in_src_chain) continue;
    problem->src += problem->src_strides[d] * (problem->extents[d] - 1);
    problem->dst += problem->dst_strides[d] * (problem->extents[d] - 1);
    problem->src_strides[d] = -problem->src_strides[d];
    problem->dst_strides[d] = -problem->dst_strides[d];
  }
}

}  // namespace

// Both sides and their runs; `problem` as the tiles see it, with dimensions turned round where that helps.
struct Search {
  PermuteProblem problem;  // the sides point into it
  Side src_side, dst_side;
};

static void make_search(const PermuteProblem& given, Search* search) {
  search->problem = given;
  PermuteProblem& problem = search->problem;
  find_chain(problem, problem.src, problem.src_strides, &search->src_side);
  flip_down_dims(search->src_side, &problem);
  search->src_side.pointer = problem.src;
  find_chain(problem, problem.dst, problem.dst_strides, &search->dst_side);
  find_choices(problem, &search->src_side);
  find_choices(problem, &search->dst_side);
}

static bool make_tile(const Search& search, const Device& device, int src_choice, int dst_choice, Tile* tile) {
  if (!join(search.problem, search.src_side, search.src_side.choices[src_choice], search.dst_side,
            search.dst_side.choices[dst_choice], tile))
    return false;
  estimate(search.problem, device, tile);
  return true;
}

void plan_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  Search search;
  make_search(problem, &search);
  Tile best;
  best.cost = -1;
  for (int i = 0; i < search.src_side.num_choices; ++i) {
    for (int j = 0; j < search.dst_side.num_choices; ++j) {
      Tile tile;
      if (make_tile(search, device, i, j, &tile) && (best.cost < 0 || tile.cost < best.cost)) best = tile;
    }
  }
  if (best.cost < 0) return plan_strided_tile(problem, plan);
  build_tile(search.problem, best, search.src_side, search.dst_side, plan);
}

TileCandidate plan_tile_candidate(const PermuteProblem& problem, const Device& device, int src_choice, int dst_choice,
                                  PermutePlan* plan) {
  Search search;
  make_search(problem, &search);
  if (src_choice >= search.src_side.num_choices || dst_choice >= search.dst_side.num_choices) return TileCandidate::out_of_range;
  Tile tile;
  if (!make_tile(search, device, src_choice, dst_choice, &tile)) return TileCandidate::no_box;
  build_tile(search.problem, tile, search.src_side, search.dst_side, plan);
  return TileCandidate::planned;
}

}  // namespace flowk
