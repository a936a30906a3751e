// SPDX-License-Identifier: Apache-2.0
// From a chosen tile to kernel parameters: the grid, the rows and the vectors of the store.
#include "permute/plan/permute_tuning.h"
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

void set_row_dim(TileRowDim* dim, int64_t extent, int64_t shared_step, int64_t stride) {
  dim->divider = Divider(static_cast<uint32_t>(extent));
  dim->shared_step = static_cast<int32_t>(shared_step);
  dim->stride = stride;
}

// The dimension along which source rows of neighbouring tiles share a line of src; -1: none. Memory is read in halves
// of a line, so the next tile reads a shared half again unless it is still in the L2.
int dim_that_shares_lines(const PermuteProblem& problem, const Tile& tile) {
  if (tile.src.alignment >= line_bytes / 2) return -1;
  if (tile.src_cut >= 0) return tile.src_cut;
  return static_cast<int>(std::find(problem.src_strides, problem.src_strides + problem.rank, tile.src.bytes) -
                          problem.src_strides);
}

void set_grid(const PermuteProblem& problem, const TileLayout& layout, TilePlan* plan) {
  TileParams& params = plan->tile;
  const Tile& tile = layout.tile;
  params.src = problem.src;
  params.dst = problem.dst;
  params.src_end = problem.src_end;
  params.halo = static_cast<int32_t>(tile.halo);
  if (tile.halo > 0) params.src -= tile.halo * problem.src_strides[tile.dst_cut];
  plan->launch.num_blocks = 1;
  int64_t tiles[max_rank];
  bool is_entered[max_rank] = {};
  for (int d = 0; d < problem.rank; ++d)
    tiles[d] = ceil_div(problem.extents[d] + (d == tile.dst_cut ? tile.halo : 0), tile.blocks[d]);
  const auto enter = [&](int d) {
    if (tiles[d] == 1 || is_entered[d]) return;
    is_entered[d] = true;
    GridDim& dim = params.grid[params.grid_rank++];
    dim.divider = Divider(static_cast<uint32_t>(tiles[d]));
    dim.src_step = tile.blocks[d] * problem.src_strides[d];
    dim.dst_step = tile.blocks[d] * problem.dst_strides[d];
    dim.src_blocks = d == tile.src_cut;
    dim.dst_blocks = d == tile.dst_cut;
    plan->launch.num_blocks *= tiles[d];
  };
  // Neighbouring tiles are neighbours in dst. Tiles that share lines of src come while the L2 has those lines.
  const int sharing_dim = dim_that_shares_lines(problem, tile);
  for (int d = problem.rank - 1; d >= 0; --d) {
    const int64_t bytes = 2 * problem.bytes_of(tile.elements) * plan->launch.num_blocks * tiles[d];
    if (sharing_dim >= 0 && sharing_dim < problem.rank && bytes > tile_order_kept_bytes) enter(sharing_dim);
    enter(d);
  }
  if (tile.src_cut >= 0) {
    const int64_t blocks = tiles[tile.src_cut];
    params.num_src_blocks = static_cast<int32_t>(blocks);
    params.src_block = static_cast<int32_t>(tile.blocks[tile.src_cut]);
    params.src_last_block =
        static_cast<int32_t>(problem.extents[tile.src_cut] - (blocks - 1) * tile.blocks[tile.src_cut]);
  }
  if (tile.dst_cut >= 0) {
    const int d = tile.dst_cut;
    params.num_dst_blocks = static_cast<int32_t>(tiles[d]);
    params.dst_block = static_cast<int32_t>(tile.blocks[d]);
    const auto end_of = [&](int64_t block) {
      return static_cast<int32_t>(std::min(tile.blocks[d], problem.extents[d] - block * tile.blocks[d]) + tile.halo);
    };
    params.dst_last_end = end_of(tiles[d] - 1);
    params.dst_second_last_end = end_of(tiles[d] - 2);
  }
}

void set_src_pass(TileParams* params) {
  const TileRowDim &inner = params->src_row_dims[0], &outer = params->src_row_dims[1];
  const uint32_t rows = params->src_rows_per_pass;
  TileRowPass& pass = params->src_pass;
  pass.innermost = rows;
  pass.step = rows * inner.stride;
  pass.shared_step = static_cast<int32_t>(rows) * inner.shared_step;
  if (params->src_row_rank != 2) return;
  const uint32_t extent = inner.divider.divisor, outer_indices = rows / extent;
  pass.end = extent;
  pass.innermost = rows % extent;
  pass.step = pass.innermost * inner.stride + outer_indices * outer.stride;
  pass.shared_step = static_cast<int32_t>(pass.innermost) * inner.shared_step +
                     static_cast<int32_t>(outer_indices) * outer.shared_step;
  pass.wrap_step = outer.stride - extent * inner.stride;
  pass.wrap_shared_step = outer.shared_step - static_cast<int32_t>(extent) * inner.shared_step;
}

TileCount count_of(int64_t total, int64_t block, bool is_cut, TileCount::Cut cut) {
  return is_cut ? TileCount{static_cast<int32_t>(total / block), cut, 0}
                : TileCount{static_cast<int32_t>(total), TileCount::whole, 0};
}

// The rows of both sides, and their number in a tile at the tensor's edge.
void set_rows(const PermuteProblem& problem, const TileLayout& layout, int64_t run_elements, TilePlan* plan) {
  TileParams& params = plan->tile;
  const Tile& tile = layout.tile;
  const int64_t src_block = tile.src_cut >= 0 ? tile.blocks[tile.src_cut] : 1;
  const int64_t dst_block = tile.dst_cut >= 0 ? tile.blocks[tile.dst_cut] + tile.halo : 1;
  const bool both = layout.shared_row_cut >= 0;
  const bool same = tile.src_cut >= 0 && tile.src_cut == tile.dst_cut;
  const int64_t run_bytes = run_elements * problem.unit_bytes;
  const int64_t num_rows = layout.src_rows.count / layout.dense_rows;
  const int num_merged = layout.dense_rows > 1 ? 1 : 0;  // dimensions of the source rows
  if (num_merged > 0 && layout.src_rows.dims[0] == tile.dst_cut) {
    params.src_run_bytes = {static_cast<int32_t>(run_bytes), TileCount::of_dst_cut, 0};
    params.src_rows = count_of(num_rows, 1, false, TileCount::whole);
  } else {
    params.src_run_bytes =
        count_of(run_bytes * layout.dense_rows, src_block, tile.src_cut >= 0 && !both, TileCount::of_src_cut);
    params.src_rows = both ? count_of(num_rows, src_block, true, TileCount::of_src_cut)
                           : count_of(num_rows, dst_block, tile.dst_cut >= 0 && !same, TileCount::of_dst_cut);
  }
  params.dst_rows = count_of(layout.dst_rows.count, src_block, tile.src_cut >= 0 && !same, TileCount::of_src_cut);
  params.src_row_rank = layout.src_rows.rank - num_merged;
  for (int i = num_merged; i < layout.src_rows.rank; ++i)
    set_row_dim(&params.src_row_dims[i - num_merged], layout.src_rows.extents[i], layout.row_steps[i],
                problem.src_strides[layout.src_rows.dims[i]]);
  params.src_tile_bytes = run_bytes + vector_bytes;
  for (int i = 0; i < layout.src_rows.rank; ++i)
    params.src_tile_bytes +=
        std::max<int64_t>(problem.src_strides[layout.src_rows.dims[i]], 0) * (layout.src_rows.extents[i] - 1);
  params.dst_row_rank = layout.dst_rows.rank;
  for (int i = 0; i < layout.dst_rows.rank; ++i) {
    const int dim = layout.dst_rows.dims[i];
    const int64_t shared_step =
        contains(tile.src.dims, dim) ? problem.src_strides[dim] : layout.row_steps[layout.src_rows.find(dim)];
    set_row_dim(&params.dst_row_dims[i], layout.dst_rows.extents[i], shared_step, problem.dst_strides[dim]);
  }
  params.num_dst_rows = Divider(static_cast<uint32_t>(layout.dst_rows.count));
  params.shift_mask = static_cast<uint32_t>(layout.shift_mask);
  params.skipped_elements = static_cast<int32_t>(layout.skipped_elements);
  params.skipped_src_rows = static_cast<int32_t>(layout.skipped_elements / layout.dense_rows);
  params.shared_lead_bytes = -static_cast<int32_t>(layout.skipped_bytes);
  plan->unit_bytes = problem.unit_bytes;
  plan->launch.num_threads = tile_threads;
}

// The vectors of a destination row: their granule, their number, and those that neighbouring threads store.
void set_vectors(const PermuteProblem& problem, const Tile& tile, TilePlan* plan) {
  TileParams& params = plan->tile;
  const int64_t run_bytes = tile.dst.bytes;
  int64_t vectors = 0;
  params.window_start_bytes = params.halo * tile.dst.per_index * problem.dst_unit_bytes;
  params.window_bytes = tile.dst.bytes;
  params.window_end = tile.dst.elements + params.halo * tile.dst.per_index;
  if (tile.halo > 0 && plan->kernel == PermuteKernel::aligned_tile) {
    params.window_mask = sector_bytes - 1;
    vectors = run_bytes / vector_bytes + 1;  // of either row's window: half a sector more
  } else if (tile.halo > 0) {
    params.dst_granule = sector_bytes;
    params.window_mask = sector_bytes - 1;
    const bool is_whole = run_bytes % sector_bytes == 0;  // ends as far inside a granule as it starts
    vectors = ceil_div(run_bytes + (is_whole ? 0 : sector_bytes - problem.dst_unit_bytes), vector_bytes);
  } else {
    const bool aligned = tile.dst.alignment >= vector_bytes;
    params.dst_granule = aligned ? vector_bytes : run_bytes >= 4 * line_bytes ? line_bytes : sector_bytes;
    vectors = ceil_div(run_bytes + (aligned ? 0 : params.dst_granule - problem.dst_unit_bytes), vector_bytes);
  }
  const int64_t per_group = vectors_per_group_of(static_cast<int32_t>(vectors));
  set_vectors_per_group(vectors, per_group, plan->launch.num_threads, &params);
}

// aligned_tile: elements of one 32-bit word of src are in neighbouring destination rows; one thread stores them all.
void group_dst_rows(const PermuteProblem& problem, const TileLayout& layout, TilePlan* plan) {
  if (problem.unit_bytes >= 4) return;
  TileParams& params = plan->tile;
  const int32_t log2_rows = problem.unit_bytes == 1 ? 2 : 1;
  TileRowDim& innermost = params.dst_row_dims[0];
  params.dst_row_step = innermost.stride;
  set_row_dim(&innermost, layout.dst_rows.extents[0] >> log2_rows,
              static_cast<int64_t>(innermost.shared_step) << log2_rows, innermost.stride * (int64_t{1} << log2_rows));
  params.dst_rows.shift = log2_rows;
  params.num_dst_rows = Divider(params.num_dst_rows.divisor >> log2_rows);
}

// Does dimension `i` of the destination run step on where the one before it ends?
bool steps_evenly(const TileParams& params, int i) {
  const TileTableDim& inner = params.table[i - 1];
  return params.table[i].shared_step == int64_t{inner.shared_step} * inner.divider.divisor;
}

// The dimensions of the destination run, or one if they step evenly.
void set_table_dims(const PermuteProblem& problem, const TileLayout& layout, const Side& dst_side, TilePlan* plan) {
  TileParams& params = plan->tile;
  const Tile& tile = layout.tile;
  params.table_rank = tile.dst.num_dims();
  bool is_even = true;
  for (int i = 0; i < params.table_rank; ++i) {
    const int dim = dst_side.dims[i];
    const int at = layout.src_rows.find(dim);
    const int64_t step = at < layout.src_rows.rank ? layout.row_steps[at] : problem.src_strides[dim];
    params.table[i].divider = Divider(static_cast<uint32_t>(indices_of(tile, dim)));
    params.table[i].shared_step = static_cast<int32_t>(step);
    if (i > 0) is_even &= steps_evenly(params, i);
  }
  params.run_pitch = params.table[0].shared_step;
  if (is_even) params.table_rank = 1;
}

// The offset of element e of the destination run: e * run_pitch if its dimensions step evenly, by a table otherwise.
// The table has one period, an index of the outermost dimension; dimensions that step evenly count as one.
void set_run_offsets(int32_t dst_unit_bytes, TilePlan* plan) {
  constexpr int64_t entries_per_vector = vector_bytes / sizeof(TileTableEntry);
  TileParams& params = plan->tile;
  if (params.table_rank == 1) {
    params.table_rank = 0;
    return;
  }
  int outermost = params.table_rank - 1;
  while (steps_evenly(params, outermost)) --outermost;  // the run as a whole does not
  uint32_t period = 1;
  for (int i = 0; i < outermost; ++i) period *= params.table[i].divider.divisor;
  params.table_rank = outermost + 1;
  params.table_period = Divider(period);
  params.period_step = params.table[outermost].shared_step;
  params.num_table_entries = period + static_cast<uint32_t>(vector_bytes / dst_unit_bytes - 1);
  params.table_offset_bytes = plan->launch.shared_bytes;
  // Read in aligned packs of up to a vector.
  const int64_t entries = round_up(params.num_table_entries + entries_per_vector, entries_per_vector);
  plan->launch.shared_bytes += static_cast<int32_t>(static_cast<int64_t>(sizeof(TileTableEntry)) * entries);
}

// Neighbouring threads gather vectors whose first elements are a vector's elements apart: so many source rows share a
// key. Where fewer than 8 neighbours are in one row, the keys leave room for the other rows, a vector apart in src.
void swizzle_rows(int32_t mask, int32_t dst_unit_bytes, TileParams* params) {
  const int32_t neighbours = static_cast<int32_t>(params->vectors_per_group.divisor);
  const int32_t step = mask < 7 ? 1 : neighbours <= 2 ? 4 : neighbours <= 4 ? 2 : 1;
  params->swizzle_shift = __builtin_ctz(static_cast<unsigned>(vector_bytes / dst_unit_bytes));
  params->swizzle_step = static_cast<uint32_t>(step * vector_bytes);
  params->swizzle_bits = static_cast<int32_t>(mask * vector_bytes);
}

// Shared memory for the tile's offsets, behind all else.
void add_tile_offsets(TilePlan* plan) {
  const int64_t offset = round_up(plan->launch.shared_bytes, tile_offsets_bytes);
  plan->tile.tile_offsets_offset_bytes = static_cast<int32_t>(offset);
  plan->launch.shared_bytes = static_cast<int32_t>(offset + tile_offsets_bytes);
}

template <class Mechanism>
Mechanism& finish_plan(const TilePlan& built, PermutePlan* plan) {
  plan->unit_bytes = built.unit_bytes;
  plan->launch = built.launch;
  Mechanism& mechanism = plan->mechanism.emplace<Mechanism>();
  mechanism.params = built.tile;
  return mechanism;
}

}  // namespace

void set_vectors_per_group(int64_t vectors, int64_t per_group, int num_threads, TileParams* params) {
  const int64_t groups = ceil_div(vectors, per_group);
  params->vectors_per_group = Divider(static_cast<uint32_t>(per_group));
  params->num_store_vectors = static_cast<uint32_t>(groups * per_group);
  params->store_items_per_pass = static_cast<uint32_t>(num_threads / per_group);
  params->store_pass_vectors =
      params->store_items_per_pass / params->num_dst_rows.divisor * static_cast<uint32_t>(per_group);
  params->store_pass_rows = params->store_items_per_pass % params->num_dst_rows.divisor;
}

bool build_tile(const PermuteProblem& problem, const Device& device, const Tile& tile, const Side& src_side,
                const Side& dst_side, PermutePlan* result) {
  TilePlan built;
  built.launch.uses_pdl = device.runs_pdl();
  TilePlan* const plan = &built;
  TileLayout layout;
  layout.tile = tile;
  for (int d = 0; d < problem.rank; ++d)
    layout.tile.blocks[d] = contains(tile.src.whole_dims | tile.dst.whole_dims, d) ? problem.extents[d] : 1;
  if (tile.src_cut >= 0) layout.tile.blocks[tile.src_cut] = tile.src.block;
  if (tile.dst_cut >= 0) layout.tile.blocks[tile.dst_cut] = tile.dst.block;
  find_rows(problem, src_side.dims, tile.src.num_dims(), dst_side.dims, tile.dst.num_dims(), &layout);
  const bool src_is_aligned = tile.src.alignment >= vector_bytes;
  place_rows(problem, dst_side, &layout);
  if (layout.span_bytes > max_tile_span_bytes) return false;
  set_grid(problem, layout, plan);
  set_rows(problem, layout, tile.src.elements, plan);
  TileParams& params = plan->tile;
  const int64_t per_index = tile.dst.per_index;
  params.dst_run_elements = tile.dst_cut >= 0 ? TileCount{static_cast<int32_t>(per_index), TileCount::of_dst_cut, 0}
                                              : TileCount{static_cast<int32_t>(tile.dst.elements), TileCount::whole, 0};
  const int64_t vectors_per_row =
      ceil_div(tile.src.bytes * layout.dense_rows + (src_is_aligned ? 0 : vector_bytes - 1), vector_bytes);
  if (layout.tile.is_byte_tile)
    plan->launch.num_threads =
        byte_tile_threads_of(byte_tile_items(tile.src.bytes, tile.dst.elements + tile.halo * per_index));
  const int num_threads = plan->launch.num_threads;
  params.vectors_per_src_row = Divider(static_cast<uint32_t>(std::min<int64_t>(vectors_per_row, num_threads)));
  params.src_rows_per_pass = static_cast<uint32_t>(std::max<int64_t>(num_threads / vectors_per_row, 1));
  set_src_pass(&params);
  params.src_row_is_wide = vectors_per_row > num_threads;
  plan->launch.shared_bytes = static_cast<int32_t>(round_up(layout.span_bytes, line_bytes));
  if (layout.tile.aligned) {
    plan->kernel = PermuteKernel::aligned_tile;
    params.run_pitch = static_cast<int32_t>(layout.row_steps[0]);
    group_dst_rows(problem, layout, plan);
    set_vectors(problem, tile, plan);
    swizzle_rows(layout.swizzle_mask, problem.dst_unit_bytes, &params);
    params.has_plain_rows =
        params.src_row_rank <= 1 && params.dst_row_rank <= 1 && !params.src_row_is_wide && params.halo == 0;
    add_tile_offsets(plan);
    plan->launch.shared_bytes = std::max(plan->launch.shared_bytes, tile.least_shared_bytes);
    finish_plan<AlignedTile>(built, result).predicted_cost = tile.cost;
    return true;
  }
  set_table_dims(problem, layout, dst_side, plan);
  if (layout.tile.is_byte_tile) {
    plan->kernel = PermuteKernel::byte_tile;
    if (!place_columns(tile, plan)) return false;
  } else {
    plan->kernel = PermuteKernel::general_tile;
    set_run_offsets(problem.dst_unit_bytes, plan);
    set_vectors(problem, tile, plan);
    choose_swizzle(problem.dst_unit_bytes, plan);
  }
  params.rows_offset_bytes = static_cast<int32_t>(round_up(plan->launch.shared_bytes, dst_row_bytes));
  plan->launch.shared_bytes =
      params.rows_offset_bytes + static_cast<int32_t>(dst_row_bytes * params.num_dst_rows.divisor);
  add_tile_offsets(plan);
  if (plan->launch.shared_bytes > max_block_shared_bytes) return false;
  if (plan->kernel == PermuteKernel::byte_tile)
    finish_plan<ByteTile>(built, result).predicted_cost = tile.cost;
  else
    finish_plan<GeneralTile>(built, result).predicted_cost = tile.cost;
  return true;
}

void plan_strided_tile(const PermuteProblem& problem, const Device& device, PermutePlan* result) {
  TilePlan built;
  built.launch.uses_pdl = device.runs_pdl();
  TilePlan* const plan = &built;
  constexpr int64_t block_limit = 64;
  const int dst_dim = problem.rank - 1;
  int src_dim = dst_dim;
  for (int d = 0; d < problem.rank; ++d)
    if (problem.src_strides[d] > 0 &&
        (problem.src_strides[src_dim] == 0 || problem.src_strides[d] < problem.src_strides[src_dim]))
      src_dim = d;
  TileLayout layout;
  Tile& tile = layout.tile;
  std::fill(tile.blocks, tile.blocks + problem.rank, 1);
  tile.src.dims = uint64_t{1} << src_dim;
  tile.dst.dims = uint64_t{1} << dst_dim;
  for (const int d : {src_dim, dst_dim})
    tile.blocks[d] = std::min(problem.extents[d], src_dim == dst_dim ? 16 * block_limit : block_limit);
  if (tile.blocks[src_dim] < problem.extents[src_dim]) tile.src_cut = src_dim;
  if (tile.blocks[dst_dim] < problem.extents[dst_dim]) tile.dst_cut = dst_dim;
  tile.elements = tile.blocks[src_dim] * (src_dim == dst_dim ? 1 : tile.blocks[dst_dim]);
  tile.shared_bytes = tile.elements * problem.unit_bytes;
  find_rows(problem, &src_dim, 1, &dst_dim, 1, &layout);
  // The pitch is one element more than the run, so that the elements of a column are in different banks.
  const int64_t run_elements = tile.blocks[src_dim];
  int64_t span = (run_elements + 1) * problem.unit_bytes;
  for (int i = 0; i < layout.src_rows.rank; ++i) {
    layout.row_steps[i] = span;
    span *= layout.src_rows.extents[i];
  }
  set_grid(problem, layout, plan);
  set_rows(problem, layout, run_elements, plan);
  // Neighbours of a run are adjacent in shared memory, whatever their stride in src.
  TileParams& params = plan->tile;
  for (int i = 0; i < layout.dst_rows.rank; ++i)
    if (layout.dst_rows.dims[i] == src_dim) params.dst_row_dims[i].shared_step = problem.unit_bytes;
  params.src_element_stride = problem.src_strides[src_dim];
  params.dst_element_stride = problem.dst_strides[dst_dim];
  params.vectors_per_src_row = Divider(static_cast<uint32_t>(run_elements));
  params.vectors_per_group = Divider(static_cast<uint32_t>(tile.blocks[dst_dim]));
  params.dst_run_elements = tile.dst_cut >= 0
                                ? TileCount{1, TileCount::of_dst_cut, 0}
                                : TileCount{static_cast<int32_t>(tile.blocks[dst_dim]), TileCount::whole, 0};
  const int at = layout.src_rows.find(dst_dim);
  params.run_pitch = static_cast<int32_t>(at < layout.src_rows.rank ? layout.row_steps[at] : problem.unit_bytes);
  plan->kernel = PermuteKernel::strided_tile;
  plan->launch.shared_bytes = static_cast<int32_t>(span);
  add_tile_offsets(plan);
  finish_plan<StridedTile>(built, result);
}

}  // namespace flowk::permute
