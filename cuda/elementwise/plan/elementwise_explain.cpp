// SPDX-License-Identifier: Apache-2.0
// explain_elementwise(): a plan as text.
#include <cstdio>

#include "core/dtype.h"
#include "core/text_writer.h"
#include "elementwise/elementwise.h"

namespace flowk::elementwise {
namespace {

// In the order of the enumerators.
constexpr const char* names[num_elementwise_kernels] = {"contiguous",    "strided",       "broadcast",
                                                        "aligned_tiles", "shifted_tiles", "broadcast_rows"};
constexpr const char* staged = "the neighbours of an input lie along another dimension than those of the output";
constexpr const char* reasons[num_elementwise_kernels] = {
    "every operand is contiguous, or one element",
    "an operand is broadcast or has gaps",
    "the output is contiguous; an input is broadcast or has a stride",
    staged,
    staged,
    "all rows share an input and are whole packs",
};
constexpr const char* accesses[num_elementwise_accesses] = {
    "aligned packs",
    "packs cut from aligned accesses",
    "one element per row",
    "element by element",
    "through shared memory",
    "rows through shared memory",
    "a number of the call",
    "aligned packs of a repeated run",
    "packs of a repeated run, cut from aligned accesses",
    "a repeated run in shared memory",
    "single elements of a run",
};

}  // namespace

const char* elementwise_kernel_name(ElementwiseKernel kernel) { return text_of(kernel, names); }

void explain_elementwise(const ElementwisePlan& plan, const ElementwiseRequest& request, char* text,
                         size_t text_bytes) {
  constexpr const char* operands[max_operands] = {"out", "x", "y", "z"};
  TextWriter writer{text, text_bytes};
  writer.add("%s: %s\n", elementwise_kernel_name(plan.kernel()), text_of(plan.kernel(), reasons));
  writer.add("  simplified: ");
  writer.add_list(request.shape.extents, request.shape.rank);
  writer.add("\n");
  for (int k = 0; k < request.shape.num_operands; ++k) {
    writer.add("  %s: %s, strides ", operands[k], dtype_info(request.dtypes[k]).name);
    writer.add_list(request.shape.strides[k], request.shape.rank);
    writer.add(", %s\n", text_of(plan.operand(k).access, accesses));
  }
  const int32_t packs_per_thread = std::visit(
      [&](const auto& chosen) {
        if constexpr (requires { chosen.params.packs; }) return chosen.params.packs;
        if constexpr (requires { chosen.tile_rows; }) {
          writer.add("  tile: %d x %d elements, %d bytes of shared memory\n", chosen.tile_rows, chosen.tile_columns,
                     plan.launch.shared_bytes);
          return chosen.tile_rows * chosen.tile_columns / plan.pack_elements / plan.launch.num_threads;
        }
        if constexpr (requires { chosen.params.rows; }) return chosen.params.rows.packs;
      },
      plan.mechanism);
  writer.add("  packs of %d element%s, %d per thread, %lld block%s of %d threads\n", plan.pack_elements,
             plural(plan.pack_elements), packs_per_thread, static_cast<long long>(plan.launch.num_blocks),
             plural(plan.launch.num_blocks), plan.launch.num_threads);
  const auto has = [&](ElementwiseAccess access) {
    int k = 0;
    while (k < request.shape.num_operands && plan.operand(k).access != access) ++k;
    return k < request.shape.num_operands;
  };
  if (has(ElementwiseAccess::gather))
    writer.add_slow("the last dimension of an operand has another stride than 1: pass a contiguous one");
  if (has(ElementwiseAccess::shifted))
    writer.add_slow("an operand, or a row of it, does not begin at a multiple of 16 bytes: align it");
}

}  // namespace flowk::elementwise
