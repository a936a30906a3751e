// SPDX-License-Identifier: Apache-2.0
// explain_elementwise(): a plan as text.
#include <cstdio>

#include "core/dtype.h"
#include "core/text_writer.h"
#include "elementwise/elementwise.h"

namespace flowk::elementwise {
namespace {

const char* reason(ElementwiseKernel kernel) {
  switch (kernel) {
    case ElementwiseKernel::contiguous: return "every operand is contiguous, or one element";
    case ElementwiseKernel::broadcast: return "the output is contiguous; an input is broadcast";
    case ElementwiseKernel::broadcast_rows: return "all rows share an input and are whole packs";
    case ElementwiseKernel::strided: return "an operand is broadcast or has gaps";
    case ElementwiseKernel::aligned_tiles:
    case ElementwiseKernel::shifted_tiles:
      return "the neighbours of an input lie along another dimension than those of the output";
  }
  return "";
}

const char* access_name(ElementwiseAccess access) {
  switch (access) {
    case ElementwiseAccess::aligned: return "aligned packs";
    case ElementwiseAccess::shifted: return "packs cut from aligned accesses";
    case ElementwiseAccess::one_element: return "one element per row";
    case ElementwiseAccess::gather: return "element by element";
    case ElementwiseAccess::staged: return "through shared memory";
    case ElementwiseAccess::staged_rows: return "rows through shared memory";
    case ElementwiseAccess::number: return "a number of the call";
    case ElementwiseAccess::repeated_packs: return "aligned packs of a repeated run";
    case ElementwiseAccess::repeated_run: return "packs of a repeated run, cut from aligned accesses";
    case ElementwiseAccess::repeated_table: return "a repeated run in shared memory";
    case ElementwiseAccess::repeated_elements: return "each element several times";
  }
  return "";
}

}  // namespace

const char* elementwise_kernel_name(ElementwiseKernel kernel) {
  switch (kernel) {
    case ElementwiseKernel::contiguous: return "contiguous";
    case ElementwiseKernel::broadcast: return "broadcast";
    case ElementwiseKernel::broadcast_rows: return "broadcast_rows";
    case ElementwiseKernel::strided: return "strided";
    case ElementwiseKernel::aligned_tiles: return "aligned_tiles";
    case ElementwiseKernel::shifted_tiles: return "shifted_tiles";
  }
  return "unknown";
}

void explain_elementwise(const ElementwisePlan& plan, const ElementwiseRequest& request, char* text,
                         size_t text_bytes) {
  constexpr const char* names[max_operands] = {"out", "x", "y", "z"};
  TextWriter writer{text, text_bytes};
  writer.add("%s: %s\n", elementwise_kernel_name(plan.kernel()), reason(plan.kernel()));
  writer.add("  simplified: ");
  writer.add_list(request.shape.extents, request.shape.rank);
  writer.add("\n");
  for (int k = 0; k < request.shape.num_operands; ++k) {
    writer.add("  %s: %s, strides ", names[k], dtype_info(request.dtypes[k]).name);
    writer.add_list(request.shape.strides[k], request.shape.rank);
    writer.add(", %s\n", access_name(plan.operand(k).access));
  }
  const int32_t packs_per_thread = std::visit(
      [&](const auto& chosen) {
        if constexpr (requires { chosen.params.packs; }) return chosen.params.packs;
        if constexpr (requires { chosen.tile_rows; }) {
          writer.add("  tile: %d x %d elements, %d bytes of shared memory\n", chosen.tile_rows, chosen.tile_columns,
                     plan.launch.shared_bytes);
          return chosen.tile_rows * chosen.tile_columns / plan.pack_elements / plan.launch.num_threads;
        }
        if constexpr (requires { chosen.params.tile; })  // of broadcast_rows; strided: 0
          return chosen.params.tile.rows_per_thread > 0 ? chosen.params.tile.rows_per_thread : 1;
      },
      plan.mechanism);
  writer.add("  packs of %d elements, %d per thread, %lld blocks of %d threads\n", plan.pack_elements, packs_per_thread,
             static_cast<long long>(plan.launch.num_blocks), plan.launch.num_threads);
}

}  // namespace flowk::elementwise
