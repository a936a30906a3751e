// SPDX-License-Identifier: Apache-2.0
// The pairs of runs that a tile may have, with lower bounds of their tiles' costs.
#include <array>

#include "permute/plan/tile/permute_tile_cost_terms.h"

namespace flowk::permute {
namespace {

constexpr float rounding = 1e-5f;  // the bounds add their terms in another order

// The lower bound of size_cost() for tiles of n to n + 1 KB.
using SizeCosts = std::array<float, max_tile_bytes / 1024 + 1>;
constexpr SizeCosts least_size_costs(const TileCosts& costs) {
  SizeCosts least = {};
  for (size_t n = 0; n < least.size(); ++n) {
    const float kb = static_cast<float>(n), next = static_cast<float>(n + 1);
    least[n] = costs.block / next;
    least[n] += n == 0 ? size_cost(costs, 0.5f) - costs.block / 0.5f : size_cost(costs, kb) - costs.block / kb;
  }
  return least;
}
constexpr SizeCosts size_costs_of_units = least_size_costs(unit_tile_costs);
constexpr SizeCosts size_costs_of_bytes = least_size_costs(byte_unit_tile_costs);

// The cost of a vector that a thread stores.
float least_item_cost(const PermuteProblem& problem, bool is_aligned) {
  const TileCosts& costs = tile_costs_of(problem);
  if (!is_aligned)
    return costs.store + static_cast<float>(vector_bytes / problem.dst_unit_bytes) * costs.element_gather;
  return problem.unit_bytes >= 4 ? costs.store
                                 : costs.store * static_cast<float>(problem.unit_bytes) / 4;  // several rows at once
}

// Consecutive choices of a side that differ only by their blocks, shorter ones first.
struct Groups {
  int count = 0;
  int begins[max_choices + 1];  // and the end of the last

  explicit Groups(const Side& side) {
    for (int i = 0; i < side.num_choices; ++i)
      if (i == 0 || side.choices[i].cut < 0 || side.choices[i].cut != side.choices[i - 1].cut) begins[count++] = i;
    begins[count] = side.num_choices;
  }
};

// Two runs that are cut along one dimension take the larger block. Does another pair make the same tile as the pair
// whose smaller block is choice `i`? No if `i` is the first of its group and the group has no block of that size.
bool another_takes(const Side& side, int i, int32_t larger_block) {
  const Run& run = side.choices[i];
  if (i > 0 && side.choices[i - 1].cut == run.cut) return true;
  for (; i < side.num_choices && side.choices[i].cut == run.cut; ++i)
    if (side.choices[i].block == larger_block) return true;
  return false;
}

struct PairLister {
  const PermuteProblem& problem;
  const Side& src_side;
  const Side& dst_side;
  const int64_t min_bytes, max_bytes;
  const SizeCosts& size_costs;
  PairList* const pairs;
  int64_t num_rows[max_tile_dims + 1];  // source rows of the first n dimensions of dst
  int num_row_strides;
  int64_t row_strides[max_tile_dims];

  void list() {
    const Groups src_groups(src_side), dst_groups(dst_side);
    for (int s = 0; s < src_groups.count; ++s) {
      count_rows(src_side.choices[src_groups.begins[s]].dims);
      for (int d = 0; d < dst_groups.count; ++d)
        list_groups(src_groups.begins[s], src_groups.begins[s + 1], dst_groups.begins[d], dst_groups.begins[d + 1]);
    }
  }

  void count_rows(uint64_t src_dims) {
    num_rows[0] = 1;
    num_row_strides = 0;
    for (int n = 0; n < dst_side.num_dims; ++n) {
      const int d = dst_side.dims[n];
      const bool is_row = !contains(src_dims, d);
      num_rows[n + 1] = num_rows[n] * (is_row ? problem.extents[d] : 1);
      if (is_row) row_strides[num_row_strides++] = problem.src_strides[d];
    }
  }

  void list_groups(int src_begin, int src_end, int dst_begin, int dst_end) {
    const Run& first_src = src_side.choices[src_begin];
    const Run& first_dst = dst_side.choices[dst_begin];
    if (contains(first_dst.whole_dims, first_src.cut) || contains(first_src.whole_dims, first_dst.cut)) return;
    const bool shares_cut = first_src.cut >= 0 && first_src.cut == first_dst.cut;
    const bool is_disjoint = (first_src.dims & first_dst.dims) == 0;
    const int64_t least_bytes = is_disjoint ? min_bytes : 0;
    const int64_t rows = num_rows[first_dst.num_whole];
    if (problem.bytes_of(rows * first_src.elements) > max_bytes) return;
    for (int i = src_begin; i < src_end; ++i) {
      const Run& src = src_side.choices[i];
      // Source rows that lie one after the other in src are loaded as one, except by aligned_tile.
      const int64_t* const begin = row_strides;
      const bool is_dense = std::find(begin, begin + num_row_strides, src.bytes) != begin + num_row_strides;
      const float src_cost = src.least_cost - (is_dense ? src.run_cost : 0);
      const int64_t elements = rows * src.elements;
      for (int j = dst_begin; j < dst_end; ++j) {
        const Run& dst = dst_side.choices[j];
        if (shares_cut) {
          list_shared_cut(i, j, src_cost, elements);
          continue;
        }
        const int64_t tile_bytes = problem.bytes_of(elements * dst.block);
        if (tile_bytes > max_bytes) break;
        if (tile_bytes < least_bytes) continue;
        if (is_disjoint && is_byte_tile(problem, src, dst)) {
          add(i, j, least_byte_tile_cost(src, is_dense, dst) - rounding);
          continue;
        }
        const bool is_aligned = is_disjoint && src.fills_vectors && dst.fills_vectors;
        add(i, j,
            src_cost + dst.least_cost + (is_aligned ? dst.aligned_stores : dst.gathered_stores) +
                size_costs[static_cast<size_t>(tile_bytes) / 1024]);
      }
    }
  }

  // Both sides take the larger block. The bound has the costs of that side, and padding once.
  void list_shared_cut(int i, int j, float src_cost, int64_t elements) {
    const Run& src = src_side.choices[i];
    const Run& dst = dst_side.choices[j];
    if (dst.block > src.block) elements = elements / src.block * dst.block;
    const int64_t bytes = problem.bytes_of(elements);
    if (bytes > max_bytes) return;
    if (src.block < dst.block && another_takes(src_side, i, dst.block)) return;
    if (src.block > dst.block && another_takes(dst_side, j, src.block)) return;
    const TileCosts& costs = tile_costs_of(problem);
    const float size_cost = size_costs[static_cast<size_t>(bytes) / 1024];
    const float dst_cost = dst.least_cost - costs.padding * (dst.padding - 1);
    if (src.block == dst.block)
      add(i, j, src_cost + dst_cost + dst.gathered_stores + size_cost);
    else
      add(i, j, size_cost + (src.block > dst.block ? src_cost : costs.copy - rounding + dst_cost));
  }

  void add(int i, int j, float least_cost) {
    pairs->pairs[pairs->num_pairs++] = {static_cast<int16_t>(i), static_cast<int16_t>(j), least_cost};
  }
};

}  // namespace

void set_least_costs(const PermuteProblem& problem, Side* src_side, Side* dst_side) {
  const TileCosts& costs = tile_costs_of(problem);
  const float bytes_per_element = static_cast<float>(problem.unit_bytes + problem.dst_unit_bytes) / 2;
  constexpr float vectors_per_kb = 1024.0f / (tile_threads * vector_bytes);  // that a thread has of 1 KB
  const float unaligned_load =
      costs.unaligned_load * vectors_per_kb * static_cast<float>(problem.unit_bytes) / bytes_per_element;
  for (int i = 0; i < src_side->num_choices; ++i) {
    Run& run = src_side->choices[i];
    run.run_cost = src_run_cost(costs, run, run.bytes);
    if (run.alignment < vector_bytes) run.run_cost += unaligned_load;
    run.least_cost = costs.copy - rounding + costs.padding * (run.padding - 1) + run.run_cost;
  }
  const int32_t elements_per_vector = vector_bytes / problem.dst_unit_bytes;
  const float vectors_of_element = static_cast<float>(elements_per_vector) * vectors_per_kb *
                                   static_cast<float>(problem.dst_unit_bytes) / bytes_per_element;
  const float aligned_item = least_item_cost(problem, true), gathered_item = least_item_cost(problem, false);
  for (int j = 0; j < dst_side->num_choices; ++j) {
    Run& run = dst_side->choices[j];
    const int32_t vectors = ceil_div32(run.bytes, vector_bytes), per_group = vectors_per_group_of(vectors);
    const float stores = static_cast<float>(ceil_div32(vectors, per_group) * per_group) /
                         static_cast<float>(run.elements) * vectors_of_element;
    float cost = dst_run_cost(costs, store_alignment(run), run.bytes);
    if (run.alignment < vector_bytes)
      cost += costs.partial_store * std::min(1.0f, 128.0f / static_cast<float>(run.bytes)) *
              static_cast<float>(elements_per_vector) * stores;
    if (run.is_cut() && run.alignment < sector_bytes) {
      const float halo = static_cast<float>(halo_elements(problem, run.fills_vectors));
      cost = std::min(cost, dst_run_cost(costs, static_cast<int32_t>(sector_bytes), run.bytes) +
                                costs.halo * halo / static_cast<float>(run.elements));
    }
    run.least_cost = costs.padding * (run.padding - 1) + cost;
    run.aligned_stores = aligned_item * stores;
    run.gathered_stores = gathered_item * stores;
  }
  if (moves_bytes(problem)) set_least_byte_tile_costs(src_side, dst_side);
}

void list_pairs(const PermuteProblem& problem, const Side& src_side, const Side& dst_side, int64_t min_bytes,
                int64_t max_bytes, PairList* list) {
  list->num_pairs = 0;
  const SizeCosts& size_costs = moves_bytes(problem) ? size_costs_of_bytes : size_costs_of_units;
  PairLister{problem, src_side, dst_side, min_bytes, max_bytes, size_costs, list, {}, 0, {}}.list();
}

}  // namespace flowk::permute
