// SPDX-License-Identifier: Apache-2.0
// Lines that the plans of permute in words have in common.
#pragma once

#include "core/text_writer.h"
#include "permute/permute_problem.h"

namespace flowk::permute {

inline void add_problem(const PermuteProblem& problem, TextWriter* writer) {
  writer->add("  simplified: dst order ");
  writer->add_list(problem.extents, problem.rank);
  writer->add(" of %d-byte units", problem.unit_bytes);
  if (problem.dst_unit_bytes != problem.unit_bytes) writer->add(" to %d bytes", problem.dst_unit_bytes);
  writer->add(", strides in bytes: src ");
  writer->add_list(problem.src_strides, problem.rank);
  writer->add(", dst ");
  writer->add_list(problem.dst_strides, problem.rank);
  writer->add("\n");
}

inline void add_tile(const PermutePlan& plan, int32_t dst_unit_bytes, TextWriter* writer) {
  const TileParams& tile = plan.tile;
  const auto total = [&](const TileCount& count) {
    const int32_t indices = count.cut == TileCount::whole        ? 1
                            : count.cut == TileCount::of_src_cut ? tile.src_block
                                                                 : tile.dst_block + tile.halo;
    return count.per_index * indices;
  };
  const int32_t dst_run_elements = total(tile.dst_run_elements) - tile.halo * tile.dst_run_elements.per_index;
  const bool joins_runs = tile.joined_run_bytes.divisor > 1;
  const int32_t runs_per_row = joins_runs ? total(tile.dst_rows) / static_cast<int32_t>(tile.num_dst_rows.divisor) : 1;
  writer->add("  tile: reads %d rows of %d bytes, writes %d rows of %d bytes", total(tile.src_rows),
              total(tile.src_run_bytes), total(tile.dst_rows) / runs_per_row,
              dst_run_elements * dst_unit_bytes * runs_per_row);
  if (tile.halo > 0)
    writer->add("; %d indices of halo, so that rows start on %d bytes", tile.halo, tile.window_mask + 1);
  if (tile.swizzle_bits != 0) writer->add("; swizzled over %d bytes", tile.swizzle_bits + 16);
  if (tile.skew_mask > 0) writer->add("; skewed over %u columns", 4 * tile.skew_mask);
  if (plan.kernel != PermuteKernel::two_step_tile && tile.table_rank > 0) writer->add("; gathers by table");
  if (plan.predicted_cost > 0)
    writer->add("; predicted time %.2f of a copy's", static_cast<double>(plan.predicted_cost));
  writer->add("\n");
}

inline void add_channels(const PermutePlan& plan, TextWriter* writer) {
  writer->add("  tile: %lld bytes of each of %d planes, of %lld\n",
              static_cast<long long>(plan.launch.num_threads / plan.channels.tiles_per_block * vector_bytes),
              plan.channels.num_channels, static_cast<long long>(plan.channels.plane_vectors * vector_bytes));
}

inline void add_launch(const LaunchConfig& launch, TextWriter* writer) {
  writer->add("  launch: %lld blocks of %d threads, %d bytes of shared memory\n",
              static_cast<long long>(launch.num_blocks), launch.num_threads, launch.shared_bytes);
}

}  // namespace flowk::permute
