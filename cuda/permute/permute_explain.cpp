// SPDX-License-Identifier: Apache-2.0
// A plan of permute in words.
#include <cstdarg>
#include <cstdio>

#include "permute/permute_problem.h"

namespace flowk {
namespace {

// Appends printf-like text to a buffer that may be too small, and keeps it ended by a NUL.
struct TextWriter {
  char* text;
  size_t size;
  size_t used = 0;

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    if (used + 1 >= size) return;
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
    if (length > 0) used += static_cast<size_t>(length);
    if (used >= size) used = size - 1;
  }
  void add_list(const int64_t* values, int count) {
    add("(");
    for (int i = 0; i < count; ++i) add(i == 0 ? "%lld" : ", %lld", static_cast<long long>(values[i]));
    add(")");
  }
};

const char* reason(PermuteKernel kernel) {
  switch (kernel) {
    case PermuteKernel::contiguous_copy: return "both sides are one run of aligned units";
    case PermuteKernel::row_copy: return "the last dimension stays last and its rows are aligned to 16 bytes";
    case PermuteKernel::shifted_row_copy:
      return "the last dimension stays last and its rows are not aligned to 16 bytes";
    case PermuteKernel::tiled_transpose:
      return "another dimension becomes last, and both sides are aligned to 16 bytes";
    case PermuteKernel::two_sided_tile:
      return "another dimension becomes last or rows are short; runs share dimensions or are not aligned";
    case PermuteKernel::strided_tile: return "a side has no dimension of stride 1 that is walked upwards";
    case PermuteKernel::channel_interleave:
      return "planes of 2 to 4 channels become pixels, and both sides are aligned to 16 bytes";
    case PermuteKernel::channel_deinterleave:
      return "pixels of 2 to 4 channels become planes, and both sides are aligned to 16 bytes";
    case PermuteKernel::two_step_tile:
      return "another dimension becomes last, elements are single bytes, and a side is not aligned to 16";
  }
  return "";
}

}  // namespace

const char* permute_kernel_name(PermuteKernel kernel) {
  switch (kernel) {
    case PermuteKernel::contiguous_copy: return "contiguous_copy";
    case PermuteKernel::row_copy: return "row_copy";
    case PermuteKernel::shifted_row_copy: return "shifted_row_copy";
    case PermuteKernel::tiled_transpose: return "tiled_transpose";
    case PermuteKernel::two_sided_tile: return "two_sided_tile";
    case PermuteKernel::strided_tile: return "strided_tile";
    case PermuteKernel::channel_interleave: return "channel_interleave";
    case PermuteKernel::channel_deinterleave: return "channel_deinterleave";
    case PermuteKernel::two_step_tile: return "two_step_tile";
  }
  return "unknown";
}

void explain_permute(const PermutePlan& plan, const PermuteRequest& request, char* text, size_t text_bytes) {
  TextWriter writer{text, text_bytes};
  if (text_bytes > 0) text[0] = '\0';
  PermuteProblem problem;
  make_problem(request, &problem);
  writer.add("%s: %s\n", permute_kernel_name(plan.kernel), reason(plan.kernel));
  writer.add("  simplified: dst order ");
  writer.add_list(problem.extents, problem.rank);
  writer.add(" of %d-byte units, strides in bytes: src ", problem.unit_bytes);
  writer.add_list(problem.src_strides, problem.rank);
  writer.add(", dst ");
  writer.add_list(problem.dst_strides, problem.rank);
  writer.add("\n");
  if (plan.launch.num_threads == 0) {
    writer.add("  nothing to do\n");
    return;
  }
  if (plan.kernel == PermuteKernel::tiled_transpose || plan.kernel == PermuteKernel::two_sided_tile ||
      plan.kernel == PermuteKernel::strided_tile || plan.kernel == PermuteKernel::two_step_tile) {
    const TileParams& tile = plan.tile;
    const auto total = [&](const TileCount& count) {
      const int32_t indices = count.cut == TileCount::whole        ? 1
                              : count.cut == TileCount::of_src_cut ? tile.src_block
                                                                   : tile.dst_block + tile.halo;
      return count.per_index * indices;
    };
    writer.add("  tile: reads %d rows of %d bytes, writes %d rows of %d bytes", total(tile.src_rows),
               total(tile.src_run_bytes), total(tile.dst_rows),
               (total(tile.dst_run_elements) - tile.halo * tile.dst_run_elements.per_index) * plan.unit_bytes);
    if (tile.halo > 0) writer.add("; %d indices of halo, so that rows start on %d bytes", tile.halo, tile.dst_granule);
    if (tile.swizzle_bits != 0) writer.add("; swizzled over %d bytes", tile.swizzle_bits + 16);
    if (tile.skew_mask > 0) writer.add("; skewed over %u columns", 4 * tile.skew_mask);
    if (plan.kernel != PermuteKernel::two_step_tile && tile.table_rank > 0) writer.add("; gathers by table");
    if (plan.predicted_cost > 0)
      writer.add("; predicted time %.2f of a copy's", static_cast<double>(plan.predicted_cost));
    writer.add("\n");
  }
  if (plan.kernel == PermuteKernel::channel_interleave || plan.kernel == PermuteKernel::channel_deinterleave)
    writer.add("  tile: %lld bytes of each of %d planes, of %lld\n",
               static_cast<long long>(plan.launch.num_threads * chunk_limit_bytes), plan.channels.num_channels,
               static_cast<long long>(plan.channels.plane_chunks * chunk_limit_bytes));
  writer.add("  launch: %lld blocks of %d threads, %d bytes of shared memory\n",
             static_cast<long long>(plan.launch.num_blocks), plan.launch.num_threads, plan.launch.shared_bytes);
}

}  // namespace flowk
