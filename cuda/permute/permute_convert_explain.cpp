// SPDX-License-Identifier: Apache-2.0
// A plan of permute with conversion in words.
#include "permute/permute_convert_plan.h"
#include "permute/permute_text.h"

namespace flowk::permute {
namespace {

struct KernelWords {
  const char* name;
  const char* reason;
};

KernelWords words_of(PermuteKernel kernel) {
  switch (kernel) {
    case PermuteKernel::row_copy: return {"convert_rows", "the last dimension stays last"};
    case PermuteKernel::tiled_transpose:
      return {"convert_transpose", "another dimension becomes last, and both sides are aligned to 16 bytes"};
    case PermuteKernel::two_sided_tile:
      return {"convert_tile",
              "another dimension becomes last or rows are short; runs share dimensions or are not aligned"};
    case PermuteKernel::strided_tile:
      return {"convert_strided_tile", "a side has no dimension of stride 1 that is walked upwards"};
    case PermuteKernel::channel_interleave:
      return {"convert_interleave", "planes of 3 or 4 channels become pixels, and both sides are aligned to 16 bytes"};
    case PermuteKernel::channel_deinterleave:
      return {"convert_deinterleave",
              "pixels of 3 or 4 channels become planes, and both sides are aligned to 16 bytes"};
    default: return {"unknown", ""};
  }
}

}  // namespace

void explain_permute_convert(const PermuteConvertPlan& plan, const PermuteConvertRequest& request, char* text,
                             size_t text_bytes) {
  TextWriter writer{text, text_bytes};
  if (text_bytes > 0) text[0] = '\0';
  PermuteProblem problem;
  make_convert_problem(request, &problem);
  const KernelWords words = words_of(plan.movement.kernel);
  writer.add("%s: %s\n", words.name, words.reason);
  writer.add("  converts %s to %s, computed in %s", dtype_info(request.src_dtype).name,
             dtype_info(request.dst_dtype).name, plan.in_double ? "float64" : "float32");
  if (request.scale != 1) writer.add(", times %g", request.scale);
  writer.add("\n");
  add_problem(problem, &writer);
  switch (plan.movement.kernel) {
    case PermuteKernel::row_copy: break;
    case PermuteKernel::channel_interleave:
    case PermuteKernel::channel_deinterleave: add_channels(plan.movement, &writer); break;
    default: add_tile(plan.movement, plan.dst_unit_bytes, &writer);
  }
  add_launch(plan.movement.launch, &writer);
}

}  // namespace flowk::permute
