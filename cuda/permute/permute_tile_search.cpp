// SPDX-License-Identifier: Apache-2.0
// The choice of a tile: candidates for the run of either side, an estimate of the time of every pair, and the cheapest
// pair.
#include "permute/permute_tile.h"

namespace flowk {
namespace {

constexpr int max_blocks_by_registers = 6;  // blocks of tile_threads an SM, as permute_tiles.cuh is compiled
constexpr int64_t max_tile_bytes = 40 * 1024;
constexpr int64_t max_shared_bytes = 56 * 1024;
constexpr int64_t max_whole_run_bytes = 24 * 1024;

int64_t lowest_bit(uint64_t value, int64_t limit) {
  return std::min<int64_t>(
      static_cast<int64_t>(value & (~value + 1)) == 0 ? limit : static_cast<int64_t>(value & (~value + 1)), limit);
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
    for (const int64_t target_bytes : {64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384, 24576}) {
      int64_t block = target_bytes / inner_bytes;
      if (block < 2 || block >= extent) continue;
      // Blocks of nearly one size, in whole sectors.
      const int64_t granule =
          std::max<int64_t>(sector_bytes / lowest_bit(static_cast<uint64_t>(inner_bytes), sector_bytes), 1);
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

// False where the two runs do not make a box.
bool join(const PermuteProblem& problem, const Side& src_side, const Run& src, const Side& dst_side, const Run& dst,
          Tile* tile) {
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
  for (int d = 0; d < problem.rank; ++d)
    tile->blocks[d] = contains(tile->src_dims | tile->dst_dims, d) ? problem.extents[d] : 1;
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

// What a tile's time is made of, relative to a copy of the same bytes: fitted to 13000 tiles of 277 cases timed on an
// H200 (bench/tune_permute.py) so that the cheapest tile of a case is a fast one. Its pick is 3% slower than the case's
// best tile there, and 4% in 93 cases that were kept out.
namespace weight {
constexpr float copy = 0.900f;
constexpr float src_sectors = 0.100f;       // 32-byte sectors of src touched twice, over those needed
constexpr float dst_lines = 0.205f;         // the same for 128-byte lines of dst
constexpr float src_line_ends = 0.089f;     // lines of src that a run ends in
constexpr float short_src_run = 0.212f;     // below 256 bytes
constexpr float shortest_src_run = 0.015f;  // one line or less
constexpr float halo = 0.439f;              // over the block
constexpr float block = 1.099f;             // the start of a block, over the tile's KB
constexpr float unaligned_load = 0.141f;    // passes of the block's threads over the tile, over its KB
constexpr float store = 0.397f;
constexpr float element_gather = 0.214f;  // for each element of a chunk
constexpr float partial_store = 0.058f;
constexpr float table = 0.569f;
constexpr float few_bytes_in_flight = 0.278f;
constexpr float few_blocks = 0.382f;  // over the blocks that are resident together
constexpr float idle = 0.302f;        // blocks that the last wave leaves out
constexpr float conflicts = 0.026f;   // for each bit that the swizzle lacks
constexpr float small_tile = 0.133f;  // below 14 KB
constexpr float large_tile = 0.093f;  // above 20 KB
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
  const float src_run = static_cast<float>(src.bytes), dst_run = static_cast<float>(dst.bytes);
  const float tile_kb = static_cast<float>(tile->elements * problem.unit_bytes) / 1024.0f;
  const float with_halo = static_cast<float>(dst.block + tile->halo) / static_cast<float>(dst.block);
  const bool src_is_aligned = src.alignment >= chunk_limit_bytes;
  const bool is_partial = dst.alignment < chunk_limit_bytes && tile->halo == 0;
  const int64_t dst_alignment =
      tile->halo > 0 ? sector_bytes : std::min(dst.alignment, lowest_bit(static_cast<uint64_t>(dst.bytes), line_bytes));
  float cost = weight::copy + weight::halo * (with_halo - 1) + weight::block / tile_kb;
  cost += weight::src_sectors * static_cast<float>(sector_bytes - std::min(src.alignment, sector_bytes)) / src_run;
  cost += weight::dst_lines * static_cast<float>(line_bytes - dst_alignment) / dst_run;
  if (src_is_aligned && src.bytes % line_bytes != 0) cost += weight::src_line_ends * 128.0f / std::max(src_run, 128.0f);
  if (src.bytes < 2 * line_bytes) cost += weight::short_src_run;
  if (src.bytes <= line_bytes) cost += weight::shortest_src_run;
  if (tile_kb < 14) cost += weight::small_tile;
  if (tile_kb > 20) cost += weight::large_tile;

  // Passes of the block's threads: loads, the table, stores.
  float passes = 0;
  const int64_t src_rows = tile->elements / src.elements * (dst.block + tile->halo) / dst.block;
  if (!src_is_aligned) {
    const int64_t chunks = ceil_div(src.bytes + chunk_limit_bytes - 1, chunk_limit_bytes);
    const int64_t rows_per_pass = std::max<int64_t>(plan_tile_threads / chunks, 1);
    passes += weight::unaligned_load *
              static_cast<float>(ceil_div(src_rows, rows_per_pass) * ceil_div(chunks, plan_tile_threads));
  }
  const int64_t elements_per_chunk = chunk_limit_bytes / problem.unit_bytes;
  if (!tile->aligned && (tile->dst_dims & (tile->dst_dims - 1)) != 0) {
    const int64_t entries = (tile->dst_cut >= 0 ? dst_per_index : dst.elements) + elements_per_chunk - 1;
    passes += weight::table * static_cast<float>(ceil_div(entries, plan_tile_threads));
  }
  const int64_t rows_per_item = tile->aligned && problem.unit_bytes < 4 ? 4 / problem.unit_bytes : 1;
  const int64_t dst_rows = tile->elements / dst.elements / rows_per_item;
  const int64_t chunks = ceil_div(dst.bytes, chunk_limit_bytes) + (is_partial ? 1 : 0);
  const int64_t per_group = chunks_per_group_of(chunks);
  float per_element = tile->aligned ? 0.0f : weight::element_gather;
  if (is_partial) per_element += weight::partial_store * std::min(1.0f, 128.0f / dst_run);
  passes += (weight::store + per_element * static_cast<float>(elements_per_chunk)) *
            static_cast<float>(ceil_div(ceil_div(chunks, per_group) * dst_rows, plan_tile_threads / per_group));
  cost += passes / tile_kb;

  // Blocks that are resident together, the bytes they keep in flight, and the last wave's idle blocks.
  const int64_t shared_bytes = static_cast<int64_t>(static_cast<float>(tile->shared_bytes) * with_halo) + 1024;
  const float resident = static_cast<float>(
      std::clamp<int64_t>(device.shared_bytes_per_multiprocessor / shared_bytes, 1, max_blocks_by_registers));
  cost +=
      weight::few_bytes_in_flight * std::max(0.0f, 1.0f - resident * tile_kb / 64.0f) + weight::few_blocks / resident;
  float num_tiles = 1;
  for (int d = 0; d < problem.rank; ++d) num_tiles *= static_cast<float>(ceil_div(problem.extents[d], tile->blocks[d]));
  const float waves = num_tiles / (static_cast<float>(device.num_multiprocessors) * resident);
  if (waves < 4) cost += weight::idle * (static_cast<float>(static_cast<int64_t>(waves) + 1) / waves - 1);
  if (src_is_aligned && src_rows > 1)
    for (int mask = swizzle_mask_of(src.bytes); mask < 7; mask = 2 * mask + 1) cost += weight::conflicts;
  tile->cost = cost;
}

// A dimension that dst walks down is walked the other way round, unless src's run needs it as it is.
void flip_down_dims(const Side& src_side, PermuteProblem* problem) {
  for (int d = 0; d < problem->rank; ++d) {
    const bool in_src_chain =
        std::find(src_side.dims, src_side.dims + src_side.num_dims, d) != src_side.dims + src_side.num_dims;
    if (problem->dst_strides[d] >= 0 || in_src_chain) continue;
    problem->src += problem->src_strides[d] * (problem->extents[d] - 1);
    problem->dst += problem->dst_strides[d] * (problem->extents[d] - 1);
    problem->src_strides[d] = -problem->src_strides[d];
    problem->dst_strides[d] = -problem->dst_strides[d];
  }
}

// Both sides and their runs; `problem` as the tiles see it, with dimensions turned round where that helps.
struct Search {
  PermuteProblem problem;  // the sides point into it
  Side src_side, dst_side;
};

void make_search(const PermuteProblem& given, Search* search) {
  search->problem = given;
  PermuteProblem& problem = search->problem;
  find_chain(problem, problem.src, problem.src_strides, &search->src_side);
  flip_down_dims(search->src_side, &problem);
  search->src_side.pointer = problem.src;
  find_chain(problem, problem.dst, problem.dst_strides, &search->dst_side);
  find_choices(problem, &search->src_side);
  find_choices(problem, &search->dst_side);
}

bool make_tile(const Search& search, const Device& device, int src_choice, int dst_choice, Tile* tile) {
  if (!join(search.problem, search.src_side, search.src_side.choices[src_choice], search.dst_side,
            search.dst_side.choices[dst_choice], tile))
    return false;
  estimate(search.problem, device, tile);
  return true;
}

}  // namespace

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
  if (src_choice >= search.src_side.num_choices || dst_choice >= search.dst_side.num_choices)
    return TileCandidate::out_of_range;
  Tile tile;
  if (!make_tile(search, device, src_choice, dst_choice, &tile)) return TileCandidate::no_box;
  build_tile(search.problem, tile, search.src_side, search.dst_side, plan);
  return TileCandidate::planned;
}

}  // namespace flowk
