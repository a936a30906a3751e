// SPDX-License-Identifier: Apache-2.0
// The runs of a tile on one side: contiguous dimensions, the outermost cut into blocks.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

constexpr int64_t max_whole_run_bytes = 24 * 1024;
constexpr int32_t target_run_bytes[] = {64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384, 24576};

}  // namespace

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

void set_run(const PermuteProblem& problem, const Side& side, int num_whole, int32_t per_index, int64_t block,
             Run* run) {
  run->num_whole = num_whole;
  run->per_index = per_index;
  run->block = static_cast<int32_t>(block);
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
  run->fills_vectors = run->alignment >= vector_bytes && run->bytes % vector_bytes == 0;
  run->padding = 1;
  if (run->is_cut()) {
    const int64_t extent = problem.extents[run->cut];
    const int64_t num_blocks = ceil_div(extent, run->block);
    const int64_t last_block = extent - (num_blocks - 1) * run->block;
    run->fills_vectors &= last_block * run->per_index * side.unit_bytes % vector_bytes == 0;
    run->padding = static_cast<float>(num_blocks * run->block) / static_cast<float>(extent);
  }
}

void find_choices(const PermuteProblem& problem, int64_t halo_bytes, Side* side) {
  int32_t per_index = 1;
  for (int i = 0; i < side->num_dims; ++i) {
    const int64_t extent = problem.extents[side->dims[i]];
    const int64_t inner_bytes = int64_t{per_index} * side->unit_bytes;
    // Blocks of nearly equal size, in whole sectors where they are at least two.
    const int64_t granule =
        std::max<int64_t>(sector_bytes / lowest_bit(static_cast<uint64_t>(inner_bytes), sector_bytes), 1);
    const auto even_block = [&](int64_t indices, int64_t block) { return ceil_div(indices, ceil_div(indices, block)); };
    const auto whole_sectors = [&](int64_t block) { return 2 * granule <= block ? granule : 1; };
    int64_t last_block = 0;
    for (const int32_t target_bytes : target_run_bytes) {
      if (target_bytes < 2 * inner_bytes) continue;
      int64_t block = target_bytes / static_cast<int32_t>(inner_bytes);
      if (block >= extent) break;
      block = even_block(extent, block);
      block = round_up(block, whole_sectors(block));
      if (block >= extent) break;
      if (block == last_block) continue;
      last_block = block;
      if (side->num_choices == max_choices) return;
      Run& run = side->choices[side->num_choices];
      set_run(problem, *side, i, per_index, block, &run);
      if (halo_bytes > 0 && run.alignment < sector_bytes) {
        block = round_up(even_block(extent + ceil_div(halo_bytes, inner_bytes), block), whole_sectors(block));
        if (block >= extent) break;
        set_run(problem, *side, i, per_index, block, &run);
      }
      ++side->num_choices;
    }
    if (inner_bytes * extent > max_whole_run_bytes || side->num_choices == max_choices) return;
    per_index *= static_cast<int32_t>(extent);
    set_run(problem, *side, i + 1, per_index, 1, &side->choices[side->num_choices++]);
  }
}

}  // namespace flowk::permute
