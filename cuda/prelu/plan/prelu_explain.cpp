// SPDX-License-Identifier: Apache-2.0
// The plans of PReLU in words.
#include "core/text_writer.h"
#include "prelu/plan/prelu_problem.h"

namespace flowk::prelu {
namespace {

using Long = long long;

// In the order of the enumerators.
constexpr const char* names[num_prelu_backward_kernels] = {"by_channel", "by_span",        "by_plane",
                                                           "by_column",  "by_warp_column", "no_elements"};
constexpr const char* alpha_accesses[] = {"one alpha per vector", "up to two alphas per vector", "consecutive alphas",
                                          "one alpha per element"};

// Each adds the reason and the tile, and returns the tensors.
BackwardTensors add_gradient(const ByChannel& plan, TextWriter* out) {
  const ByChannelParams& params = plan.params;
  out->add(
      "a block or a cluster of blocks takes all elements of its channels\n"
      "  tile: %d of %d channels, %u vectors of a row, %d rows at a time, %d of %d rows per block, %d vectors per "
      "thread in flight\n",
      params.tile_channels, params.channels, params.tile_vectors.divisor, params.tile_rows, params.rows_per_block,
      params.outer, plan.vectors_in_flight);
  return params.tensors;
}
BackwardTensors add_gradient(const BySpan& plan, TextWriter* out) {
  out->add(
      "planes of inner elements hold the vectors of a warp\n"
      "  span: %d elements per warp, up to %d vectors of 16 bytes per lane, in %s, %lld partial sums per plane\n",
      plan.params.span_elements, plan.vectors_per_lane, plan.is_in_one_plane ? "one plane" : "up to two planes",
      static_cast<Long>(plan.params.partials_per_plane));
  return plan.params.tensors;
}
BackwardTensors add_gradient(const ByPlane& plan, TextWriter* out) {
  out->add(
      "planes of inner elements hold whole vectors\n"
      "  span: %d vectors of 16 bytes per block, %lld partial sums per plane%s\n",
      plan.params.span_vectors, static_cast<Long>(plan.params.partials_per_plane),
      plan.is_general ? ", general form" : "");
  return plan.params.tensors;
}
BackwardTensors add_gradient(const ByColumn& plan, TextWriter* out) {
  const ByColumnParams& params = plan.params;
  out->add(
      "planes are short, or channels are last\n"
      "  tile: %d of %lld vectors of a row, %d of %lld rows per block, %d vectors per thread in flight%s\n",
      line_vectors, static_cast<Long>(params.row_vectors), params.rows_per_block, static_cast<Long>(params.num_rows),
      column_rows_in_flight(plan.is_general), plan.is_general ? ", general form" : "");
  return params.tensors;
}
BackwardTensors add_gradient(const ByWarpColumn& plan, TextWriter* out) {
  out->add(
      "channels are last, and a warp takes all rows of a vector\n"
      "  tile: one vector of %d rows per warp\n",
      plan.params.num_rows);
  BackwardTensors tensors;
  tensors.dalpha = plan.params.dalpha;
  return tensors;
}
BackwardTensors add_gradient(const NoElements&, TextWriter* out) {
  out->add("outer or inner is 0, and dalpha is set to zeros\n");
  return {};
}

}  // namespace

const char* prelu_backward_kernel_name(PreluBackwardKernel kernel) { return text_of(kernel, names); }

void explain_prelu(const PreluPlan& plan, char* text, size_t text_bytes) {
  const ForwardParams& params = plan.params;
  TextWriter out = {text, text_bytes};
  out.add("forward: one vector of 16 bytes per thread, %s%s\n", text_of(params.alpha_access, alpha_accesses),
          plan.is_general ? ", general form" : "");
  out.add("  alignment: y begins %lld bytes into a vector; x is %s\n",
          static_cast<Long>(params.grid.misalignment * element_bytes_of(plan.dtype)),
          params.x_shift == 0 ? "aligned as y is" : "shifted into place");
  out.add_launch(plan.launch.num_blocks, plan.launch.num_threads, 0);
  out.add("; positions of %d bits\n", params.grid.is_wide ? 63 : 31);
}

void explain_prelu_backward(const PreluBackwardPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  out.add("%s: ", prelu_backward_kernel_name(plan.kernel()));
  const BackwardTensors tensors =
      std::visit([&](const auto& gradient) { return add_gradient(gradient, &out); }, plan.gradient);
  if (plan.kernel() != PreluBackwardKernel::no_elements) {
    out.add("  alignment: vectors begin %lld bytes before the tensor\n",
            static_cast<Long>(tensors.grid.misalignment * element_bytes_of(plan.dtype)));
    out.add_launch(plan.launch.num_blocks, plan.launch.num_threads, plan.launch.shared_bytes);
    out.add(", clusters of %d%s\n", plan.launch.cluster_blocks, plan.launch.uses_pdl ? ", PDL" : "");
  }
  for (int i = 0; i < plan.num_reductions; ++i) {
    const auto& [layout, launch, params] = plan.reductions[i];
    out.add("  reduce_partials: %lld x %lld partials, %lld block%s of %d threads%s\n",
            static_cast<Long>(params.num_rows), static_cast<Long>(params.channels * params.run.divisor),
            static_cast<Long>(launch.num_blocks), plural(launch.num_blocks), launch.num_threads,
            launch.uses_pdl ? ", PDL" : "");
  }
  if (plan.num_reductions == 0 && tensors.dalpha != nullptr) out.add("  sums: dalpha by the same kernel\n");
}

}  // namespace flowk::prelu
