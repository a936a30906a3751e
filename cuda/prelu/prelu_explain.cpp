// SPDX-License-Identifier: Apache-2.0
// The plans of PReLU in words.
#include <cstdio>

#include "prelu/prelu_problem.h"

namespace flowk::prelu {
namespace {

const char* words(AlphaAccess access) {
  switch (access) {
    case AlphaAccess::one_per_pack: return "one alpha a pack";
    case AlphaAccess::two_per_pack: return "up to two alphas a pack";
    case AlphaAccess::vector_per_pack: return "a vector of alphas a pack";
    case AlphaAccess::one_per_element: return "an alpha an element";
  }
  return "";
}

const char* words(ColumnPacks packs) {
  switch (packs) {
    case ColumnPacks::whole_channels: return words(AlphaAccess::vector_per_pack);
    case ColumnPacks::aligned: return words(AlphaAccess::one_per_element);
    case ColumnPacks::general: return "an alpha an element, packs shifted into place";
  }
  return "";
}

const char* reason(PreluBackwardKernel kernel) {
  switch (kernel) {
    case PreluBackwardKernel::planes_of_channels:
      return "a block or a cluster of blocks holds all planes of its channels";
    case PreluBackwardKernel::spans_of_planes: return "planes of inner elements hold the packs of a warp";
    case PreluBackwardKernel::packs_of_planes: return "planes of inner elements hold whole packs";
    case PreluBackwardKernel::packs_of_columns: return "planes are short, or channels are last";
    case PreluBackwardKernel::warp_columns: return "channels are last, and a warp holds all rows of a pack of them";
    case PreluBackwardKernel::nothing: return "outer or inner is 0, and dalpha is set to zeros";
  }
  return "";
}

}  // namespace

const char* prelu_backward_kernel_name(PreluBackwardKernel kernel) {
  switch (kernel) {
    case PreluBackwardKernel::planes_of_channels: return "planes_of_channels";
    case PreluBackwardKernel::spans_of_planes: return "spans_of_planes";
    case PreluBackwardKernel::packs_of_planes: return "packs_of_planes";
    case PreluBackwardKernel::packs_of_columns: return "packs_of_columns";
    case PreluBackwardKernel::warp_columns: return "warp_columns";
    case PreluBackwardKernel::nothing: return "nothing";
  }
  return "unknown";
}

void explain_prelu(const PreluPlan& plan, char* text, size_t text_bytes) {
  std::snprintf(
      text, text_bytes,
      "elements: a pack of 16 bytes a thread, %s\n"
      "  alignment: y begins %lld bytes into a pack; x is %s\n"
      "  launch: %lld blocks of %d threads, 0 bytes of shared memory; positions of %d bits\n",
      words(plan.params.alpha_access), static_cast<long long>(plan.params.grid.lead * element_bytes_of(plan.dtype)),
      plan.params.x_shift == 0 ? "aligned as y is" : "shifted into place",
      static_cast<long long>(plan.launch.num_blocks), plan.launch.num_threads, plan.params.grid.is_wide ? 63 : 31);
}

void explain_prelu_backward(const PreluBackwardPlan& plan, char* text, size_t text_bytes) {
  const bool is_planes = plan.kernel == PreluBackwardKernel::packs_of_planes;
  const bool is_spans = plan.kernel == PreluBackwardKernel::spans_of_planes;
  const bool is_channel_planes = plan.kernel == PreluBackwardKernel::planes_of_channels;
  const bool is_warp_columns = plan.kernel == PreluBackwardKernel::warp_columns;
  const PreluBackwardTensors& tensors = is_channel_planes ? plan.channel_planes.tensors
                                        : is_spans        ? plan.spans.tensors
                                        : is_planes       ? plan.planes.tensors
                                                          : plan.columns.tensors;
  char tile[256] = "", launch[256] = "", sums[512] = "";
  if (is_channel_planes)
    std::snprintf(tile, sizeof(tile),
                  "  tile: %d of %d channels, %u packs of a row, %d rows at a time, %d of %d rows a block, %d packs a "
                  "thread at once\n",
                  plan.channel_planes.tile_channels, plan.channel_planes.channels,
                  plan.channel_planes.tile_packs.divisor, plan.channel_planes.tile_rows,
                  plan.channel_planes.rows_per_slab, plan.channel_planes.outer, plan.packs_at_once);
  else if (is_spans)
    std::snprintf(tile, sizeof(tile),
                  "  span: %d elements a warp, %d packs of 16 bytes a lane, in %s, %lld partial sums a plane\n",
                  plan.spans.span_elements, plan.packs_at_once,
                  plan.span_is_in_one_plane ? "one plane" : "up to two planes",
                  static_cast<long long>(plan.spans.partials_per_plane));
  else if (is_planes)
    std::snprintf(tile, sizeof(tile), "  span: %d packs of 16 bytes a block, %lld partial sums a plane\n",
                  plan.planes.span_packs, static_cast<long long>(plan.planes.partials_per_plane));
  else if (is_warp_columns)
    std::snprintf(tile, sizeof(tile), "  tile: a pack of %lld rows a warp, up to %d packs a lane at once\n",
                  static_cast<long long>(plan.columns.num_rows), plan.packs_at_once);
  else if (plan.kernel != PreluBackwardKernel::nothing)
    std::snprintf(tile, sizeof(tile),
                  "  tile: %d of %lld packs of a row, %d of %lld rows a block, %d packs a thread at once, %s\n",
                  plan.columns.tile_packs, static_cast<long long>(plan.columns.row_packs), plan.columns.rows_per_slab,
                  static_cast<long long>(plan.columns.num_rows), plan.packs_at_once, words(plan.column_packs));
  if (plan.kernel != PreluBackwardKernel::nothing)
    std::snprintf(launch, sizeof(launch),
                  "  alignment: packs begin %lld bytes before the tensor\n"
                  "  launch: %lld blocks of %d threads, %d bytes of shared memory, clusters of %d%s\n",
                  static_cast<long long>(tensors.grid.lead * element_bytes_of(plan.dtype)),
                  static_cast<long long>(plan.launch.num_blocks), plan.launch.num_threads, plan.launch.shared_bytes,
                  plan.launch.cluster_blocks, plan.launch.uses_pdl ? ", launched early" : "");
  size_t used = 0;
  for (int i = 0; i < plan.num_sums; ++i)
    used += static_cast<size_t>(
        std::snprintf(sums + used, sizeof(sums) - used, "  sums: %lld x %lld partials, %lld blocks of %d threads%s\n",
                      static_cast<long long>(plan.sums[i].num_rows),
                      static_cast<long long>(plan.sums[i].channels * plan.sums[i].run.divisor),
                      static_cast<long long>(plan.sum_launches[i].num_blocks), plan.sum_launches[i].num_threads,
                      plan.sum_launches[i].uses_pdl ? ", launched early" : ""));
  if (plan.num_sums == 0 && tensors.dalpha != nullptr)
    std::snprintf(sums, sizeof(sums), "  sums: dalpha by the same kernel\n");
  std::snprintf(text, text_bytes, "%s: %s\n%s%s%s", prelu_backward_kernel_name(plan.kernel), reason(plan.kernel), tile,
                launch, sums);
}

}  // namespace flowk::prelu
