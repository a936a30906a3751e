// SPDX-License-Identifier: Apache-2.0
// Plans of permute in words.
#include "core/text_writer.h"
#include "permute/plan/permute_problem.h"

namespace flowk::permute {
namespace {

// In the order of the enumerators.
constexpr const char* names[num_permute_kernels] = {"copy_rows", "copy_shifted_rows", "aligned_tile", "general_tile",
                                                    "byte_tile", "strided_tile",      "channels"};
constexpr const char* reasons[num_permute_kernels] = {
    "the last dimension stays last",
    "the last dimension stays last, and its rows are not aligned to 16 bytes or run downwards in one of the two",
    "another dimension becomes last, and src and dst are aligned to 16 bytes",
    "another dimension becomes last or rows are faster in a tile; runs share dimensions or are not aligned",
    "another dimension becomes last, elements are single bytes, and src or dst is not aligned to 16",
    "src or dst has no dimension of stride 1 that runs upwards",
    "a few planes become pixels, or pixels planes, and src and dst are aligned to 16 bytes",
};

const char* slow_reason(PermuteKernel kernel) {
  switch (kernel) {
    case PermuteKernel::byte_tile:
      return "rows of single bytes do not begin at multiples of 16: pad the last dimension to a multiple of 16";
    case PermuteKernel::strided_tile:
      return "no dimension of the source or of the result has stride 1: copy the slice once";
    default: return nullptr;
  }
}

// What the mechanisms with tiles have in common, and what some of them have.
template <class Params>
void add_tile(const Params& params, float predicted_cost, int32_t dst_unit_bytes, TextWriter* writer) {
  const TileParams& tile = params.tile;
  int32_t runs_per_row = 1;
  if constexpr (std::is_same_v<Params, ByteTileParams>)
    runs_per_row = tile.whole_count(tile.dst_rows) / static_cast<int32_t>(params.store.num_rows.divisor);
  const int32_t dst_run_elements =
      tile.whole_count(tile.dst_run_elements) - tile.halo * tile.dst_run_elements.per_dst_index;
  const int32_t src_rows = tile.whole_count(tile.src_rows);
  const int32_t dst_rows = tile.whole_count(tile.dst_rows) / runs_per_row;
  writer->add("  tile: reads %d row%s of %d bytes, writes %d row%s of %d bytes", src_rows, plural(src_rows),
              tile.whole_count(tile.src_run_bytes), dst_rows, plural(dst_rows),
              dst_run_elements * dst_unit_bytes * runs_per_row);
  if constexpr (requires { params.store; })
    if (tile.halo > 0)
      writer->add("; %d indices of halo, so that rows start on %d bytes", tile.halo, params.store.span_end_mask + 1);
  if constexpr (requires { params.swizzle_bits; })
    if (params.swizzle_bits != 0) writer->add("; swizzled over %d bytes", params.swizzle_bits + vector_bytes);
  if constexpr (requires { params.skew_mask; })
    if (params.skew_mask > 0) writer->add("; skewed over %u columns", 4 * params.skew_mask);
  if constexpr (requires { params.table_period; })
    if (params.table.rank > 0) writer->add("; gathers by table");
  if (predicted_cost > 0) writer->add("; predicted time %.2f of a copy's", static_cast<double>(predicted_cost));
  writer->add("\n");
}

void add_channels(const ChannelParams& params, int32_t num_threads, TextWriter* writer) {
  writer->add("  tile: %lld bytes of each of %d planes, of %lld\n",
              static_cast<long long>(num_threads / params.tiles_per_block * vector_bytes), params.num_channels,
              static_cast<long long>(params.plane_vectors * vector_bytes));
}

}  // namespace

const char* permute_kernel_name(PermuteKernel kernel) { return text_of(kernel, names); }

void explain_permute(const PermutePlan& plan, const PermuteRequest& request, char* text, size_t text_bytes) {
  PermuteProblem problem;
  make_problem(request, &problem);
  TextWriter writer{text, text_bytes};
  writer.add("%s: %s\n", permute_kernel_name(plan.kernel()), text_of(plan.kernel(), reasons));
  if (const auto& conversion = plan.conversion) {
    writer.add("  converts %s to %s, computed in %s", dtype_info(conversion->src_dtype).name,
               dtype_info(conversion->dst_dtype).name, conversion->in_double ? "float64" : "float32");
    if (conversion->double_scale != 1) writer.add(", times %g", conversion->double_scale);
    writer.add("\n");
  }
  writer.add("  simplified: dst order ");
  writer.add_list(problem.extents, problem.rank);
  writer.add(" of %d-byte units", problem.unit_bytes);
  if (problem.dst_unit_bytes != problem.unit_bytes) writer.add(" to %d bytes", problem.dst_unit_bytes);
  writer.add(", strides in bytes: src ");
  writer.add_list(problem.src_strides, problem.rank);
  writer.add(", dst ");
  writer.add_list(problem.dst_strides, problem.rank);
  writer.add("\n");
  const int num_pairs = std::visit(
      [&](const auto& chosen) {
        if constexpr (requires { chosen.params.tile; })
          add_tile(chosen.params, chosen.predicted_cost, problem.dst_unit_bytes, &writer);
        if constexpr (requires { chosen.interleaves; }) add_channels(chosen.params, plan.launch.num_threads, &writer);
        return int{launch_params(chosen.params).num_pairs};
      },
      plan.mechanism);
  writer.add_launch(plan.launch.num_blocks, plan.launch.num_threads, plan.launch.shared_bytes);
  if (num_pairs > 1) writer.add("; %d pairs of tensors in turn", num_pairs);
  writer.add("\n");
  if (plan.measured.measured_us > 0)
    writer.add("  measured: %.2f us; the plan that the model chooses: %.2f us\n", plan.measured.measured_us,
               plan.measured.modelled_us);
  if (const char* reason = slow_reason(plan.kernel())) writer.add_slow(reason);
}

}  // namespace flowk::permute
