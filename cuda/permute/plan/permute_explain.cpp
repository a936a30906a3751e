// SPDX-License-Identifier: Apache-2.0
// Plans of permute in words.
#include <algorithm>

#include "core/text_writer.h"
#include "permute/plan/permute_problem.h"

namespace flowk::permute {
namespace {

struct KernelText {
  const char* name;
  const char* reason;
};

constexpr KernelText texts[num_permute_kernels + 1] = {
    {"copy_rows", "the last dimension stays last"},
    {"copy_shifted_rows", "the last dimension stays last and its rows are not aligned to 16 bytes"},
    {"copy_reversed_rows", "the last dimension stays last and runs downwards in one of the two"},
    {"aligned_tile", "another dimension becomes last, and both sides are aligned to 16 bytes"},
    {"general_tile", "another dimension becomes last or rows are short; runs share dimensions or are not aligned"},
    {"byte_tile", "another dimension becomes last, elements are single bytes, and a side is not aligned to 16"},
    {"strided_tile", "a side has no dimension of stride 1 that runs upwards"},
    {"channels", "a few planes become pixels, or pixels planes, and both sides are aligned to 16 bytes"},
    {"unknown", ""},
};
const KernelText& text_of(PermuteKernel kernel) {
  return texts[std::clamp(static_cast<int>(kernel), 0, num_permute_kernels)];
}

void add_tile(const PermutePlan& plan, const TileParams& tile, int32_t dst_unit_bytes, TextWriter* writer) {
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
  if (plan.kernel() != PermuteKernel::byte_tile && tile.table_rank > 0) writer->add("; gathers by table");
  if (plan.predicted_cost() > 0)
    writer->add("; predicted time %.2f of a copy's", static_cast<double>(plan.predicted_cost()));
  writer->add("\n");
}

// `conversion` is a line, or empty.
void explain(const PermutePlan& plan, const PermuteProblem& problem, const char* conversion, char* text,
             size_t text_bytes) {
  TextWriter writer{text, text_bytes};
  if (text_bytes > 0) text[0] = '\0';
  const KernelText& words = text_of(plan.kernel());
  writer.add("%s: %s\n%s", words.name, words.reason, conversion);
  writer.add("  simplified: dst order ");
  writer.add_list(problem.extents, problem.rank);
  writer.add(" of %d-byte units", problem.unit_bytes);
  if (problem.dst_unit_bytes != problem.unit_bytes) writer.add(" to %d bytes", problem.dst_unit_bytes);
  writer.add(", strides in bytes: src ");
  writer.add_list(problem.src_strides, problem.rank);
  writer.add(", dst ");
  writer.add_list(problem.dst_strides, problem.rank);
  writer.add("\n");
  if (const TileParams* tile = plan.tile()) add_tile(plan, *tile, problem.dst_unit_bytes, &writer);
  if (const ChannelParams* channels = plan.channels())
    writer.add("  tile: %lld bytes of each of %d planes, of %lld\n",
               static_cast<long long>(plan.launch.num_threads / channels->tiles_per_block * vector_bytes),
               channels->num_channels, static_cast<long long>(channels->plane_vectors * vector_bytes));
  writer.add("  launch: %lld blocks of %d threads, %d bytes of shared memory",
             static_cast<long long>(plan.launch.num_blocks), plan.launch.num_threads, plan.launch.shared_bytes);
  const int num_pairs = std::visit([](const auto& chosen) { return int{chosen.params.num_pairs}; }, plan.mechanism);
  if (num_pairs > 1) writer.add("; %d pairs of tensors in turn", num_pairs);
  writer.add("\n");
}

}  // namespace

const char* permute_kernel_name(PermuteKernel kernel) { return text_of(kernel).name; }

void explain_permute(const PermutePlan& plan, const PermuteRequest& request, char* text, size_t text_bytes) {
  PermuteProblem problem;
  make_problem(request, &problem);
  explain(plan, problem, "", text, text_bytes);
}

void explain_permute_convert(const PermuteConvertPlan& plan, const PermuteConvertRequest& request, char* text,
                             size_t text_bytes) {
  PermuteProblem problem;
  make_convert_problem(request, &problem);
  char line[128];
  TextWriter writer{line, sizeof(line)};
  writer.add("  converts %s to %s, computed in %s", dtype_info(request.src_dtype).name,
             dtype_info(request.dst_dtype).name, plan.in_double ? "float64" : "float32");
  if (request.scale != 1) writer.add(", times %g", request.scale);
  writer.add("\n");
  explain(plan.movement, problem, line, text, text_bytes);
}

}  // namespace flowk::permute
