// SPDX-License-Identifier: Apache-2.0
// The choice of a tile: candidates for the run of src and of dst, an estimate of the time of every pair, and the
// cheapest pair.
#include <array>
#include <bit>

#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// The most tiles that are built; the best of them is taken. Measured: see hidden_wavefronts in the tuning data.
constexpr int max_built_tiles = 3;

// byte_tile: the least bytes of a tile of cut runs; the bytes that a small tile of whole runs is filled up to; and the
// bytes below which it is small. None is measured.
constexpr int64_t min_cut_byte_tile_bytes = 2048, filled_byte_tile_bytes = 8192, small_byte_tile_bytes = 6144;
constexpr int64_t max_byte_tile_words = max_words_per_item * max_items_per_thread * tile_threads;

// The estimated pitch of source rows in shared memory: exact if rows have one dimension.
int64_t pitch_of(const TileSearch& search, const Tile& tile, bool is_aligned) {
  const Run& src = tile.src;
  int row_dim = -1;  // the first dimension of the source rows
  for (int i = tile.dst.num_dims() - 1; i >= 0; --i)
    if (!contains(src.dims, search.dst.dims[i])) row_dim = search.dst.dims[i];
  if (row_dim < 0 || tile.dense_rows > 1) return src.bytes;
  const int64_t stride = search.problem.src_strides[row_dim];
  bool is_congruent = false;
  if (is_aligned) return swizzled_pitch(src.bytes, stride, src.alignment, &is_congruent);
  for (int64_t modulus = line_bytes;; modulus /= 2) {
    const int64_t pitch = congruent_pitch(src.bytes, stride, src.alignment >= vector_bytes, modulus);
    if (pitch * 100 <= src.bytes * max_congruent_percent || modulus == vector_bytes) return pitch;
  }
}

// Finds the destination runs that lie one after the other in dst.
void find_join(const TileSearch& search, Tile* tile) {
  const Run& src = tile->src;
  if (tile->dst.is_cut()) return;
  for (int i = 0; i < std::min(src.num_dims(), 2); ++i) {
    const int d = search.src.dims[i];
    if (search.problem.dst_strides[d] != tile->dst.bytes || (i == 1 && src.num_dims() > 2)) continue;
    tile->join_dim = d;
    tile->join_extent = d == src.cut ? src.slice : static_cast<int32_t>(search.problem.extents[d]);
  }
}

// Is a tile of these two runs a byte_tile? A row of joined runs has at least a line.
bool is_byte_tile(const PermuteProblem& problem, const Tile& tile) {
  return tile.is_disjoint() && !(tile.src.fills_vectors && tile.dst.fills_vectors) &&
         tile.src.bytes >= min_byte_tile_run_bytes &&
         tile.dst.bytes * tile.join_extent >= (tile.join_dim < 0 ? vector_bytes : line_bytes) &&
         byte_tile_words(tile.src.bytes, tile.dst.elements) <= max_byte_tile_words &&
         (!(tile.src.is_cut() || tile.dst.is_cut()) || problem.bytes_of(tile.elements) >= min_cut_byte_tile_bytes);
}

// A small byte_tile of whole runs takes indices of one further dimension.
void find_batch(const TileSearch& search, Tile* tile) {
  const PermuteProblem& problem = search.problem;
  if (tile->src_cut >= 0 || tile->dst_cut >= 0) return;
  if (std::max(tile->src.num_dims(), tile->dst.num_dims()) >= max_tile_dims) return;  // rows have no room for another
  if (tile->join_dim >= 0 && tile->join_dim != search.src.dims[0]) return;  // columns have two dimensions already
  const int64_t bytes = problem.bytes_of(tile->elements);
  for (int d = problem.rank - 1; d >= 0 && bytes < std::min(small_byte_tile_bytes, tile->min_bytes); --d) {
    if (contains(tile->src.dims | tile->dst.dims, d)) continue;
    const int64_t words = byte_tile_words(tile->src.bytes, tile->dst.elements);
    const int64_t indices =
        std::min({problem.extents[d], ceil_div(std::min(filled_byte_tile_bytes, tile->min_bytes), bytes),
                  max_byte_tile_words / words});
    if (indices < 2) return;
    tile->batch_dim = d;
    tile->batch = static_cast<int32_t>(indices);
    tile->elements *= indices;
    tile->shared_bytes *= indices;
    return;
  }
}

// Makes the tile of two runs; false if they make no box of at most max_tile_bytes.
bool join(const TileSearch& search, const Run& src, const Run& dst, Tile* tile) {
  const PermuteProblem& problem = search.problem;
  if (contains(dst.whole_dims, src.cut) || contains(src.whole_dims, dst.cut)) return false;
  const bool is_disjoint = (src.dims & dst.dims) == 0;
  // Most pairs end here.
  if (is_disjoint && problem.bytes_of(int64_t{src.elements} * dst.elements) > max_tile_bytes) return false;
  *tile = {};
  tile->src = src;
  tile->dst = dst;
  tile->src_cut = src.cut;
  tile->dst_cut = dst.cut;
  if (src.cut >= 0 && src.cut == dst.cut && src.slice != dst.slice) {
    // One dimension, one slice: the larger.
    if (src.slice < dst.slice)
      set_run(problem, search.src, src.num_whole, dst.slice, &tile->src);
    else
      set_run(problem, search.dst, dst.num_whole, src.slice, &tile->dst);
  }
  // Source rows: the dimensions that only the destination run has.
  const auto indices_in = [&](const Run& run, int d) {
    return d == run.cut ? run.slice : static_cast<int32_t>(problem.extents[d]);
  };
  int64_t src_rows = 1;
  for (int i = 0; i < dst.num_dims(); ++i)
    if (!contains(src.dims, search.dst.dims[i])) src_rows *= indices_in(dst, search.dst.dims[i]);
  tile->src_rows = static_cast<int32_t>(src_rows);
  tile->elements = src_rows * tile->src.elements;
  if (moves_bytes(problem)) {
    find_join(search, tile);
    tile->is_byte_tile = is_byte_tile(problem, *tile);
  }
  const bool fills_vectors = problem.has_aligned_tile && is_disjoint && src.fills_vectors && dst.fills_vectors;
  if (!fills_vectors) {
    // The first dimension of the source rows: do they lie one after the other?
    for (int i = tile->dst.num_dims() - 1; i >= 0; --i) {
      const int d = search.dst.dims[i];
      if (contains(tile->src.dims, d)) continue;
      tile->dense_rows = are_dense(problem, tile->src, d) ? indices_in(tile->dst, d) : 1;
    }
  }
  tile->shared_bytes = src_rows * pitch_of(search, *tile, fills_vectors);
  if (!fills_vectors) {
    if (tile->dst.num_dims() > 1) tile->shared_bytes += int64_t{sizeof(RunTableEntry)} * tile->dst.period;
    tile->shared_bytes += dst_row_bytes * (tile->elements / tile->dst.elements);
  }
  if (tile->is_byte_tile && tile->dense_rows == 1) {
    for (int i = 0; i < tile->dst.num_dims(); ++i)
      if (are_dense(problem, tile->src, search.dst.dims[i]))
        tile->dense_rows = indices_in(tile->dst, search.dst.dims[i]);
  }
  return problem.bytes_of(tile->elements) <= max_tile_bytes && tile->shared_bytes <= max_shared_bytes;
}

// Reverses each dimension that runs downwards in dst and is not in src's run. A dimension that is innermost in dst and
// not in src is also reversed: src's run then ends before it.
void flip_down_dims(Chain* src, PermuteProblem* problem) {
  for (int d = 0; d < problem->rank; ++d) {
    if (problem->dst_strides[d] >= 0) continue;
    const int at = static_cast<int>(std::find(src->dims, src->dims + src->num_dims, d) - src->dims);
    const bool is_dst_innermost = problem->dst_strides[d] == -int64_t{problem->dst_unit_bytes};
    if (at < src->num_dims && !(is_dst_innermost && at > 0)) continue;
    src->num_dims = std::min(src->num_dims, at);
    problem->src += problem->src_strides[d] * (problem->extents[d] - 1);
    problem->dst += problem->dst_strides[d] * (problem->extents[d] - 1);
    problem->src_strides[d] = -problem->src_strides[d];
    problem->dst_strides[d] = -problem->dst_strides[d];
  }
}

void make_search(const PermuteProblem& given, const Device& device, TileSearch* search) {
  search->device = device;
  search->problem = given;
  PermuteProblem& problem = search->problem;
  search->src.strides = problem.src_strides;
  search->src.unit_bytes = problem.unit_bytes;
  search->dst.strides = problem.dst_strides;
  search->dst.unit_bytes = problem.dst_unit_bytes;
  find_chain(problem, &search->src);
  flip_down_dims(&search->src, &problem);
  find_chain(problem, &search->dst);
  search->src.pointer = problem.src;
  search->dst.pointer = problem.dst;
  for (int d = 0; d < problem.rank; ++d) search->num_elements *= static_cast<float>(problem.extents[d]);
  search->num_bytes = search->num_elements * static_cast<float>(problem.unit_bytes + problem.dst_unit_bytes) / 2;
  find_choices(problem, 0, &search->src);
  find_choices(problem, sector_bytes - problem.dst_unit_bytes, &search->dst);
}

constexpr AllTileCosts tuned_costs = {unit_tile_costs, byte_unit_tile_costs, converted_tile_costs, byte_tile_costs};

bool make_tile(const TileSearch& search, int src_choice, int dst_choice, Tile* tile,
               const AllTileCosts& costs = tuned_costs) {
  if (!join(search, search.src.choices[src_choice], search.dst.choices[dst_choice], tile)) return false;
  // Tiles below this size take further dimensions: 8 KB, or less if an SM would have fewer than two tiles. Not
  // measured.
  constexpr float small_tile_bytes = 8 * 1024;
  tile->min_bytes = static_cast<int64_t>(
      std::min(small_tile_bytes, search.num_bytes / static_cast<float>(2 * search.device.num_multiprocessors)));
  if (tile->is_byte_tile) find_batch(search, tile);
  estimate_tile(search, costs, tile);
  return true;
}

// The cheapest tile that costs more than `above`, of equal ones the first; its cost is < 0 if there is none.
Tile find_tile(const TileSearch& search, float above) {
  Tile tile, best;
  best.cost = -1;
  for (int src = 0; src < search.src.num_choices; ++src)
    for (int dst = 0; dst < search.dst.num_choices; ++dst)
      if (make_tile(search, src, dst, &tile) && tile.cost > above && (best.cost < 0 || tile.cost < best.cost))
        best = tile;
  return best;
}

}  // namespace

void plan_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  TileSearch search;
  make_search(problem, device, &search);
  // Tiles are built from the cheapest on, until one costs as much as was estimated: all others cost more. A tile that
  // moves bytes costs more if it has bank conflicts. A tile of several short dimensions may need twice the shared
  // memory that was estimated, and not fit.
  float above = 0, best_cost = FLT_MAX;
  for (int num_built = 0; num_built < max_built_tiles;) {
    const Tile tile = find_tile(search, above);
    if (tile.cost < 0 || tile.cost >= best_cost) break;
    above = tile.cost;
    PermutePlan built = *plan;
    if (!build_tile(search, tile, &built)) continue;
    ++num_built;
    const float cost = built.predicted_cost();
    if (cost < best_cost) *plan = built;
    best_cost = std::min(best_cost, cost);
    if (cost == tile.cost) break;
  }
  if (best_cost == FLT_MAX) plan_strided_tile(problem, device, plan);
}

TileCandidate plan_tile_candidate(const PermuteProblem& problem, const Device& device, int src_choice, int dst_choice,
                                  PermutePlan* plan) {
  TileSearch search;
  make_search(problem, device, &search);
  if (src_choice >= search.src.num_choices || dst_choice >= search.dst.num_choices) return TileCandidate::out_of_range;
  Tile tile;
  const bool is_planned = make_tile(search, src_choice, dst_choice, &tile) && build_tile(search, tile, plan);
  return is_planned ? TileCandidate::planned : TileCandidate::no_box;
}

// If one cost is 1 and all others are 0, the tile's cost is the number that this one is multiplied by.
std::vector<float> tile_terms(const PermuteProblem& problem, const Device& device, int src_choice, int dst_choice) {
  TileSearch search;
  make_search(problem, device, &search);
  Tile tile;
  std::vector<float> terms;
  const auto add_terms = [&](auto zero, const auto& set) {
    using Costs = decltype(zero);
    std::array<float, sizeof(Costs) / sizeof(float)> costs{};
    for (float& cost : costs) {
      cost = 1;
      AllTileCosts all{};
      set(std::bit_cast<Costs>(costs), &all);
      if (make_tile(search, src_choice, dst_choice, &tile, all)) terms.push_back(tile.cost);
      cost = 0;
    }
  };
  if (make_tile(search, src_choice, dst_choice, &tile) && tile.is_byte_tile)
    add_terms(ByteTileCosts{}, [](const ByteTileCosts& costs, AllTileCosts* all) { all->byte_tile = costs; });
  else
    add_terms(TileCosts{},
              [](const TileCosts& costs, AllTileCosts* all) { all->units = all->byte_units = all->converted = costs; });
  return terms;
}

std::vector<RankedTile> rank_tiles(const PermuteProblem& problem, const Device& device) {
  TileSearch search;
  make_search(problem, device, &search);
  std::vector<RankedTile> tiles;
  Tile tile;
  for (int src = 0; src < search.src.num_choices; ++src)
    for (int dst = 0; dst < search.dst.num_choices; ++dst)
      if (make_tile(search, src, dst, &tile)) tiles.push_back({src, dst, tile.cost});
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const RankedTile& a, const RankedTile& b) { return a.cost < b.cost; });
  return tiles;
}

}  // namespace flowk::permute
