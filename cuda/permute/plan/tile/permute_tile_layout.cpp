// SPDX-License-Identifier: Apache-2.0
// From a chosen tile to the parameters of its kernel: the grid, the rows, the load and the store.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// The dimension along which source rows of neighbouring tiles share a line of src; -1: none. Memory is read in half
// lines, so the next tile reads a shared half again unless that is still in the L2.
int dim_that_shares_lines(const PermuteProblem& problem, const Tile& tile) {
  if (tile.src.alignment >= line_bytes / 2) return -1;
  if (tile.src_cut >= 0) return tile.src_cut;
  const int64_t* const end = problem.src_strides + problem.rank;
  const int64_t* const at = std::find(problem.src_strides, end, tile.src.bytes);
  return at == end ? -1 : static_cast<int>(at - problem.src_strides);
}

void set_grid(const PermuteProblem& problem, const TileLayout& layout, TileParams* params, int64_t* num_blocks) {
  const Tile& tile = layout.tile;
  params->src = problem.src;
  params->dst = problem.dst;
  params->src_end = problem.src_end;
  params->halo = static_cast<int32_t>(tile.halo);
  if (tile.halo > 0) params->src -= tile.halo * problem.src_strides[tile.dst_cut];
  *num_blocks = 1;
  int64_t tiles[max_rank];
  bool is_entered[max_rank] = {};
  for (int d = 0; d < problem.rank; ++d)
    tiles[d] = ceil_div(problem.extents[d] + (d == tile.dst_cut ? tile.halo : 0), layout.extents[d]);
  const auto enter = [&](int d) {
    if (tiles[d] == 1 || is_entered[d]) return;
    is_entered[d] = true;
    params->grid[params->grid_rank++] = {
        Divider(static_cast<uint32_t>(tiles[d])), layout.extents[d] * problem.src_strides[d],
        layout.extents[d] * problem.dst_strides[d], d == tile.src_cut, d == tile.dst_cut};
    *num_blocks *= tiles[d];
  };
  // Neighbouring blocks take tiles that are neighbours in dst. Tiles that share lines of src follow each other while
  // the L2 has these lines.
  const int sharing_dim = dim_that_shares_lines(problem, tile);
  for (int d = problem.rank - 1; d >= 0; --d) {
    const int64_t bytes = 2 * problem.bytes_of(tile.elements) * *num_blocks * tiles[d];
    if (sharing_dim >= 0 && bytes > tile_order_kept_bytes) enter(sharing_dim);
    enter(d);
  }
  const auto indices_of_slice = [&](int d, int64_t slice) {
    return static_cast<int32_t>(std::min(layout.extents[d], problem.extents[d] - slice * layout.extents[d]));
  };
  if (const int d = tile.src_cut; d >= 0) {
    params->num_src_slices = static_cast<int32_t>(tiles[d]);
    params->src_slice = static_cast<int32_t>(layout.extents[d]);
    params->src_last_slice = indices_of_slice(d, tiles[d] - 1);
  }
  if (const int d = tile.dst_cut; d >= 0) {
    params->num_dst_slices = static_cast<int32_t>(tiles[d]);
    params->dst_slice = static_cast<int32_t>(layout.extents[d]);
    params->dst_last_end = indices_of_slice(d, tiles[d] - 1) + params->halo;
    params->dst_second_last_end = indices_of_slice(d, tiles[d] - 2) + params->halo;
  }
}

TileRowDim row_dim(int64_t extent, int64_t shared_step, int64_t stride) {
  return {Divider(static_cast<uint32_t>(extent)), static_cast<int32_t>(shared_step), stride};
}

enum class Cut { whole, of_src, of_dst };

// The count of a tile that has `total` rows or bytes if its cut dimension has `slice` indices.
TileCount count_of(int64_t total, Cut cut, int64_t slice) {
  const auto count = static_cast<int32_t>(cut == Cut::whole ? total : total / slice);
  return {cut == Cut::whole ? count : 0, cut == Cut::of_src ? count : 0, cut == Cut::of_dst ? count : 0};
}

// The source rows and destination rows, and their number in a tile at the tensor's edge.
void set_rows(const PermuteProblem& problem, const TileLayout& layout, TileParams* params) {
  const Tile& tile = layout.tile;
  const int64_t src_slice = tile.src_cut >= 0 ? layout.extents[tile.src_cut] : 1;
  const int64_t dst_slice = tile.dst_cut >= 0 ? layout.extent_with_halo(tile.dst_cut) : 1;
  const bool both = layout.shared_row_cut >= 0;
  const bool same = tile.src_cut >= 0 && tile.src_cut == tile.dst_cut;
  const int64_t run_bytes = int64_t{tile.src.elements} * problem.unit_bytes;
  const int64_t num_rows = layout.src_rows.count / layout.dense_rows;
  const int num_merged = layout.dense_rows > 1 ? 1 : 0;  // dimensions of the source rows
  if (num_merged > 0 && layout.src_rows.dims[0] == tile.dst_cut) {
    params->src_run_bytes = count_of(run_bytes, Cut::of_dst, 1);
    params->src_rows = count_of(num_rows, Cut::whole, 1);
  } else {
    params->src_run_bytes =
        count_of(run_bytes * layout.dense_rows, tile.src_cut >= 0 && !both ? Cut::of_src : Cut::whole, src_slice);
    params->src_rows = both ? count_of(num_rows, Cut::of_src, src_slice)
                            : count_of(num_rows, tile.dst_cut >= 0 && !same ? Cut::of_dst : Cut::whole, dst_slice);
  }
  params->dst_rows = count_of(layout.dst_rows.count, tile.src_cut >= 0 && !same ? Cut::of_src : Cut::whole, src_slice);
  params->dst_run_elements =
      tile.dst_cut >= 0 ? count_of(tile.dst.per_index, Cut::of_dst, 1) : count_of(tile.dst.elements, Cut::whole, 1);
  params->src_row_rank = layout.src_rows.rank - num_merged;
  for (int i = num_merged; i < layout.src_rows.rank; ++i)
    params->src_row_dims[i - num_merged] =
        row_dim(layout.src_rows.extents[i], layout.row_steps[i], problem.src_strides[layout.src_rows.dims[i]]);
  params->dst_row_rank = layout.dst_rows.rank;
  for (int i = 0; i < layout.dst_rows.rank; ++i) {
    const int dim = layout.dst_rows.dims[i];
    const int64_t shared_step =
        contains(tile.src.dims, dim) ? problem.src_strides[dim] : layout.row_steps[layout.src_rows.find(dim)];
    params->dst_row_dims[i] = row_dim(layout.dst_rows.extents[i], shared_step, problem.dst_strides[dim]);
  }
  params->skipped_elements = static_cast<int32_t>(layout.skipped_elements);
  params->skipped_src_rows = static_cast<int32_t>(layout.skipped_elements / layout.dense_rows);
}

TileRowPass pass_over(const TileParams& params, uint32_t rows) {
  const TileRowDim &inner = params.src_row_dims[0], &outer = params.src_row_dims[1];
  const bool has_outer = params.src_row_rank == 2;
  const uint32_t extent = inner.divider.divisor, outer_indices = has_outer ? rows / extent : 0;
  TileRowPass pass;
  pass.innermost = rows - outer_indices * extent;
  pass.step = pass.innermost * inner.stride + outer_indices * outer.stride;
  pass.shared_step = static_cast<int32_t>(pass.innermost) * inner.shared_step +
                     static_cast<int32_t>(outer_indices) * outer.shared_step;
  if (!has_outer) return pass;
  pass.end = extent;
  pass.wrap_step = outer.stride - extent * inner.stride;
  pass.wrap_shared_step = outer.shared_step - static_cast<int32_t>(extent) * inner.shared_step;
  return pass;
}

void set_load(const PermuteProblem& problem, const TileLayout& layout, const TileParams& params, int64_t num_threads,
              TileLoad* load) {
  const Run& src = layout.tile.src;
  const int64_t vectors =
      ceil_div(src.bytes * layout.dense_rows + (src.alignment >= vector_bytes ? 0 : vector_bytes - 1), vector_bytes);
  load->vectors_per_row = Divider(static_cast<uint32_t>(std::min(vectors, num_threads)));
  load->rows_per_pass = static_cast<uint32_t>(std::max<int64_t>(num_threads / vectors, 1));
  load->row_is_wide = vectors > num_threads;
  load->pass = pass_over(params, load->rows_per_pass);
  load->shift_mask = static_cast<uint32_t>(layout.shift_mask);
  load->start_offset_bytes = -static_cast<int32_t>(layout.skipped_bytes);
  load->tile_bytes = src.bytes + vector_bytes;
  for (int i = 0; i < layout.src_rows.rank; ++i)
    load->tile_bytes +=
        std::max<int64_t>(problem.src_strides[layout.src_rows.dims[i]], 0) * (layout.src_rows.extents[i] - 1);
}

// Begins the plan of a layout: sets the fields that all mechanisms have, and the TileLoad of mechanisms that have one.
template <class Mechanism>
auto& start_plan(const TileSearch& search, const TileLayout& layout, int32_t num_threads, PermutePlan* plan) {
  Mechanism& mechanism = plan->mechanism.emplace<Mechanism>();
  auto& params = mechanism.params;
  mechanism.predicted_cost = layout.tile.cost;
  set_units(search.problem, plan);
  plan->launch = {};
  plan->launch.num_threads = num_threads;
  plan->launch.shared_bytes = static_cast<int32_t>(round_up(layout.span_bytes, line_bytes));
  plan->launch.uses_pdl = search.device.runs_pdl();
  set_grid(search.problem, layout, &params.tile, &plan->launch.num_blocks);
  set_rows(search.problem, layout, &params.tile);
  if constexpr (requires { params.load; }) {
    set_load(search.problem, layout, params.tile, num_threads, &params.load);
    params.store.num_rows = Divider(static_cast<uint32_t>(layout.dst_rows.count));
    params.store.span_bytes = layout.tile.dst.bytes;
  }
  return params;
}

// Shared memory for the tile's offsets, behind all else.
void add_tile_offsets(TileParams* params, LaunchConfig* launch) {
  const int64_t offset = round_up(launch->shared_bytes, tile_offsets_bytes);
  params->tile_offsets_offset_bytes = static_cast<int32_t>(offset);
  launch->shared_bytes = static_cast<int32_t>(offset + tile_offsets_bytes);
}

// Shared memory for the table of destination rows and for the tile's offsets.
template <class Params>
void add_row_table(LaunchConfig* launch, Params* params) {
  params->rows_offset_bytes = static_cast<int32_t>(round_up(launch->shared_bytes, dst_row_bytes));
  launch->shared_bytes =
      params->rows_offset_bytes + static_cast<int32_t>(dst_row_bytes * params->store.num_rows.divisor);
  add_tile_offsets(&params->tile, launch);
}

// Elements of one 32-bit word of src are in neighbouring destination rows; one thread stores them all.
void join_rows_of_words(int log2_rows, AlignedTileParams* params) {
  TileRowDim& innermost = params->tile.dst_row_dims[0];
  params->dst_row_step = innermost.stride;
  innermost = row_dim(innermost.divider.divisor >> log2_rows, int64_t{innermost.shared_step} << log2_rows,
                      innermost.stride * (int64_t{1} << log2_rows));
  params->tile.dst_row_shift = static_cast<int8_t>(log2_rows);
  params->store.num_rows = Divider(params->store.num_rows.divisor >> log2_rows);
}

// Neighbouring threads gather neighbouring vectors of a destination row, so the source rows of one vector share a key.
// If a destination row has fewer than 8 vectors, the threads take several rows, which are a vector apart in src: the
// step leaves keys for them.
void swizzle_rows(int32_t mask, int32_t dst_unit_bytes, AlignedTileParams* params) {
  const auto neighbours = static_cast<int32_t>(params->store.vectors_per_segment.divisor);
  const int32_t step = mask < 7 ? 1 : neighbours <= 2 ? 4 : neighbours <= 4 ? 2 : 1;
  params->swizzle_shift = __builtin_ctz(static_cast<unsigned>(vector_bytes / dst_unit_bytes));
  params->swizzle_step = static_cast<uint32_t>(step * vector_bytes);
  params->swizzle_bits = mask * vector_bytes;
}

bool build_aligned_tile(const TileSearch& search, const TileLayout& layout, PermutePlan* plan) {
  const PermuteProblem& problem = search.problem;
  const Tile& tile = layout.tile;
  AlignedTileParams& params = start_plan<AlignedTile>(search, layout, tile_threads, plan);
  params.run_pitch = static_cast<int32_t>(layout.row_steps[0]);
  params.halo_bytes = params.tile.halo * tile.dst.per_index * problem.dst_unit_bytes;
  if (const int log2_rows = log2_rows_of_word(problem.unit_bytes); log2_rows > 0)
    join_rows_of_words(log2_rows, &params);
  if (tile.halo > 0) params.store.span_end_mask = sector_bytes - 1;
  const int64_t vectors = dst_vectors_of(problem, tile);
  set_segments(vectors, vectors_per_segment_of(static_cast<int32_t>(vectors)), tile_threads, &params.store);
  swizzle_rows(layout.swizzle_mask, problem.dst_unit_bytes, &params);
  params.has_plain_rows =
      params.tile.src_row_rank <= 1 && params.tile.dst_row_rank <= 1 && !params.load.row_is_wide && tile.halo == 0;
  add_tile_offsets(&params.tile, &plan->launch);
  plan->launch.shared_bytes = std::max(plan->launch.shared_bytes, tile.min_shared_bytes);
  return true;
}

// Does dimension `i` of the destination run continue the steps of the one before it?
bool steps_evenly(const RunTable& table, int i) {
  const RunTableDim& inner = table.dims[i - 1];
  return table.dims[i].shared_step == int64_t{inner.shared_step} * inner.divider.divisor;
}

// The dimensions of the destination run, or one if they step evenly.
void set_table_dims(const TileSearch& search, const TileLayout& layout, RunTable* table) {
  const Tile& tile = layout.tile;
  table->rank = static_cast<int8_t>(tile.dst.num_dims());
  bool is_even = true;
  for (int i = 0; i < table->rank; ++i) {
    const int dim = search.dst.dims[i], at = layout.src_rows.find(dim);
    const int64_t step = at < layout.src_rows.rank ? layout.row_steps[at] : search.problem.src_strides[dim];
    table->dims[i] = {Divider(static_cast<uint32_t>(layout.extent_with_halo(dim))), static_cast<int32_t>(step)};
    if (i > 0) is_even &= steps_evenly(*table, i);
  }
  if (is_even) table->rank = 1;
}

// Sets how a kernel finds element e of the destination run: at e * run_pitch if the run's dimensions step evenly,
// otherwise by a table of one period, an index of the outermost dimension. Dimensions that step evenly count as one.
void set_run_offsets(int32_t dst_unit_bytes, GeneralTileParams* params, int32_t* shared_bytes) {
  RunTable& table = params->table;
  params->run_pitch = table.dims[0].shared_step;
  if (table.rank == 1) {
    table.rank = 0;
    return;
  }
  int outermost = table.rank - 1;
  while (steps_evenly(table, outermost)) --outermost;  // the run as a whole does not
  uint32_t period = 1;
  for (int i = 0; i < outermost; ++i) period *= table.dims[i].divider.divisor;
  params->table_period = Divider(period);
  params->period_step = table.dims[outermost].shared_step;
  table.rank = static_cast<int8_t>(outermost + 1);
  const int64_t per_vector = vector_bytes / dst_unit_bytes;
  table.num_entries = period + static_cast<uint32_t>(per_vector - 1);
  table.offset_bytes = *shared_bytes;
  // Copy c begins with entry c. The entries before that one are written to unused bytes at the end of the copy before.
  // Copies are an odd number of vectors apart, so that lanes that read different ones use different banks.
  const int64_t copies = std::min(per_vector, max_table_copies);
  const int64_t copy_bytes = round_up(int64_t{sizeof(RunTableEntry)} * (table.num_entries + copies - 1), vector_bytes);
  table.num_copies = static_cast<uint8_t>(copies);
  table.copy_bytes = static_cast<uint16_t>(copy_bytes | vector_bytes);
  *shared_bytes += table.num_copies * table.copy_bytes;
}

// The threads that one pass over the loads, the stores or the table can use, so that no warp is without work.
int32_t general_tile_threads(const TileLayout& layout, const GeneralTileParams& params) {
  const int64_t loads = layout.src_rows.count / layout.dense_rows * params.load.vectors_per_row.divisor;
  const int64_t stores = layout.dst_rows.count * params.store.num_vectors;
  const int64_t entries = params.table.rank > 0 ? params.table.num_entries : 0;
  return static_cast<int32_t>(
      std::min<int64_t>(round_up(std::max({loads, stores, entries}), warp_lanes), tile_threads));
}

// The wavefronts of shared memory for 32 vectors that take time.
float unhidden_wavefronts(float wavefronts) { return std::max(wavefronts - hidden_wavefronts, 0.0f); }

bool build_general_tile(const TileSearch& search, const TileLayout& layout, PermutePlan* plan) {
  const PermuteProblem& problem = search.problem;
  const Run& dst = layout.tile.dst;
  GeneralTileParams& params = start_plan<GeneralTile>(search, layout, tile_threads, plan);
  set_table_dims(search, layout, &params.table);
  set_run_offsets(problem.dst_unit_bytes, &params, &plan->launch.shared_bytes);
  params.halo_elements = params.tile.halo * dst.per_index;
  const bool has_halo = layout.tile.halo > 0;
  params.dst_granule = static_cast<uint16_t>(dst_granule_of(layout.tile));
  if (has_halo) params.store.span_end_mask = sector_bytes - 1;
  params.dst_rows_have_ends = has_halo || !dst.fills_vectors;
  const int64_t vectors = dst_vectors_of(problem, layout.tile);
  set_segments(vectors, vectors_per_segment_of(static_cast<int32_t>(vectors)), tile_threads, &params.store);
  const float passes = choose_swizzle(problem.unit_bytes, problem.dst_unit_bytes, &params);
  if (moves_bytes(problem))
    std::get<GeneralTile>(plan->mechanism).predicted_cost +=
        general_tile_wavefront_cost * unhidden_wavefronts(vector_bytes * passes);
  plan->launch.num_threads = general_tile_threads(layout, params);
  add_row_table(&plan->launch, &params);
  plan->launch.shared_bytes = std::max(plan->launch.shared_bytes, layout.tile.min_shared_bytes);
  return plan->launch.shared_bytes <= max_block_shared_bytes;
}

bool build_byte_tile(const TileSearch& search, const TileLayout& layout, PermutePlan* plan) {
  const Run &src = layout.tile.src, &dst = layout.tile.dst;
  const int64_t dst_elements = dst.elements + layout.tile.halo * dst.per_index;
  const int num_threads =
      byte_tile_threads_of(layout.tile.batch * byte_tile_words(src.bytes, dst_elements), dst_elements);
  ByteTileParams& params = start_plan<ByteTile>(search, layout, num_threads, plan);
  set_table_dims(search, layout, &params.table);
  const float wavefronts = place_columns(search, layout, &plan->launch, &params);
  if (wavefronts == 0) return false;
  std::get<ByteTile>(plan->mechanism).predicted_cost += byte_tile_wavefront_cost * unhidden_wavefronts(wavefronts);
  add_row_table(&plan->launch, &params);
  return plan->launch.shared_bytes <= max_block_shared_bytes;
}

}  // namespace

int32_t dst_granule_of(const Tile& tile) {
  if (tile.halo > 0) return tile.aligned ? vector_bytes : sector_bytes;
  if (tile.dst.alignment >= vector_bytes) return vector_bytes;
  return tile.dst.bytes >= 4 * line_bytes ? line_bytes : sector_bytes;
}

int64_t dst_vectors_of(const PermuteProblem& problem, const Tile& tile) {
  const Run& dst = tile.dst;
  if (tile.aligned) return dst.bytes / vector_bytes + (tile.halo > 0 ? 1 : 0);  // half a sector more with a halo
  // Do rows end as far inside a granule as they start? With a halo they do if they are whole sectors.
  const bool fits_granules = tile.halo > 0 ? dst.bytes % sector_bytes == 0 : dst.alignment >= vector_bytes;
  return ceil_div(dst.bytes + (fits_granules ? 0 : dst_granule_of(tile) - problem.dst_unit_bytes), vector_bytes);
}

int32_t vectors_per_segment_of(int32_t vectors) {
  const int32_t segments = static_cast<int32_t>(ceil_div(vectors, line_vectors));
  const int32_t per_segment = static_cast<int32_t>(ceil_div(vectors, segments));
  if (vectors % 4 == 0 && per_segment > 4 && per_segment < line_vectors) return 4;  // no lane idle, no conflict
  return per_segment <= 1 ? 1 : (per_segment + 1) / 2 * 2;
}

void set_segments(int64_t vectors, int64_t per_segment, int num_threads, TileStore* store) {
  const uint32_t num_rows = store->num_rows.divisor;
  store->vectors_per_segment = Divider(static_cast<uint32_t>(per_segment));
  store->num_vectors = static_cast<uint32_t>(round_up(vectors, per_segment));
  store->items_per_pass = static_cast<uint32_t>(num_threads / per_segment);
  store->pass_vectors = store->items_per_pass / num_rows * static_cast<uint32_t>(per_segment);
  store->pass_rows = store->items_per_pass % num_rows;
}

bool build_tile(const TileSearch& search, const Tile& tile, PermutePlan* plan) {
  TileLayout layout;
  layout.tile = tile;
  for (int d = 0; d < search.problem.rank; ++d)
    layout.extents[d] = contains(tile.src.whole_dims | tile.dst.whole_dims, d) ? search.problem.extents[d] : 1;
  if (tile.src_cut >= 0) layout.extents[tile.src_cut] = tile.src.slice;
  if (tile.dst_cut >= 0) layout.extents[tile.dst_cut] = tile.dst.slice;
  find_rows(search, &layout);
  place_rows(search, &layout);
  if (layout.span_bytes > max_tile_span_bytes) return false;
  if (layout.tile.aligned) return build_aligned_tile(search, layout, plan);
  return (layout.tile.is_byte_tile ? build_byte_tile : build_general_tile)(search, layout, plan);
}

void plan_strided_tile(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  constexpr int64_t max_indices = 64;  // of a dimension of a tile; not measured
  TileSearch search;
  search.device = device;
  search.problem = problem;
  const int dst_dim = problem.rank - 1;
  int src_dim = dst_dim;
  for (int d = 0; d < problem.rank; ++d)
    if (problem.src_strides[d] > 0 &&
        (problem.src_strides[src_dim] == 0 || problem.src_strides[d] < problem.src_strides[src_dim]))
      src_dim = d;
  TileLayout layout;
  Tile& tile = layout.tile;
  std::fill(layout.extents, layout.extents + problem.rank, 1);
  for (const int d : {src_dim, dst_dim})
    layout.extents[d] = std::min(problem.extents[d], src_dim == dst_dim ? 16 * max_indices : max_indices);
  const auto set_chain = [&](int dim, Chain* chain, Run* run, int* cut) {
    chain->dims[0] = dim;
    run->num_whole = run->slice = run->per_index = 1;
    run->elements = static_cast<int32_t>(layout.extents[dim]);
    run->dims = uint64_t{1} << dim;
    if (layout.extents[dim] < problem.extents[dim]) *cut = dim;
  };
  set_chain(src_dim, &search.src, &tile.src, &tile.src_cut);
  set_chain(dst_dim, &search.dst, &tile.dst, &tile.dst_cut);
  tile.elements = int64_t{tile.src.elements} * (src_dim == dst_dim ? 1 : tile.dst.elements);
  tile.shared_bytes = tile.elements * problem.unit_bytes;
  find_rows(search, &layout);
  // The pitch is one element more than the run, so that the elements of a column are in different banks.
  int64_t span = (tile.src.elements + 1) * int64_t{problem.unit_bytes};
  for (int i = 0; i < layout.src_rows.rank; ++i) {
    layout.row_steps[i] = span;
    span *= layout.src_rows.extents[i];
  }
  StridedTileParams& params = start_plan<StridedTile>(search, layout, tile_threads, plan);
  // Neighbours of a run are adjacent in shared memory, whatever their stride in src.
  for (int i = 0; i < layout.dst_rows.rank; ++i)
    if (layout.dst_rows.dims[i] == src_dim) params.tile.dst_row_dims[i].shared_step = problem.unit_bytes;
  params.src_element_stride = problem.src_strides[src_dim];
  params.dst_element_stride = problem.dst_strides[dst_dim];
  params.src_run_elements = Divider(static_cast<uint32_t>(tile.src.elements));
  params.dst_run_elements = Divider(static_cast<uint32_t>(tile.dst.elements));
  const int at = layout.src_rows.find(dst_dim);
  params.run_pitch = static_cast<int32_t>(at < layout.src_rows.rank ? layout.row_steps[at] : problem.unit_bytes);
  plan->launch.shared_bytes = static_cast<int32_t>(span);
  add_tile_offsets(&params.tile, &plan->launch);
}

}  // namespace flowk::permute
