// SPDX-License-Identifier: Apache-2.0
// explain_softmax() writes a plan in words.
#include "core/dtype.h"
#include "core/text_writer.h"
#include "softmax/softmax.h"

namespace flowk::softmax {
namespace {

const char* reason(const SoftmaxPlan& plan) {
  const SoftmaxConfig& config = plan.config;
  const bool is_cluster = config.cluster_blocks > 1;
  switch (config.kernel()) {
    case SoftmaxKernel::row_in_registers:
      if (is_cluster) return "a cluster of blocks holds a row in registers";
      if (config.lanes_per_row > 32) return "a block holds a row in registers";
      return config.lanes_per_row == 32 ? "a warp holds a row in registers" : "a warp holds several rows in registers";
    case SoftmaxKernel::row_in_shared:
      return is_cluster ? "a cluster of blocks holds a row in registers and shared memory"
                        : "a block holds a row in registers and shared memory";
    case SoftmaxKernel::split_row: return "a row is cut into slices, one per block, and read by two grids";
    case SoftmaxKernel::persistent_rows: return "a cluster takes one row after the other and copies the next one ahead";
    case SoftmaxKernel::staged_rows: return "short rows, a segment of them at a time in shared memory";
    case SoftmaxKernel::rows_in_lanes: return "short rows with an interval of unmasked columns";
    case SoftmaxKernel::rows_by_vectors: return "rows of few vectors, several rows per thread";
    case SoftmaxKernel::framed_rows: return "rows that start anywhere, as the vectors around their unmasked columns";
    case SoftmaxKernel::strided_rows:
      return "columns lie apart in memory, and neighbouring threads have neighbouring rows";
    case SoftmaxKernel::two_pass_row:
      return "a row is too long to hold, or no other kernel takes its types or alignment";
  }
  return "";
}

const char* slow_reason(SoftmaxKernel kernel) {
  switch (kernel) {
    case SoftmaxKernel::split_row: return "few rows for the GPU: more rows per call run faster";
    case SoftmaxKernel::two_pass_row: return "rows that no block holds are read twice: shorter rows run faster";
    default: return nullptr;
  }
}

struct MechanismText {
  TextWriter& writer;

  void vectors(int32_t count) { writer.add(", %d vector%s of 16 bytes per thread", count, plural(count)); }
  void operator()(const RowInRegisters& mechanism) { vectors(mechanism.vectors_per_thread); }
  void operator()(const RowInShared&) { vectors(shared_row_register_vectors); }
  void operator()(const RowsInLanes& mechanism) { vectors(mechanism.vectors_per_thread); }
  void operator()(const FramedRows&) {}
  void operator()(const RowsByVectors& mechanism) { vectors(mechanism.rows_per_thread); }
  void operator()(const TwoPassRow&) {}
  void operator()(const StridedRows& mechanism) {
    if (mechanism.images > 0)
      writer.add(", which have %d whole plane%s in shared memory", mechanism.images, plural(mechanism.images));
    else if (mechanism.row_width > 1)
      writer.add(", which have %d neighbouring rows", mechanism.row_width);
  }
  void operator()(const StagedRows& mechanism) {
    writer.add(", up to %d units of %d columns per thread", mechanism.units_per_thread, mechanism.unit_columns);
  }
  void operator()(const SplitRow& mechanism) { writer.add(", %d slices", mechanism.slices); }
  void operator()(const PersistentRows& mechanism) {
    writer.add(", %d batches, %d of them held", mechanism.row_batches, mechanism.held_batches);
  }
};

}  // namespace

void explain_softmax(const SoftmaxPlan& plan, const SoftmaxRequest& request, char* text, size_t text_bytes) {
  TextWriter writer{text, text_bytes};
  if (text_bytes > 0) text[0] = '\0';
  const SoftmaxParams& params = plan.params;
  const SoftmaxConfig& config = plan.config;
  int64_t num_rows = 1;
  for (int d = 0; d < request.rank; ++d) num_rows *= request.extents[d];
  writer.add("%s: %s\n", softmax_kernel_name(config.kernel()), reason(plan));
  writer.add("  %s %s to %s: %lld rows of %lld columns", plan.backward ? "backward" : "forward",
             dtype_info(plan.in_dtype).name, dtype_info(plan.out_dtype).name, static_cast<long long>(num_rows),
             static_cast<long long>(request.columns));
  writer.add("; rows in %d dimension%s", params.rows.rank, plural(params.rows.rank));
  if (params.rows.l2_tile_dim > 0) writer.add(", in L2 tiles of %d rows that share a mask", params.rows.l2_tile_rows);
  const SoftmaxExtras& extras = params.extras;
  if (!plan.backward && params.bias_or_y != nullptr)
    writer.add("; bias");
  else if (params.dense != nullptr)
    writer.add("; dense mask");
  if (extras.numbers[row_scale] != nullptr) writer.add("; scale per row");
  if (extras.softcap > 0) writer.add("; softcap");
  if (extras.numbers[row_sink] != nullptr) writer.add(plan.backward ? "; gradient of the sinks" : "; sinks");
  if (params.lse != nullptr) writer.add(plan.backward ? "; gradient of the log-sum-exp" : "; log-sum-exp");
  if (params.interval.exists) writer.add("; one interval of columns per row");
  if (request.batch_invariant) writer.add("; batch-invariant");
  writer.add("\n  row: %d thread%s of a block", config.lanes_per_row, plural(config.lanes_per_row));
  if (config.cluster_blocks > 1) writer.add(", %d blocks", config.cluster_blocks);
  std::visit(MechanismText{writer}, config.mechanism);
  if (softmax_kernels[plan.kernel_row].unaligned) writer.add(", of any alignment");
  if (params.rows_per_block > 1) writer.add("; %d rows per block", params.rows_per_block);
  if (params.has_tails && config.kernel() == SoftmaxKernel::row_in_registers)
    writer.add("; columns outside whole vectors one per thread");
  if (const auto* split = std::get_if<SplitRow>(&config.mechanism))
    writer.add("\n  launches: two for %lld rows", static_cast<long long>(split->rows_per_launch));
  writer.add("\n");
  writer.add_launch(plan.launch.num_blocks, plan.launch.num_threads, plan.launch.shared_bytes);
  writer.add("\n");
  if (config.resident_blocks > 0)
    writer.add("  at most %d blocks per multiprocessor at a time\n", config.resident_blocks);
  if (const char* slow = slow_reason(config.kernel())) writer.add_slow(slow);
}

}  // namespace flowk::softmax
