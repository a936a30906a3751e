// SPDX-License-Identifier: Apache-2.0
// The choice of a tile: candidates for the run of either side, an estimate of the time of every pair, and the cheapest
// pair.
#include "permute/permute_tile.h"

namespace flowk {
namespace {

constexpr int64_t max_tile_bytes = 40 * 1024;
constexpr int64_t max_whole_run_bytes = 24 * 1024;
constexpr int32_t target_run_bytes[] = {64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384, 24576};

// A stride of one unit starts the chain; each next one steps over just the whole of those before it.
void find_chain(const PermuteProblem& problem, const void* pointer, const int64_t* strides, int32_t unit_bytes,
                Side* side) {
  side->pointer = pointer;
  side->strides = strides;
  side->unit_bytes = unit_bytes;
  int64_t next = unit_bytes;
  while (side->num_dims < max_tile_dims) {
    int found = -1;
    for (int d = problem.rank - 1; d >= 0 && found < 0; --d)
      if (strides[d] == next) found = d;
    if (found < 0) return;
    side->dims[side->num_dims++] = found;
    next *= problem.extents[found];
  }
}

// Once the chain is whole.
void finish_side(const PermuteProblem& problem, Side* side) {
  side->masks[0] = 0;
  for (int n = 0; n < side->num_dims; ++n) side->masks[n + 1] = side->masks[n] | uint64_t{1} << side->dims[n];
  uint64_t others = reinterpret_cast<uintptr_t>(side->pointer);
  for (int d = 0; d < problem.rank; ++d)
    if (!contains(side->masks[side->num_dims], d)) others |= static_cast<uint64_t>(std::abs(side->strides[d]));
  for (int n = side->num_dims; n >= 0; --n) {
    side->starts[n] = others;
    if (n < side->num_dims) others |= static_cast<uint64_t>(side->strides[side->dims[n]]);
  }
}

// Fills in what follows from a run's dimensions and block.
void finish_run(const PermuteProblem& problem, const Side& side, Run* run) {
  run->elements = run->per_index * run->block;
  run->bytes = run->elements * side.unit_bytes;
  run->period = run->per_index;
  if (!run->is_cut() && run->num_whole > 0)
    run->period /= static_cast<int32_t>(problem.extents[side.dims[run->num_whole - 1]]);
  run->whole_dims = side.masks[run->num_whole];
  run->cut = run->is_cut() ? side.dims[run->num_whole] : -1;
  run->dims = side.masks[run->num_dims()];
  uint64_t starts = side.starts[run->num_whole];
  if (run->num_whole < side.num_dims)
    starts |= static_cast<uint64_t>(side.strides[side.dims[run->num_whole]] * run->block);
  run->alignment = static_cast<int32_t>(lowest_bit(starts, line_bytes));
  run->fills_chunks = run->alignment >= chunk_limit_bytes && run->bytes % chunk_limit_bytes == 0;
  run->padding = 1;
  if (run->is_cut()) {
    const int64_t extent = problem.extents[run->cut];
    const int64_t num_blocks = ceil_div(extent, run->block);
    const int64_t last_block = extent - (num_blocks - 1) * run->block;
    run->fills_chunks &= last_block * run->per_index * side.unit_bytes % chunk_limit_bytes == 0;
    run->padding = static_cast<float>(num_blocks * run->block) / static_cast<float>(extent);
  }
}

void add_choice(const PermuteProblem& problem, Run run, Side* side) {
  if (side->num_choices == max_choices) return;
  finish_run(problem, *side, &run);
  side->choices[side->num_choices++] = run;
}

// `halo_bytes` come on top of a side's runs where they start inside sectors.
void find_choices(const PermuteProblem& problem, int64_t halo_bytes, Side* side) {
  Run run;
  for (int i = 0; i < side->num_dims; ++i) {
    const int64_t extent = problem.extents[side->dims[i]];
    const int64_t inner_bytes = int64_t{run.per_index} * side->unit_bytes;
    // Blocks of nearly one size, in whole sectors where they are several times as large.
    const int64_t granule =
        std::max<int64_t>(sector_bytes / lowest_bit(static_cast<uint64_t>(inner_bytes), sector_bytes), 1);
    int64_t last_block = 0;
    for (const int32_t target_bytes : target_run_bytes) {
      int64_t block = target_bytes / inner_bytes;
      if (block < 2) continue;
      if (block >= extent) break;
      block = ceil_div(extent, ceil_div(extent, block));
      if (2 * granule <= block) block = round_up(block, granule);
      if (block >= extent) break;
      if (block == last_block) continue;
      last_block = block;
      Run cut = run;
      cut.block = static_cast<int32_t>(block);
      if (halo_bytes > 0) {
        finish_run(problem, *side, &cut);
        const int64_t with_halo = extent + ceil_div(halo_bytes, inner_bytes);
        if (cut.alignment < sector_bytes)
          block = round_up(ceil_div(with_halo, ceil_div(with_halo, block)), 2 * granule <= block ? granule : 1);
        if (block >= extent) break;
        cut.block = static_cast<int32_t>(block);
      }
      add_choice(problem, cut, side);
    }
    if (inner_bytes * extent > max_whole_run_bytes) return;
    run.per_index *= static_cast<int32_t>(extent);
    ++run.num_whole;
    add_choice(problem, run, side);
  }
}

// About what a source row takes of shared memory: what it does where rows have one dimension.
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
    const int64_t pitch = congruent_pitch(src.bytes, stride, src.alignment >= chunk_limit_bytes, modulus);
    if (pitch * 100 <= src.bytes * max_congruent_percent || modulus == chunk_limit_bytes) return pitch;
  }
}

// False where the two runs do not make a box, or one that is too large, or smaller than `min_bytes`.
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
    Run& smaller = src.block < dst.block ? tile->src : tile->dst;
    smaller.block = std::max(src.block, dst.block);
    finish_run(problem, &smaller == &tile->src ? src_side : dst_side, &smaller);
  }
  // Source rows are the indices of the destination run's dimensions that the source run has not.
  int64_t src_rows = dst.elements;
  if (!is_disjoint) {
    src_rows = 1;
    for (int i = 0; i < dst.num_whole; ++i)
      if (!contains(src.dims, dst_side.dims[i])) src_rows *= problem.extents[dst_side.dims[i]];
    if (dst.cut >= 0 && dst.cut != src.cut) src_rows *= dst.block;
  }
  tile->elements = src_rows * tile->src.elements;
  const bool fills_chunks = is_disjoint && src.fills_chunks && dst.fills_chunks;
  tile->dense_rows = 1;
  if (!fills_chunks) {
    // The first dimension of the source rows: do they lie one after the other?
    for (int i = tile->dst.num_dims() - 1; i >= 0; --i) {
      const int d = dst_side.dims[i];
      if (contains(tile->src.dims, d)) continue;
      const bool is_dense = problem.src_strides[d] == tile->src.bytes;
      tile->dense_rows = !is_dense            ? 1
                         : d == tile->dst_cut ? tile->dst.block
                                              : static_cast<int32_t>(problem.extents[d]);
    }
  }
  tile->shared_bytes = src_rows * pitch_of(problem, dst_side, *tile, fills_chunks);
  if (tile->dst.num_dims() > 1 && !fills_chunks) {
    tile->shared_bytes += static_cast<int64_t>(sizeof(TileTableEntry)) * tile->dst.period;
  }
  tile->src_rows = static_cast<int32_t>(src_rows);
  if (!fills_chunks) tile->shared_bytes += dst_row_bytes * (tile->elements / tile->dst.elements);
  tile->two_steps = takes_two_steps(problem, tile->src, tile->dst);
  tile->adjacent_rows = 1;
  if (tile->two_steps && dst.cut < 0) {
    for (int i = 0; i < src.num_dims(); ++i) {
      const int d = src_side.dims[i];
      if (problem.dst_strides[d] == tile->dst.bytes)
        tile->adjacent_rows = d == src.cut ? src.block : static_cast<int32_t>(problem.extents[d]);
    }
  }
  if (tile->two_steps && tile->dense_rows == 1) {
    for (int i = 0; i < tile->dst.num_dims(); ++i) {
      const int d = dst_side.dims[i];
      if (problem.src_strides[d] == tile->src.bytes)
        tile->dense_rows = d == tile->dst_cut ? tile->dst.block : static_cast<int32_t>(problem.extents[d]);
    }
  }
  return problem.bytes_of(tile->elements) <= max_bytes && tile->shared_bytes <= max_shared_bytes;
}

// A dimension that dst walks down is walked the other way round, unless src's run needs it as it is. Where it is dst's
// innermost and not src's, src's run ends before it.
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

// Smaller tiles take further dimensions, while every multiprocessor keeps two.
int64_t least_tile_bytes(float num_bytes, const Device& device) {
  constexpr float small_tile_bytes = 8 * 1024;
  return static_cast<int64_t>(
      std::min(small_tile_bytes, num_bytes / static_cast<float>(2 * device.num_multiprocessors)));
}

// Both sides and their runs; `problem` as the tiles see it, with dimensions turned round where that helps.
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
  const bool is_bytes = problem.unit_bytes == 1 && !problem.is_converted;
  find_choices(problem, 0, &search->src_side);
  find_choices(problem, is_bytes ? sector_bytes - 1 : 0, &search->dst_side);
  set_least_costs(problem, &search->src_side, &search->dst_side);
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

// The source rows of tiles of one source run: the indices of the destination run's dimensions that the source run has
// not.
struct SourceRows {
  uint64_t src_dims = 0;
  int first_dim = -1;                     // the innermost of them
  int64_t elements[max_tile_dims + 1];    // in the first n dimensions of dst
};

void count_source_rows(const Search& search, const Run& src, SourceRows* rows) {
  const Side& side = search.dst_side;
  rows->src_dims = src.dims;
  rows->first_dim = -1;
  rows->elements[0] = 1;
  for (int n = 0; n < side.num_dims; ++n) {
    const int d = side.dims[n];
    const bool is_row = !contains(src.dims, d);
    rows->elements[n + 1] = rows->elements[n] * (is_row ? search.problem.extents[d] : 1);
    if (is_row && rows->first_dim < 0) rows->first_dim = d;
  }
}

// Two runs that are cut along one dimension take the larger block: would another pair make the same tile as one whose
// smaller block is choice `i`? Either all blocks of its side are smaller and this is the first, or one is the larger.
bool another_takes(const Side& side, int i, int32_t larger_block) {
  const Run& run = side.choices[i];
  if (i > 0 && side.choices[i - 1].cut == run.cut) return true;
  for (; i < side.num_choices && side.choices[i].cut == run.cut; ++i)
    if (side.choices[i].block == larger_block) return true;
  return false;
}

// Pairs of runs that make a box of a fitting size, with what any tile of theirs costs at least.
struct Pair {
  int8_t src, dst;
  float least_cost;
};

int find_pairs(const Search& search, int64_t min_bytes, int64_t max_bytes, Pair* pairs) {
  const PermuteProblem& problem = search.problem;
  const Side& src_side = search.src_side;
  const Side& dst_side = search.dst_side;
  int num_pairs = 0;
  for (int i = 0; i < src_side.num_choices; ++i) {
    const Run& src = src_side.choices[i];
    const bool shares_no_dim = (src.dims & dst_side.masks[dst_side.num_dims]) == 0;
    SourceRows rows;
    count_source_rows(search, src, &rows);
    const bool is_dense = rows.first_dim >= 0 && problem.src_strides[rows.first_dim] == src.bytes;
    for (int j = 0; j < dst_side.num_choices; ++j) {
      const Run& dst = dst_side.choices[j];
      if (contains(dst.whole_dims, src.cut) || contains(src.whole_dims, dst.cut)) continue;
      const bool shares_cut = src.cut >= 0 && src.cut == dst.cut;
      int64_t elements = rows.elements[dst.num_whole] * src.elements;
      if (!shares_cut) elements *= dst.block;
      else if (dst.block > src.block) elements = elements / src.block * dst.block;
      const int64_t bytes = problem.bytes_of(elements);
      if (bytes > max_bytes) {
        if (shares_no_dim) break;  // and so are all longer runs'
        continue;
      }
      const bool is_disjoint = shares_no_dim || (src.dims & dst.dims) == 0;
      if (is_disjoint && bytes < min_bytes) continue;
      if (shares_cut && src.block < dst.block && another_takes(src_side, i, dst.block)) continue;
      if (shares_cut && src.block > dst.block && another_takes(dst_side, j, src.block)) continue;
      const float least = least_cost(problem, src, dst, is_dense, is_disjoint, bytes);
      pairs[num_pairs++] = {static_cast<int8_t>(i), static_cast<int8_t>(j), least};
    }
  }
  return num_pairs;
}

// The cheapest tile of min_bytes to max_bytes; its cost is < 0 if there is none. Pairs are tried from the least cost on,
// and passed over where that is more than a tile's that is known.
Tile find_tile(const Search& search, const Device& device, int64_t min_bytes, int64_t max_bytes) {
  Pair pairs[max_choices * max_choices];
  int num_pairs = find_pairs(search, min_bytes, max_bytes, pairs);
  Tile tile, best;
  best.cost = -1;
  int best_pair = -1;
  const auto try_pair = [&](const Pair& pair) {
    if (!make_tile(search, device, pair.src, pair.dst, min_bytes, max_bytes, &tile)) return;
    const int place = pair.src * max_choices + pair.dst;
    if (best.cost >= 0 && (tile.cost > best.cost || (tile.cost == best.cost && place > best_pair))) return;
    best = tile;
    best_pair = place;
  };
  while (num_pairs > 0) {
    int num_left = 0, next = 0;
    for (int k = 0; k < num_pairs; ++k) {
      if (best.cost >= 0 && pairs[k].least_cost > best.cost) continue;
      pairs[num_left] = pairs[k];
      if (pairs[num_left].least_cost < pairs[next].least_cost) next = num_left;
      ++num_left;
    }
    if (num_left == 0) break;
    const Pair pair = pairs[next];
    pairs[next] = pairs[--num_left];
    num_pairs = num_left;
    try_pair(pair);
  }
  return best;
}

}  // namespace

void plan_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  // Where tiles of this size fill the GPU several times over, smaller ones are asked only if there is no other.
  constexpr int64_t usual_min_bytes = 6 * 1024;
  Search search;
  make_search(problem, &search);
  const bool is_large = search.num_bytes > static_cast<float>(32 * usual_min_bytes * device.num_multiprocessors);
  Tile best = find_tile(search, device, is_large ? usual_min_bytes : 0, max_tile_bytes);
  // Rows of several short dimensions may take twice the shared memory that a search counts.
  for (int64_t max_bytes = max_tile_bytes;; max_bytes /= 2) {
    if (best.cost < 0) best = find_tile(search, device, 0, max_bytes);
    if (best.cost < 0) return plan_strided_tile(problem, plan);
    if (build_tile(search.problem, best, search.src_side, search.dst_side, plan)) return;
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
      !build_tile(search.problem, tile, search.src_side, search.dst_side, plan))
    return TileCandidate::no_box;
  return TileCandidate::planned;
}

}  // namespace flowk
