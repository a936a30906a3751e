// SPDX-License-Identifier: Apache-2.0
// The plan of PReLU backward.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/prelu_problem.h"

namespace flowk {
namespace {

// A problem as the choices below see it.
struct Problem {
  const PreluBackwardRequest& request;
  const Device& device;
  const PreluBackwardChoice& choice;
  PreluShape shape;
  int64_t pack_elements;
  int64_t sum_bytes;  // of a partial sum
  PreluBackwardTensors tensors;
  int64_t num_packs;
};

Problem make_problem(const PreluBackwardRequest& request, const Device& device, const PreluBackwardChoice& choice) {
  Problem problem = {request, device,
                     choice,  {request.outer, request.channels, request.inner, element_bytes_of(request.dtype)},
                     0,       request.dtype == FLOWK_FLOAT64 ? 8 : 4,
                     {},      0};
  problem.pack_elements = pack_bytes / problem.shape.element_bytes;
  // Packs are aligned in dx; where it is not wanted, in x.
  const void* aligned = request.dx != nullptr ? request.dx : request.x;
  PreluBackwardTensors& tensors = problem.tensors;
  place_packs(problem.shape, aligned, &tensors.grid);
  tensors.dy = request.dy;
  tensors.x = request.x;
  tensors.alpha = request.alpha;
  tensors.dx = request.dx;
  tensors.dy_shift = shift_of(request.dy, aligned);
  tensors.x_shift = shift_of(request.x, aligned);
  if (tensors.grid.num_elements > 0)
    problem.num_packs = ceil_div(tensors.grid.num_elements + tensors.grid.lead, problem.pack_elements);
  return problem;
}

// Do all packs exist, aligned in all tensors?
bool is_whole(const Problem& problem) {
  const PreluBackwardTensors& tensors = problem.tensors;
  return tensors.grid.lead == 0 && tensors.x_shift == 0 && tensors.dy_shift == 0 &&
         tensors.grid.num_elements % problem.pack_elements == 0;
}

// May kernels start before the stream's previous one ends? That hides their launch: 0.8 us of it (H200).
bool starts_early(const Problem& problem) { return problem.choice.overlap != 1 && problem.device.capability >= 90; }

PreluBackwardPlan start_plan(const Problem& problem) {
  PreluBackwardPlan plan;
  plan.dtype = problem.request.dtype;
  plan.alpha_dtype = problem.request.alpha_dtype;
  plan.is_whole = is_whole(problem);
  plan.launch.overlaps_previous = starts_early(problem);
  return plan;
}

// Lanes that sum up one of `num_sums` sums of `num_terms` terms each, in a block of `threads`.
int32_t lanes_for(int64_t num_sums, int64_t num_terms, int64_t threads) {
  int32_t lanes = 32;
  while (lanes > 1 && (lanes * num_sums > threads || lanes >= 2 * num_terms)) lanes /= 2;
  return lanes;
}

// The same division of a multiprocessor's memory for all kernels: 57 KB of an H200's 228.
constexpr int32_t even_shared_percent = 25;

// ---- the sums of partials -------------------------------------------------------------------------------------------

// A thread has 8 partials under way, so that a block of 512 threads takes in 4096 partials in the time of one access to
// memory. More rows than these are summed up by two kernels, the first of them in chunks.
constexpr int64_t partials_at_once = 8 * max_sum_threads;
constexpr int64_t max_rows_of_one_kernel = 2 * partials_at_once;
constexpr int64_t min_rows_of_a_chunk = 1024;
// Rows that a block a channel sums up, 1024 at a time: where a channel's partials are neighbours, and where they are
// not and each costs a sector of 32 bytes.
constexpr int64_t max_near_rows = 8192;
constexpr int64_t max_far_rows = 4096;

// Partials as (rows, columns), and how the columns are the channels': see PartialSumParams.
struct Partials {
  int64_t num_rows;
  int64_t num_columns;
  int64_t row_stride;
  int64_t column_stride;
  int64_t inner = 1;
  int32_t periods = 1;
  int32_t lead = 0;
};

// Where channels are neighbours, a kernel's blocks each sum up 8 of them (a sector of 32 bytes of a row of partials),
// or fewer where one access to memory would not take in all rows.
void plan_one_sum(const Problem& problem, PartialSumParams params, PreluBackwardPlan* plan) {
  int64_t block_channels = params.column_stride == 1 ? 8 : 1;
  const int64_t rows = params.rows_per_chunk;
  while (block_channels > 1 && (block_channels / 2 >= params.channels || rows * block_channels > partials_at_once))
    block_channels /= 2;
  int32_t threads = 64;
  while (threads < max_sum_threads && threads / block_channels * 8 < rows) threads *= 2;
  const int64_t num_tiles = ceil_div(params.channels, block_channels);
  const int64_t num_chunks = std::max<int64_t>(1, ceil_div(params.num_rows, params.rows_per_chunk));
  params.block_channels = Divider(static_cast<uint32_t>(block_channels));
  params.num_tiles = Divider(static_cast<uint32_t>(std::min(num_tiles, int64_t{1} << 31)));
  LaunchConfig& launch = plan->sum_launches[plan->num_sums];
  launch.num_blocks = num_tiles * num_chunks;
  launch.num_threads = threads;
  launch.shared_bytes = static_cast<int32_t>(threads / 32 * block_channels * problem.sum_bytes);
  launch.overlaps_previous = starts_early(problem);
  plan->sums[plan->num_sums++] = params;
}

// Plans the kernels that make dalpha of partials at the workspace's start.
void plan_sums(const Problem& problem, const Partials& partials, PreluBackwardPlan* plan) {
  PartialSumParams params;
  unsigned char* workspace = static_cast<unsigned char*>(problem.request.workspace);
  params.partials = workspace;
  params.sums = problem.request.dalpha;
  params.num_rows = partials.num_rows;
  params.rows_per_chunk = std::max<int64_t>(1, partials.num_rows);
  params.num_columns = partials.num_columns;
  params.row_stride = partials.row_stride;
  params.column_stride = partials.column_stride;
  params.channels = problem.shape.channels;
  params.inner = partials.inner;
  params.periods = partials.periods;
  params.lead = partials.lead;
  plan->workspace_bytes = round_up(partials.num_rows * partials.num_columns * problem.sum_bytes, pack_bytes);
  const int64_t max_rows = params.column_stride == 1 ? max_far_rows : max_near_rows;
  if (partials.inner == 1 && partials.periods == 1 && partials.lead == 0 && partials.num_columns == params.channels &&
      partials.num_rows <= max_rows && params.channels <= max_grid_blocks) {
    plan->sums_of_rows = true;
    plan->sum_launches[0] = {.num_blocks = params.channels,
                             .num_threads = row_sum_threads,
                             .shared_bytes = static_cast<int32_t>(row_sum_threads / 32 * problem.sum_bytes),
                             .overlaps_previous = starts_early(problem)};
    plan->sums[plan->num_sums++] = params;
    return;
  }
  if (partials.num_rows <= max_rows_of_one_kernel) return plan_one_sum(problem, params, plan);
  params.rows_per_chunk = std::max(min_rows_of_a_chunk, ceil_div(partials.num_rows, max_rows_of_one_kernel));
  const int64_t num_chunks = ceil_div(partials.num_rows, params.rows_per_chunk);
  params.sums = workspace + plan->workspace_bytes;
  plan_one_sum(problem, params, plan);
  params.partials = params.sums;
  params.sums = problem.request.dalpha;
  params.num_rows = params.rows_per_chunk = num_chunks;
  params.num_columns = params.row_stride = problem.shape.channels;
  params.column_stride = 1;
  params.inner = 1;
  params.periods = 1;
  params.lead = 0;
  plan->workspace_bytes += round_up(num_chunks * params.num_columns * problem.sum_bytes, pack_bytes);
  plan_one_sum(problem, params, plan);
}

// Plans them for partials of (num_rows, channels).
void plan_sums_of_rows(const Problem& problem, int64_t num_rows, PreluBackwardPlan* plan) {
  const int64_t channels = problem.shape.channels;
  plan_sums(problem, {.num_rows = num_rows, .num_columns = channels, .row_stride = channels, .column_stride = 1}, plan);
}

// ---- spans_of_planes ------------------------------------------------------------------------------------------------

constexpr int64_t warp_lanes = 32;
constexpr int32_t span_threads = 128;

// Packs a lane, at most. H200, of the time to move 3N, 2, 4 and 8 packs: f16 112x112 1.00, 1.00, 1.00; 56x56 0.95,
// 0.95, 0.95; 28x28 0.92, 0.91, -; f32 112x112 1.02 all; 28x28 0.94, 0.94, 0.95; in two planes (57x57) f16 0.91, 0.88,
// -; f32 0.94, 0.93, -. Fewer partials where it is all the same.
constexpr int64_t max_packs_of_one_plane(int64_t element_bytes) { return element_bytes >= 4 ? 8 : 4; }
constexpr int64_t max_packs_of_two_planes = 2;
constexpr int64_t max_forced_packs_of_two_planes = 4;

// The packs of the longest equal share of a plane that a warp can take, if that keeps most lanes busy; 0 if not.
int64_t equal_share(int64_t plane_packs, int64_t max_packs) {
  for (int64_t shares = ceil_div(plane_packs, max_packs); shares <= plane_packs; ++shares) {
    const int64_t packs = plane_packs / shares;
    if (packs * 4 < max_packs * 3) return 0;
    if (plane_packs % shares == 0) return packs;
  }
  return 0;
}

bool plan_spans(const Problem& problem, PreluBackwardPlan* plan) {
  const int64_t V = problem.pack_elements, inner = problem.shape.inner;
  const int64_t forced = problem.choice.packs_at_once;
  int64_t packs_per_lane = forced > 0 ? forced : max_packs_of_one_plane(problem.shape.element_bytes);
  const int64_t most_of_two_planes = forced > 0 ? max_forced_packs_of_two_planes : max_packs_of_two_planes;
  const bool plane_is_whole_packs = is_whole(problem) && inner % V == 0;
  int64_t span_packs = 0;
  for (; packs_per_lane >= 1; packs_per_lane /= 2) {
    const int64_t most = packs_per_lane * warp_lanes;
    if (plane_is_whole_packs && (span_packs = equal_share(inner / V, most)) > 0) break;
    if (packs_per_lane <= most_of_two_planes && most * V <= inner) break;
    if (forced > 0) return false;
  }
  if (packs_per_lane == 0) return false;
  plan->kernel = PreluBackwardKernel::spans_of_planes;
  plan->packs_at_once = static_cast<int32_t>(packs_per_lane);
  plan->span_is_in_one_plane = span_packs > 0;
  if (span_packs == 0) span_packs = packs_per_lane * warp_lanes;
  SpanParams& params = plan->spans;
  const PackGrid& grid = problem.tensors.grid;
  const int64_t span_elements = span_packs * V;
  params.tensors = problem.tensors;
  params.span_elements = static_cast<int32_t>(span_elements);
  params.is_wide = needs_wide_index(grid);
  params.partials_per_plane = plan->span_is_in_one_plane ? inner / span_elements : (inner - 2) / span_elements + 2;
  params.outer = problem.shape.outer;
  params.missing_outer = grid.missing_planes / problem.shape.channels;
  params.by_span = Divider(static_cast<uint32_t>(span_elements));
  params.by_span_wide = WideDivider(static_cast<uint64_t>(span_elements));
  plan->wide_index = params.is_wide;
  const int64_t num_spans = ceil_div(problem.num_packs, span_packs);
  int32_t threads = problem.choice.max_threads > 0 ? problem.choice.max_threads : span_threads;
  if (threads > max_span_threads) return false;
  while (threads > 32 && ceil_div(num_spans, threads / 32) < 4 * problem.device.num_multiprocessors) threads /= 2;
  plan->launch.num_threads = threads;
  plan->launch.num_blocks = ceil_div(num_spans, threads / 32);
  if (problem.request.dalpha == nullptr) return true;
  const int64_t num_rows = problem.shape.outer * params.partials_per_plane;
  if (num_rows == 1) {
    params.tensors.dalpha = problem.request.dalpha;
    return true;
  }
  params.tensors.partials = problem.request.workspace;
  plan_sums(problem,
            {.num_rows = num_rows, .num_columns = problem.shape.channels, .row_stride = 1, .column_stride = num_rows},
            plan);
  return true;
}

// ---- packs_of_planes ------------------------------------------------------------------------------------------------

// Packs of a span: whole planes, or an equal share of one, where that wastes no more than half a block; so each plane
// gives one partial or as few as its shares.
int64_t choose_span(const Problem& problem, int64_t max_packs) {
  const int64_t V = problem.pack_elements, inner = problem.shape.inner;
  if (problem.tensors.grid.lead != 0) return max_packs;
  const int64_t planes_packs = inner / std::gcd(inner, V);  // the fewest packs that are whole planes
  if (planes_packs <= max_packs) return max_packs / planes_packs * planes_packs;
  if (inner % V != 0) return max_packs;
  for (int64_t shares = ceil_div(planes_packs, max_packs); shares <= planes_packs / (max_packs / 2); ++shares)
    if (planes_packs % shares == 0) return planes_packs / shares;
  return max_packs;
}

// Shorter planes go by columns: a plane's partial is 4 bytes written and read again, and should add no more than 3% to
// its three times this many.
constexpr int64_t min_plane_bytes = 96;

bool plan_planes(const Problem& problem, PreluBackwardPlan* plan) {
  const int64_t V = problem.pack_elements, inner = problem.shape.inner;
  const bool is_forced = problem.choice.kernel != 0;
  if (inner < V || (!is_forced && inner * problem.shape.element_bytes < min_plane_bytes)) return false;
  const int64_t max_threads =
      problem.choice.max_threads > 0 ? problem.choice.max_threads : threads_for(problem.num_packs, problem.device);
  PlaneParams& params = plan->planes;
  params.tensors = problem.tensors;
  const int64_t span_packs = choose_span(problem, max_threads);
  const int64_t span_elements = span_packs * V;
  params.span_packs = static_cast<int32_t>(span_packs);
  const bool lead = problem.tensors.grid.lead != 0;
  if (!lead && (span_elements % inner == 0 || inner % span_elements == 0))
    params.partials_per_plane = ceil_div(inner, span_elements);
  else
    params.partials_per_plane = (inner - 2) / span_elements + 2;
  params.by_span = Divider(static_cast<uint32_t>(span_elements));
  params.by_span_wide = WideDivider(static_cast<uint64_t>(span_elements));
  params.alpha_access = alpha_access(problem.tensors.grid, problem.request.alpha, V);
  const int64_t threads = round_up(span_packs, 32);
  const int32_t lanes =
      lanes_for(ceil_div(span_elements - 1, inner) + 1, std::min(span_packs, ceil_div(inner, V)), threads);
  params.log2_threads_per_plane = std::countr_zero(static_cast<uint32_t>(lanes));
  plan->wide_index = needs_wide_index(problem.tensors.grid);
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = ceil_div(problem.num_packs, span_packs);
  plan->launch.shared_bytes = static_cast<int32_t>(threads * 2 * problem.sum_bytes);
  if (problem.request.dalpha == nullptr) return true;
  const int64_t num_rows = problem.shape.outer * params.partials_per_plane;
  if (num_rows == 1) {
    params.tensors.dalpha = problem.request.dalpha;
  } else {
    params.tensors.partials = problem.request.workspace;
    plan_sums_of_rows(problem, num_rows, plan);
  }
  return true;
}

// ---- packs_of_columns, cluster_of_columns ---------------------------------------------------------------------------

// A tile of columns: how many packs of a row, and how many rows the block takes at a time.
struct Tile {
  int64_t packs;
  int64_t rows;
  int64_t channels;  // whose columns it has all; 0: of none
};

// Rows whose packs a thread loads before it uses any, of those it steps over.
int32_t columns_at_once(const Problem& problem, int64_t rows_of_thread) {
  if (!is_whole(problem)) return 2;
  if (problem.choice.packs_at_once > 0) return problem.choice.packs_at_once;
  return rows_of_thread > 4 ? 8 : rows_of_thread > 2 ? 4 : 2;
}

void plan_tile(const Problem& problem, const Tile& tile, int64_t rows_per_slab, int64_t cluster_blocks,
               PreluBackwardPlan* plan) {
  ColumnParams& params = plan->columns;
  params.tile_packs = Divider(static_cast<uint32_t>(tile.packs));
  params.tile_rows = static_cast<int32_t>(tile.rows);
  params.rows_per_slab = static_cast<int32_t>(rows_per_slab);
  params.tile_channels = static_cast<int32_t>(tile.channels);
  const int64_t num_tiles = ceil_div(params.row_packs, tile.packs);
  params.num_tiles = Divider(static_cast<uint32_t>(std::min(num_tiles, int64_t{1} << 31)));
  const int64_t threads = round_up(tile.packs * tile.rows, 32);
  const int64_t tile_elements = tile.packs * problem.pack_elements;
  const int64_t num_parts = std::clamp<int64_t>(threads / tile_elements, 1, tile.rows);
  params.num_parts = static_cast<int32_t>(num_parts);
  params.threads_per_channel = lanes_for(tile.channels, std::max(problem.shape.inner, num_parts), threads);
  const int64_t num_slabs = round_up(ceil_div(params.num_rows, rows_per_slab), cluster_blocks);
  plan->packs_at_once = columns_at_once(problem, std::min(ceil_div(rows_per_slab, tile.rows), params.num_rows));
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = num_tiles * num_slabs;
  plan->launch.shared_bytes = static_cast<int32_t>((tile.rows + num_parts) * tile_elements * problem.sum_bytes);
  if (cluster_blocks > 1) {
    plan->launch.cluster_blocks = static_cast<int32_t>(cluster_blocks);
    // The barrier, then a sum of every channel from every block.
    plan->launch.shared_bytes += static_cast<int32_t>(16 + cluster_blocks * tile.channels * problem.sum_bytes);
  }
  if (problem.request.dalpha == nullptr) return;
  const int64_t num_partials = num_slabs / cluster_blocks;
  if (num_partials == 1 && tile.channels > 0) {
    params.tensors.dalpha = problem.request.dalpha;
    return;
  }
  params.tensors.partials = problem.request.workspace;
  if (tile.channels > 0)
    plan_sums_of_rows(problem, num_partials, plan);
  else
    plan_sums(problem,
              {.num_rows = num_partials,
               .num_columns = params.row_packs * problem.pack_elements,
               .row_stride = params.row_packs * problem.pack_elements,
               .column_stride = 1,
               .inner = problem.shape.inner,
               .periods = params.row_periods,
               .lead = problem.tensors.grid.lead},
              plan);
}

// Makes a plan of packs_of_columns one of packs_of_channels, where it can be.
constexpr int64_t max_shared_bytes_of_channels = 48 << 10;

bool plan_channels(const Problem& problem, PreluBackwardPlan* plan) {
  const ColumnParams& columns = plan->columns;
  if (plan->kernel != PreluBackwardKernel::packs_of_columns || columns.alpha_access != AlphaAccess::vector_per_pack ||
      !is_whole(problem) || plan->launch.num_threads > max_prelu_threads || problem.shape.channels > max_grid_blocks ||
      (problem.request.dalpha != nullptr && columns.tile_channels == 0))
    return false;
  const int64_t tile_channels = columns.tile_packs.divisor * problem.pack_elements;
  const int32_t lanes = lanes_for(tile_channels, columns.tile_rows, plan->launch.num_threads);
  // A warp reads 32 / lanes neighbouring channels of `lanes` rows: rows that many words apart, in multiples of 16
  // bytes.
  const int64_t sum_stride = round_up(tile_channels, 32) + std::max(4, 32 / lanes) % 32;
  const int64_t shared_bytes = columns.tile_rows * sum_stride * problem.sum_bytes;
  if (shared_bytes > max_shared_bytes_of_channels) return false;
  plan->kernel = PreluBackwardKernel::packs_of_channels;
  plan->launch.shared_bytes = static_cast<int32_t>(shared_bytes);
  ChannelParams& params = plan->channels;
  params.tensors = columns.tensors;
  params.is_dalpha = columns.tensors.dalpha != nullptr;
  params.sums = params.is_dalpha ? columns.tensors.dalpha : columns.tensors.partials;
  params.num_rows = columns.num_rows;
  params.num_channels = problem.shape.channels;
  params.step_packs = columns.row_packs * columns.tile_rows;
  params.row_packs = static_cast<int32_t>(columns.row_packs);
  params.tile_rows = columns.tile_rows;
  params.rows_per_slab = columns.rows_per_slab;
  params.sum_stride = static_cast<int32_t>(sum_stride);
  params.log2_lanes = std::countr_zero(static_cast<uint32_t>(lanes));
  params.tile_packs = columns.tile_packs;
  params.num_tiles = columns.num_tiles;
  return true;
}

// The fewest whole packs that are whole periods of channels * inner elements make a row.
void place_rows(const Problem& problem, PreluBackwardPlan* plan) {
  ColumnParams& params = plan->columns;
  params.tensors = problem.tensors;
  const int64_t V = problem.pack_elements, period = problem.shape.channels * problem.shape.inner;
  params.row_periods = static_cast<int32_t>(V / std::gcd(period, V));
  params.row_packs = period / std::gcd(period, V);
  params.num_rows = ceil_div(problem.num_packs, params.row_packs);
  params.alpha_access = alpha_access(problem.tensors.grid, problem.request.alpha, V);
}

// The fewest packs of whole channels, where tiles may begin with any of them; 0 where only a whole row will do.
int64_t packs_of_whole_channels(const Problem& problem, const ColumnParams& params) {
  if (params.row_periods > 1 || problem.tensors.grid.lead != 0) return 0;
  return problem.shape.inner / std::gcd(problem.shape.inner, problem.pack_elements);
}

// Rows at a time for tiles of `packs`, so that a block of at most `max_threads` has as equal passes as can be over
// `num_rows`.
int64_t tile_rows_for(int64_t packs, int64_t num_rows, int64_t max_threads) {
  const int64_t most = std::max<int64_t>(1, max_threads / packs);
  return ceil_div(num_rows, ceil_div(num_rows, most));
}

// Planes too short for spans go by blocks, or clusters of blocks, that hold all rows of their channels: a second kernel
// costs 1.5 to 2 us (H200), the time to move 7 MB. Of the time to move 3N, f16 14x14 0.79 so and 0.75 with a second
// kernel, f32 7x7 0.84 and 0.82. With more rows a thread the loads come in too many turns.
constexpr int64_t max_bytes_of_whole_columns = int64_t{32} << 20;
constexpr int64_t max_whole_threads = 512;
constexpr int64_t max_rows_of_thread = 16;
constexpr int64_t max_rows_of_thread_channels_last = 4;

bool plan_whole_columns(const Problem& problem, PreluBackwardPlan* plan) {
  ColumnParams& params = plan->columns;
  const bool forced_cluster = problem.choice.kernel == 1 + static_cast<int>(PreluBackwardKernel::cluster_of_columns);
  const bool is_large = problem.num_packs * pack_bytes > max_bytes_of_whole_columns;
  if (problem.request.dalpha == nullptr || (is_large && !forced_cluster)) return false;
  place_rows(problem, plan);
  const int64_t V = problem.pack_elements;
  const bool is_channels_last = problem.shape.inner == 1;
  const int64_t max_threads = problem.choice.max_threads > 0 ? problem.choice.max_threads
                              : is_channels_last             ? max_prelu_threads
                                                             : max_whole_threads;
  const int64_t unit = packs_of_whole_channels(problem, params);
  const int64_t least = unit > 0 ? unit : params.row_packs;
  if (least > max_threads) return false;
  const auto tile_of = [&](int64_t packs, int64_t rows_of_block) {
    const int64_t channels = packs == params.row_packs ? problem.shape.channels : packs * V / problem.shape.inner;
    return Tile{packs, tile_rows_for(packs, rows_of_block, max_threads), channels};
  };
  // At least a sector of 32 bytes of each row, and more where that leaves a block for every multiprocessor.
  const auto packs_for = [&](int64_t blocks_per_tile) {
    int64_t packs = unit > 0 ? round_up(std::min<int64_t>(2, params.row_packs), unit) : least;
    while (unit > 0 && 2 * packs <= std::min<int64_t>(16, params.row_packs) && 2 * packs <= max_threads &&
           params.row_packs / (2 * packs) * blocks_per_tile >= 2 * problem.device.num_multiprocessors)
      packs *= 2;
    if (problem.choice.tile_packs > 0 && unit > 0)
      packs = std::clamp(problem.choice.tile_packs / unit * unit, unit,
                         std::min(params.row_packs, max_threads / unit * unit));
    return packs;
  };
  const int64_t most_rows = is_channels_last ? max_rows_of_thread_channels_last : max_rows_of_thread;
  const auto rows_fit = [&](int64_t packs, int64_t rows) {
    return rows <= most_rows * std::max<int64_t>(1, max_threads / packs);
  };
  const int64_t packs = packs_for(1);
  const int64_t num_tiles = ceil_div(params.row_packs, packs);
  // With less than a block for nearly every multiprocessor only what is small anyway.
  const bool has_blocks = num_tiles * 8 >= problem.device.num_multiprocessors * (is_channels_last ? 1 : 7);
  if (!forced_cluster && rows_fit(packs, params.num_rows) &&
      (params.num_rows == 1 || has_blocks || problem.num_packs <= 4 * max_threads)) {
    plan->kernel = PreluBackwardKernel::packs_of_columns;
    plan_tile(problem, tile_of(packs, params.num_rows), params.num_rows, 1, plan);
    return true;
  }
  if (!is_whole(problem) || problem.device.capability < 90) return false;
  if (is_channels_last && !forced_cluster) return false;
  int64_t blocks = problem.choice.cluster_blocks > 0 ? problem.choice.cluster_blocks : 2;
  while (problem.choice.cluster_blocks == 0 && blocks < max_cluster_blocks &&
         (!rows_fit(packs, ceil_div(params.num_rows, blocks)) ||
          num_tiles * blocks * 8 < problem.device.num_multiprocessors * 7))
    blocks *= 2;
  while (blocks > 1 && blocks > params.num_rows) blocks /= 2;
  if (blocks == 1) return false;
  const int64_t cluster_packs = packs_for(blocks);
  const int64_t rows_per_slab =
      problem.choice.rows_per_slab > 0 ? problem.choice.rows_per_slab : ceil_div(params.num_rows, blocks);
  if (!forced_cluster && !rows_fit(cluster_packs, rows_per_slab)) return false;
  plan->kernel = PreluBackwardKernel::cluster_of_columns;
  plan_tile(problem, tile_of(cluster_packs, rows_per_slab), rows_per_slab, blocks, plan);
  return true;
}

// Slabs of rows. H200, channels last, of the time to move 3N: tiles of 8 packs (128 bytes of each row) and 4 rows a
// thread; 256 threads from 32 MB on, 128 below that: f16 256x512x7x7 0.80, with 256 threads 0.79, with rows of 64 packs
// 0.61; f32 96x256x14x14 0.86, 0.85, 0.80.
constexpr int64_t slab_tile_packs = 8;
constexpr int64_t slab_rows_of_thread = 4;
constexpr int64_t min_bytes_of_large_blocks = int64_t{32} << 20;
constexpr int64_t min_slab_threads_per_multiprocessor = 2048;
// From this many slabs on a cluster of 8 sums theirs up first: f32 112x112 1.01, without 0.99.
constexpr int64_t min_slabs_of_clusters = 4096;

void plan_slabs(const Problem& problem, PreluBackwardPlan* plan) {
  ColumnParams& params = plan->columns;
  place_rows(problem, plan);
  plan->kernel = PreluBackwardKernel::packs_of_columns;
  const int64_t num_bytes = problem.num_packs * pack_bytes;
  const int64_t max_threads = problem.choice.max_threads > 0           ? problem.choice.max_threads
                              : num_bytes >= min_bytes_of_large_blocks ? max_prelu_threads
                                                                       : max_prelu_threads / 2;
  const int64_t unit = packs_of_whole_channels(problem, params);
  // Rows of few packs stay whole where they are not whole tiles.
  const bool has_tiles =
      unit > 0 && (params.row_packs % slab_tile_packs == 0 || params.row_packs > 4 * slab_tile_packs);
  const int64_t wanted = problem.choice.tile_packs > 0 ? problem.choice.tile_packs
                         : has_tiles                   ? std::max(slab_tile_packs, unit)
                                                       : max_threads;
  const int64_t most = std::min(wanted, max_threads);
  int64_t packs = ceil_div(params.row_packs, ceil_div(params.row_packs, most));
  int64_t channels = 0;
  if (packs == params.row_packs) {
    channels = problem.shape.channels;
  } else if (unit > 0 && unit <= most) {
    packs = std::min(round_up(packs, unit), most / unit * unit);
    channels = packs * problem.pack_elements / problem.shape.inner;
  }
  const int64_t tile_rows = std::min(std::max<int64_t>(1, max_threads / packs), params.num_rows);
  const int64_t num_tiles = ceil_div(params.row_packs, packs);
  // Partials of columns are many: they are of more rows.
  int64_t rows_per_slab = (channels > 0 ? slab_rows_of_thread : 32 * slab_rows_of_thread) * tile_rows;
  const int64_t wanted_blocks = min_slab_threads_per_multiprocessor / max_threads * problem.device.num_multiprocessors;
  while (rows_per_slab > 2 * tile_rows && num_tiles * ceil_div(params.num_rows, rows_per_slab) < wanted_blocks)
    rows_per_slab = std::max(2 * tile_rows, rows_per_slab / 2);
  if (problem.choice.rows_per_slab > 0) rows_per_slab = round_up(problem.choice.rows_per_slab, tile_rows);
  const bool clusters = problem.choice.kernel == 0 && channels > 0 && is_whole(problem) &&
                        problem.device.capability >= 90 &&
                        ceil_div(params.num_rows, rows_per_slab) >= min_slabs_of_clusters;
  if (clusters) plan->kernel = PreluBackwardKernel::cluster_of_columns;
  plan_tile(problem, {packs, tile_rows, channels}, rows_per_slab, clusters ? max_cluster_blocks : 1, plan);
}

}  // namespace

namespace {

bool plan_kernels(const PreluBackwardRequest& request, const Device& device, const PreluBackwardChoice& choice,
                  PreluBackwardPlan* plan) {
  const Problem problem = make_problem(request, device, choice);
  *plan = start_plan(problem);
  if (problem.num_packs == 0) {
    plan->kernel = PreluBackwardKernel::nothing;
    if (request.dalpha != nullptr) plan_sums_of_rows(problem, 0, plan);
    return true;
  }
  switch (choice.kernel - 1) {
    case static_cast<int>(PreluBackwardKernel::spans_of_planes): return plan_spans(problem, plan);
    case static_cast<int>(PreluBackwardKernel::packs_of_planes): return plan_planes(problem, plan);
    case static_cast<int>(PreluBackwardKernel::packs_of_columns): plan_slabs(problem, plan); return true;
    case static_cast<int>(PreluBackwardKernel::packs_of_channels):
      plan_slabs(problem, plan);
      return plan_channels(problem, plan);
    case static_cast<int>(PreluBackwardKernel::cluster_of_columns): return plan_whole_columns(problem, plan);
    default: break;
  }
  if (plan_spans(problem, plan)) return true;
  if (plan_whole_columns(problem, plan)) {
    plan_channels(problem, plan);
    return true;
  }
  *plan = start_plan(problem);
  if (plan_planes(problem, plan)) return true;
  plan_slabs(problem, plan);
  plan_channels(problem, plan);
  return true;
}

}  // namespace

bool plan_prelu_backward(const PreluBackwardRequest& request, const Device& device, const PreluBackwardChoice& choice,
                         PreluBackwardPlan* plan) {
  if (!plan_kernels(request, device, choice, plan)) return false;
  if (choice.overlap == 3)
    for (LaunchConfig* launch : {&plan->launch, &plan->sum_launches[0], &plan->sum_launches[1]})
      launch->shared_percent = even_shared_percent;
  return true;
}

int64_t prelu_backward_workspace_bytes(const PreluBackwardRequest& request, const Device& device) {
  int64_t most = 0;
  const int64_t element_bytes = element_bytes_of(request.dtype);
  for (int64_t lead = 0; lead < pack_bytes / element_bytes; ++lead) {
    PreluBackwardRequest placed = request;
    placed.dx = reinterpret_cast<void*>(static_cast<uintptr_t>(4096 + lead * element_bytes));
    placed.dalpha = reinterpret_cast<void*>(uintptr_t{4096});  // never followed
    PreluBackwardPlan plan;
    plan_prelu_backward(placed, device, {}, &plan);
    most = std::max(most, plan.workspace_bytes);
  }
  return most;
}

}  // namespace flowk
