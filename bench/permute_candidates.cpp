// SPDX-License-Identifier: Apache-2.0
// Every tile that the planner of permute chooses from, for tune_permute.py: linked with the library's objects, never
// installed.
#include <vector>

#include "core/device.h"
#include "permute/plan/permute_problem.h"
#include "permute/plan/permute_tuning.h"

// Plans candidate (src_choice, dst_choice) of a permute, with or without conversion, and runs it `runs` times. Returns
// 0 planned, 1 no tile, 2 out of range, 3 failed. `features` receives 18 numbers, 0 for a parameter that the mechanism
// lacks, and the terms of the predicted time: one for each member of TileCosts, or of ByteTileCosts.
extern "C" FLOWK_API int flowk_bench_permute_candidate(const void* src, void* dst, int rank, const int64_t* dst_extents,
                                                       const int64_t* src_strides, const int64_t* dst_strides,
                                                       flowk_dtype src_dtype, flowk_dtype dst_dtype, double scale,
                                                       int src_choice, int dst_choice, int runs, double* features,
                                                       flowk_stream stream) {
  using namespace flowk::permute;
  PermuteRequest request;
  request.src = src;
  request.dst = dst;
  request.element_bytes = flowk::core::dtype_info(src_dtype).element_bytes;
  if (!is_plain_move(src_dtype, dst_dtype, scale)) request.conversion = conversion_of(src_dtype, dst_dtype, scale);
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
  const TileParams& tile = *plan.tile();
  RunTable table;
  TileLoad load;
  TileStore store;
  int32_t swizzle_bits = 0, dst_granule = 16;
  const auto read = [&](const auto& params) {
    load = params.load;
    store = params.store;
    if constexpr (requires { params.table; }) table = params.table;
    if constexpr (requires { params.swizzle_bits; }) swizzle_bits = params.swizzle_bits;
    if constexpr (requires { params.dst_granule; }) dst_granule = params.dst_granule;
  };
  if (const auto* aligned = std::get_if<AlignedTile>(&plan.mechanism)) read(aligned->params);
  if (const auto* general = std::get_if<GeneralTile>(&plan.mechanism)) read(general->params);
  if (const auto* bytes = std::get_if<ByteTile>(&plan.mechanism)) read(bytes->params);
  const auto write = [&](auto... values) { ((*features++ = static_cast<double>(values)), ...); };
  write(plan.kernel(), plan.unit_bytes, plan.predicted_cost(), tile.whole_count(tile.src_rows),
        tile.whole_count(tile.src_run_bytes), tile.whole_count(tile.dst_rows), tile.whole_count(tile.dst_run_elements),
        tile.halo, tile.dst_slice, swizzle_bits / 16, table.rank, plan.launch.num_blocks, plan.launch.shared_bytes,
        dst_granule, store.vectors_per_segment.divisor, store.num_vectors * store.num_rows.divisor, load.shift_mask,
        table.num_entries);
  constexpr size_t max_terms = sizeof(TileCosts) / sizeof(float);
  std::vector<float> terms = tile_terms(problem, device, src_choice, dst_choice);
  terms.resize(max_terms);
  for (const float term : terms) write(term);
  for (int i = 0; i < runs; ++i)
    if (!run_permute(plan, stream).ok()) return 3;
  return 0;
}
