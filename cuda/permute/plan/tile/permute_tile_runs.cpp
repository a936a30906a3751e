// SPDX-License-Identifier: Apache-2.0
// The runs that a tile may have in src or dst: contiguous dimensions, the outermost cut into slices.
#include "permute/plan/tile/permute_tile.h"

namespace flowk::permute {
namespace {

// Not measured.
constexpr int32_t target_run_bytes[] = {64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384, 24576};

}  // namespace

void find_chain(const PermuteProblem& problem, Chain* chain) {
  int64_t next = chain->unit_bytes;
  while (chain->num_dims < max_tile_dims) {
    int found = -1;
    for (int d = problem.rank - 1; d >= 0 && found < 0; --d)
      if (chain->strides[d] == next) found = d;
    if (found < 0) return;
    chain->dims[chain->num_dims++] = found;
    next *= problem.extents[found];
  }
}

void set_run(const PermuteProblem& problem, const Chain& chain, int num_whole, int64_t slice, Run* run) {
  *run = {};
  run->num_whole = num_whole;
  run->slice = static_cast<int32_t>(slice);
  run->per_index = 1;
  for (int i = 0; i < num_whole; ++i) {
    run->per_index *= static_cast<int32_t>(problem.extents[chain.dims[i]]);
    run->whole_dims |= uint64_t{1} << chain.dims[i];
  }
  run->elements = run->per_index * run->slice;
  run->bytes = run->elements * chain.unit_bytes;
  run->cut = run->is_cut() ? chain.dims[num_whole] : -1;
  run->dims = run->whole_dims | (run->is_cut() ? uint64_t{1} << run->cut : 0);
  const int64_t outermost = run->is_cut() || num_whole == 0 ? 1 : problem.extents[chain.dims[num_whole - 1]];
  run->period = run->per_index / static_cast<int32_t>(outermost);
  uint64_t starts = reinterpret_cast<uintptr_t>(chain.pointer);
  for (int d = 0; d < problem.rank; ++d)
    if (!contains(run->whole_dims, d))
      starts |= static_cast<uint64_t>(std::abs(chain.strides[d]) * (d == run->cut ? slice : 1));
  run->alignment = static_cast<int32_t>(lowest_bit(starts, line_bytes));
  run->fills_vectors = run->alignment >= vector_bytes && run->bytes % vector_bytes == 0;
  run->padding = 1;
  if (!run->is_cut()) return;
  const int64_t extent = problem.extents[run->cut];
  const int64_t num_slices = ceil_div(extent, slice);
  const int64_t last_slice = extent - (num_slices - 1) * slice;
  run->fills_vectors &= last_slice * run->per_index * chain.unit_bytes % vector_bytes == 0;
  run->padding = static_cast<float>(num_slices * slice) / static_cast<float>(extent);
}

void find_choices(const PermuteProblem& problem, int64_t halo_bytes, Chain* chain) {
  int64_t inner_bytes = chain->unit_bytes;
  for (int i = 0; i < chain->num_dims; ++i) {
    const int64_t extent = problem.extents[chain->dims[i]];
    // Slices of nearly equal size, in whole sectors if they are at least two.
    const int64_t granule =
        std::max<int64_t>(sector_bytes / lowest_bit(static_cast<uint64_t>(inner_bytes), sector_bytes), 1);
    const auto even_slice = [&](int64_t indices, int64_t slice) { return ceil_div(indices, ceil_div(indices, slice)); };
    const auto multiple_of = [&](int64_t slice) { return 2 * granule <= slice ? granule : 1; };
    int64_t last_slice = 0;
    for (const int32_t target_bytes : target_run_bytes) {
      if (target_bytes < 2 * inner_bytes) continue;
      const int64_t target = target_bytes / inner_bytes;
      if (target >= extent) break;
      int64_t slice = even_slice(extent, target);
      slice = round_up(slice, multiple_of(slice));
      if (slice >= extent) break;
      if (slice == last_slice) continue;
      last_slice = slice;
      if (chain->num_choices == max_choices) return;
      Run& run = chain->choices[chain->num_choices];
      set_run(problem, *chain, i, slice, &run);
      if (halo_bytes > 0 && run.alignment < sector_bytes) {
        slice = round_up(even_slice(extent + ceil_div(halo_bytes, inner_bytes), target), multiple_of(slice));
        if (slice >= extent) break;
        set_run(problem, *chain, i, slice, &run);
      }
      ++chain->num_choices;
    }
    inner_bytes *= extent;
    if (inner_bytes > max_tile_bytes || chain->num_choices == max_choices) return;
    set_run(problem, *chain, i + 1, 1, &chain->choices[chain->num_choices++]);
  }
}

}  // namespace flowk::permute
