// SPDX-License-Identifier: Apache-2.0
// Every tile that the planner of permute chooses from, for tune_permute.py: linked with the library's objects, never
// installed.
#include "core/device.h"
#include "permute/plan/permute_problem.h"

// Plans candidate (src_choice, dst_choice) of a contiguous permute and, where `stream_is_given`, runs it. Returns 0
// planned, 1 no tile, 2 out of range, 3 failed. `features` receives 18 numbers.
extern "C" FLOWK_API int flowk_bench_permute_candidate(const void* src, void* dst, int rank, const int64_t* dst_extents,
                                                       const int64_t* src_strides, const int64_t* dst_strides,
                                                       int element_bytes, int src_choice, int dst_choice, int runs,
                                                       flowk_stream stream, double* features) {
  using namespace flowk::permute;
  PermuteRequest request;
  request.src = src;
  request.dst = dst;
  request.element_bytes = element_bytes;
  request.shape.rank = rank;
  for (int d = 0; d < rank; ++d) {
    request.shape.extents[d] = dst_extents[d];
    request.shape.strides[src_operand][d] = src_strides[d];
    request.shape.strides[dst_operand][d] = dst_strides[d];
  }
  Device device;
  if (!current_device(&device).ok()) return 3;
  PermuteProblem problem;
  make_problem(request, &problem);
  PermutePlan plan;
  const TileCandidate candidate = plan_tile_candidate(problem, device, src_choice, dst_choice, &plan);
  if (candidate != TileCandidate::planned) return candidate == TileCandidate::no_box ? 1 : 2;
  // Of parameters that the mechanism lacks 0.
  const TileParams& tile = *plan.tile();
  RunTable table;
  TileLoad load;
  TileStore store;
  int32_t swizzle_bits = 0, dst_granule = 16;
  if (const auto* aligned = std::get_if<AlignedTile>(&plan.mechanism)) {
    load = aligned->params.load;
    store = aligned->params.store;
    swizzle_bits = aligned->params.swizzle_bits;
  } else if (const auto* general = std::get_if<GeneralTile>(&plan.mechanism)) {
    load = general->params.load;
    store = general->params.store;
    table = general->params.table;
    swizzle_bits = general->params.swizzle_bits;
    dst_granule = general->params.dst_granule;
  } else if (const auto* bytes = std::get_if<ByteTile>(&plan.mechanism)) {
    load = bytes->params.load;
    store = bytes->params.store;
    table = bytes->params.table;
    dst_granule = bytes->params.dst_granule;
  }
  const double values[18] = {static_cast<double>(plan.kernel()),
                             static_cast<double>(plan.unit_bytes),
                             plan.predicted_cost(),
                             static_cast<double>(tile.whole_count(tile.src_rows)),
                             static_cast<double>(tile.whole_count(tile.src_run_bytes)),
                             static_cast<double>(tile.whole_count(tile.dst_rows) << tile.dst_rows.shift),
                             static_cast<double>(tile.whole_count(tile.dst_run_elements)),
                             static_cast<double>(tile.halo),
                             static_cast<double>(tile.dst_slice),
                             static_cast<double>(swizzle_bits / 16),
                             static_cast<double>(table.rank),
                             static_cast<double>(plan.launch.num_blocks),
                             static_cast<double>(plan.launch.shared_bytes),
                             static_cast<double>(dst_granule),
                             static_cast<double>(store.vectors_per_segment.divisor),
                             static_cast<double>(store.num_vectors * store.num_rows.divisor),
                             static_cast<double>(load.shift_mask),
                             static_cast<double>(table.num_entries)};
  for (int i = 0; i < 18; ++i) features[i] = values[i];
  for (int i = 0; i < runs; ++i)
    if (!run_permute(plan, stream).ok()) return 3;
  return 0;
}
