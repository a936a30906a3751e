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
    request.shape.src_strides[d] = src_strides[d];
    request.shape.dst_strides[d] = dst_strides[d];
  }
  Device device;
  if (!current_device(&device).ok()) return 3;
  PermuteProblem problem;
  make_problem(request, &problem);
  PermutePlan plan;
  const TileCandidate candidate = plan_tile_candidate(problem, device, src_choice, dst_choice, &plan);
  if (candidate != TileCandidate::planned) return candidate == TileCandidate::no_box ? 1 : 2;
  const TileParams& tile = *plan.tile();
  const auto total = [&](const TileCount& count) {
    return count.per_index * (count.cut == TileCount::whole        ? 1
                              : count.cut == TileCount::of_src_cut ? tile.src_block
                                                                   : tile.dst_block + tile.halo);
  };
  const double values[18] = {static_cast<double>(plan.kernel()),
                             static_cast<double>(plan.unit_bytes),
                             plan.predicted_cost(),
                             static_cast<double>(total(tile.src_rows)),
                             static_cast<double>(total(tile.src_run_bytes)),
                             static_cast<double>(total(tile.dst_rows)),
                             static_cast<double>(total(tile.dst_run_elements)),
                             static_cast<double>(tile.halo),
                             static_cast<double>(tile.dst_block),
                             static_cast<double>(tile.swizzle_bits / 16),
                             static_cast<double>(tile.table_rank),
                             static_cast<double>(plan.launch.num_blocks),
                             static_cast<double>(plan.launch.shared_bytes),
                             static_cast<double>(tile.dst_granule),
                             static_cast<double>(tile.vectors_per_group.divisor),
                             static_cast<double>(tile.num_store_vectors * tile.num_dst_rows.divisor),
                             static_cast<double>(tile.shift_mask),
                             static_cast<double>(tile.num_table_entries)};
  for (int i = 0; i < 18; ++i) features[i] = values[i];
  for (int i = 0; i < runs; ++i)
    if (!run_permute(plan, stream).ok()) return 3;
  return 0;
}
