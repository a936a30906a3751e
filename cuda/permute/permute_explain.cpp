// SPDX-License-Identifier: Apache-2.0
// A plan of permute in words.
#include "permute/permute_text.h"

namespace flowk::permute {
namespace {

const char* reason(PermuteKernel kernel) {
  switch (kernel) {
    case PermuteKernel::contiguous_copy: return "both sides are one run of aligned units";
    case PermuteKernel::row_copy: return "the last dimension stays last and its rows are aligned to 16 bytes";
    case PermuteKernel::shifted_row_copy:
      return "the last dimension stays last and its rows are not aligned to 16 bytes";
    case PermuteKernel::reversed_row_copy: return "the last dimension stays last and is walked the other way round";
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
    case PermuteKernel::reversed_row_copy: return "reversed_row_copy";
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
  add_problem(problem, &writer);
  if (plan.launch.num_threads == 0) {
    writer.add("  nothing to do\n");
    return;
  }
  if (plan.kernel == PermuteKernel::tiled_transpose || plan.kernel == PermuteKernel::two_sided_tile ||
      plan.kernel == PermuteKernel::strided_tile || plan.kernel == PermuteKernel::two_step_tile) {
    add_tile(plan, problem.dst_unit_bytes, &writer);
  }
  if (plan.kernel == PermuteKernel::channel_interleave || plan.kernel == PermuteKernel::channel_deinterleave)
    add_channels(plan, &writer);
  add_launch(plan.launch, &writer);
}

}  // namespace flowk::permute
