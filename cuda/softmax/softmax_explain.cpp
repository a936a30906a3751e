// SPDX-License-Identifier: Apache-2.0
// A plan of masked softmax in words.
#include <cstdarg>
#include <cstdio>

#include "core/dtype.h"
#include "core/text_writer.h"
#include "softmax/softmax_plan.h"

namespace flowk::softmax {
namespace {

const char* reason(const SoftmaxPlan& plan) {
  switch (plan.kernel) {
    case SoftmaxKernel::row_in_registers:
      if (plan.launch.cluster_blocks > 1) return "a cluster of blocks holds a row in registers";
      if (plan.params.lanes_per_row > 32) return "a block holds a row in registers";
      return plan.params.lanes_per_row == 32 ? "a warp holds a row in registers"
                                             : "a warp holds several rows in registers";
    case SoftmaxKernel::row_in_shared:
      return plan.launch.cluster_blocks > 1 ? "a cluster of blocks holds a row in registers and shared memory"
                                            : "a block holds a row in registers and shared memory";
    case SoftmaxKernel::split_row: return "a row is cut into slices, one a block, and read by two grids";
    case SoftmaxKernel::persistent_rows:
      return "a cluster takes one row after the other, the next one's vectors come as this one's leave";
    case SoftmaxKernel::staged_rows: return "short rows, a span of them through shared memory";
    case SoftmaxKernel::rows_in_lanes: return "short rows of which an interval of columns is kept";
    case SoftmaxKernel::rows_by_vectors: return "rows of few vectors, several rows a thread";
    case SoftmaxKernel::two_pass_row:
      return "a row is too long to hold, or no other kernel takes its types or alignment";
  }
  return "";
}

}  // namespace

void explain_softmax(const SoftmaxPlan& plan, const SoftmaxRequest& request, char* text, size_t text_bytes) {
  TextWriter writer{text, text_bytes};
  if (text_bytes > 0) text[0] = '\0';
  const SoftmaxParams& params = plan.params;
  writer.add("%s: %s\n", softmax_kernel_name(plan.kernel), reason(plan));
  writer.add("  %s %s to %s: %lld rows of %lld columns", plan.backward ? "backward" : "forward",
             dtype_info(plan.in_dtype).name, dtype_info(plan.out_dtype).name, static_cast<long long>(params.num_rows),
             static_cast<long long>(request.columns));
  writer.add("; rows in %d dimensions", params.rank);
  if (params.band_dim > 0) writer.add(", in bands of %d rows that share a mask", params.band_rows);
  if (plan.mask != SoftmaxMask::none) writer.add("; %s", plan.mask == SoftmaxMask::bias ? "bias" : "dense mask");
  if (params.has_interval) writer.add("; an interval of columns a row");
  writer.add("\n  row: %d threads of a block", params.lanes_per_row);
  if (plan.launch.cluster_blocks > 1) writer.add(", %d blocks", plan.launch.cluster_blocks);
  if (plan.kernel == SoftmaxKernel::staged_rows)
    writer.add(", up to %d units of %d columns a thread", plan.vectors_per_thread, plan.unit_columns);
  else if (plan.vectors_per_thread > 0)
    writer.add(", %d vectors of 16 bytes a thread", plan.vectors_per_thread);
  if (plan.kernel == SoftmaxKernel::split_row) writer.add(", %d slices", 1 << params.cluster_shift);
  if (plan.kernel == SoftmaxKernel::persistent_rows)
    writer.add(" and batch, %d batches, %d of them kept", params.turn_batches, params.kept_batches);
  if (params.rows_per_block > 1) writer.add("; %d rows a block", params.rows_per_block);
  if (params.is_peeled && plan.kernel == SoftmaxKernel::row_in_registers)
    writer.add("; columns outside whole vectors one a thread");
  if (plan.rows_per_launch > 0)
    writer.add("\n  launches: two for %lld rows", static_cast<long long>(plan.rows_per_launch));
  writer.add("\n  launch: %lld blocks of %d threads, %d bytes of shared memory\n",
             static_cast<long long>(plan.launch.num_blocks), plan.launch.num_threads, plan.launch.shared_bytes);
  if (plan.resident_blocks > 0) writer.add("  at most %d blocks of a multiprocessor at a time\n", plan.resident_blocks);
}

}  // namespace flowk::softmax
