// SPDX-License-Identifier: Apache-2.0
// bias_gradient: groups the rows that share a row of the bias, chooses chunks of them and threads, and says so.
#include <algorithm>
#include <cstdint>

#include "core/divide.h"
#include "core/dtype.h"
#include "core/text_writer.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"
#include "softmax/softmax_bias_gradient.h"

namespace flowk::softmax {
namespace {

// A thread has good_vectors vectors of a row if the row has threads enough. There are chunks until the grid has
// good_threads threads, or a chunk has few members: their sums are then more than a small part of what is read. Not
// measured.
constexpr int32_t good_vectors = 2, good_block_threads = 256;
constexpr int64_t good_threads = int64_t{1} << 18, min_chunk_members = 8, max_chunks = 4096;
// Of bias_gradient_of_chunks: partials that a thread loads at once.
constexpr int32_t partials_in_flight = 8;

// What depends on the sizes alone, and so does the order of all sums.
struct BiasGradientLayout {
  int32_t sum_bytes, width, row_vectors, lanes, block_threads, vectors_per_thread, exchange_offset_bytes;
  int64_t chunks, num_blocks, block_sums_bytes;
  bool sums_are_shared;

  BiasGradientLayout(const BiasGradientSizes& sizes, const Device& device) {
    const int32_t element_bytes = dtype_info(sizes.y_dtype).element_bytes;
    sum_bytes = std::max(element_bytes, 4);
    width = vector_bytes / element_bytes;
    row_vectors = static_cast<int32_t>(ceil_div(sizes.columns, int64_t{width}));
    lanes = std::min(lanes_for(row_vectors, good_vectors), max_bias_gradient_threads);
    block_threads = lanes > warp_lanes ? lanes : good_block_threads;
    vectors_per_thread = static_cast<int32_t>(ceil_div(int64_t{row_vectors}, int64_t{lanes}));
    const int64_t good_chunks = good_threads / std::min(lanes * std::min(sizes.groups, good_threads), good_threads);
    chunks = std::min({good_chunks, max_chunks, std::max<int64_t>(sizes.members / min_chunk_members, 1)});
    if (sizes.members == 0) chunks = 0;
    num_blocks = ceil_div(chunks * sizes.groups, int64_t{block_threads / lanes});
    block_sums_bytes = int64_t{vectors_per_thread} * width * sum_bytes * block_threads;
    const int32_t num_warps = std::max(lanes / warp_lanes, 1);
    exchange_offset_bytes = static_cast<int32_t>(
        round_up(2 * exchange_step_bytes(partial_result_bytes(element_bytes), num_warps, 1), line_bytes));
    sums_are_shared = exchange_offset_bytes + block_sums_bytes <= device.shared_bytes_per_block;
  }
  int64_t partials_bytes(const BiasGradientSizes& sizes) const {
    return chunks > 1 ? round_up(chunks * sizes.groups * sizes.columns * sum_bytes, line_bytes) : 0;
  }
};

// Sorts the dimensions that share a row of the bias before the others, and returns the number of rows that share one.
int64_t put_members_first(SoftmaxRows* rows) {
  SoftmaxRows sorted = *rows;
  int64_t members = 1;
  int rank = 0;
  for (const bool is_shared : {true, false})
    for (int d = 0; d < rows->rank; ++d) {
      if ((rows->dims[d].strides[softmax_dense] == 0) != is_shared) continue;
      if (is_shared) members *= rows->dims[d].extent;
      sorted.dims[rank] = rows->dims[d];
      sorted.numbers[rank++] = rows->numbers[d];
    }
  *rows = sorted;
  return members;
}

}  // namespace

int64_t bias_gradient_workspace_bytes(const BiasGradientSizes& sizes, const Device& device) {
  const BiasGradientLayout layout(sizes, device);
  return layout.partials_bytes(sizes) + (layout.sums_are_shared ? 0 : layout.num_blocks * layout.block_sums_bytes);
}

void plan_bias_gradient(const BiasGradientRequest& request, const Device& device, BiasGradientPlan* plan) {
  const SoftmaxCall call(request.softmax, device);
  SoftmaxRows rows = call.rows;
  BiasGradient& gradient = plan->gradient;
  gradient.members = put_members_first(&rows);
  gradient.groups = rows.num_rows / gradient.members;
  const BiasGradientSizes sizes = {gradient.groups, request.has_members ? gradient.members : 0, call.request.columns,
                                   call.request.in_dtype};
  const BiasGradientLayout layout(sizes, device);
  plan->in_dtype = call.request.in_dtype;
  fill_params(call, rows, layout.lanes, layout.block_threads / layout.lanes, &plan->params);

  const int64_t width = layout.width;
  const auto is_in_vectors = [&](SoftmaxOperand operand, flowk_dtype dtype) {
    return is_aligned(call, operand, std::min<int64_t>(width * dtype_info(dtype).element_bytes, vector_bytes));
  };
  const bool has_whole_vectors = call.request.columns % width == 0;
  gradient.dbias = static_cast<unsigned char*>(request.dbias);
  gradient.dbias_dtype = request.dbias_dtype;
  gradient.chunks = static_cast<int32_t>(layout.chunks);
  gradient.columns = WideDivider(static_cast<uint64_t>(call.request.columns));
  gradient.row_vectors = layout.row_vectors;
  gradient.vectors_per_thread = layout.vectors_per_thread;
  gradient.by_vectors = has_whole_vectors && is_in_vectors(softmax_x, plan->in_dtype) &&
                        is_in_vectors(softmax_bias_or_y, plan->in_dtype) &&
                        is_in_vectors(softmax_out, call.request.out_dtype);
  gradient.element_step = has_whole_vectors ? 1 : layout.lanes;
  const int64_t dbias_bytes = std::min<int64_t>(width * dtype_info(request.dbias_dtype).element_bytes, vector_bytes);
  const bool dbias_is_aligned = reinterpret_cast<uintptr_t>(request.dbias) % static_cast<uintptr_t>(dbias_bytes) == 0;
  gradient.stores_vectors =
      has_whole_vectors &&
      (layout.chunks > 1 || (dbias_is_aligned && is_in_vectors(softmax_dense, request.dbias_dtype)));
  auto* const workspace = static_cast<unsigned char*>(request.workspace);
  if (layout.chunks > 1) {
    gradient.groups_of_chunk = Divider(static_cast<uint32_t>(gradient.groups));
    gradient.partials = workspace;
  }
  gradient.sums_offset_bytes = layout.exchange_offset_bytes;
  if (!layout.sums_are_shared) {
    gradient.block_sums_bytes = layout.block_sums_bytes;
    gradient.sums = workspace + layout.partials_bytes(sizes);
  }
  plan->launch = {.num_blocks = layout.num_blocks,
                  .num_threads = layout.block_threads,
                  .shared_bytes = layout.exchange_offset_bytes +
                                  static_cast<int32_t>(layout.sums_are_shared ? layout.block_sums_bytes : 0),
                  .uses_pdl = device.runs_pdl()};
  if (layout.chunks == 1) return;
  const int64_t warps = std::clamp<int64_t>(ceil_div(layout.chunks, int64_t{partials_in_flight}), 1,
                                            max_bias_gradient_threads / warp_lanes);
  plan->sum_launch = {.num_blocks = ceil_div(gradient.groups * call.request.columns, int64_t{warp_lanes}),
                      .num_threads = static_cast<int32_t>(warps * warp_lanes),
                      .shared_bytes = static_cast<int32_t>(warps * warp_lanes * layout.sum_bytes),
                      .uses_pdl = device.runs_pdl()};
}

void explain_bias_gradient(const BiasGradientPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  const BiasGradient& gradient = plan.gradient;
  const SoftmaxParams& params = plan.params;
  const int64_t members = gradient.chunks == 0 ? 0 : gradient.members;
  if (text_bytes > 0) text[0] = '\0';
  out.add("bias_gradient: the threads of a row take one after the other of the rows that share a row of the bias\n");
  out.add("  backward %s to %s%s: %lld row%s of %d columns, each shared by %lld row%s\n",
          dtype_info(plan.in_dtype).name, dtype_info(gradient.dbias_dtype).name,
          params.out == nullptr ? "" : ", and dx", static_cast<long long>(gradient.groups), plural(gradient.groups),
          params.columns, static_cast<long long>(members), plural(members));
  if (gradient.chunks == 0) out.add("  dbias is set to zeros\n");
  if (plan.launch.num_blocks > 0) {
    out.add("  row: %d thread%s of a block, %d vector%s of 16 bytes per thread%s", params.lanes_per_row,
            plural(params.lanes_per_row), gradient.vectors_per_thread, plural(gradient.vectors_per_thread),
            gradient.by_vectors ? "" : ", by single elements");
    if (params.rows_per_block > 1) out.add("; %d rows per block", params.rows_per_block);
    out.add("; sums in %s\n", gradient.block_sums_bytes == 0 ? "shared memory" : "the workspace");
    out.add_launch(plan.launch.num_blocks, plan.launch.num_threads, plan.launch.shared_bytes);
    out.add("%s\n", plan.launch.uses_pdl ? ", PDL" : "");
  }
  if (gradient.chunks > 1) out.add("  then the sum of %d chunks of these rows\n", gradient.chunks);
  if (plan.sum_launch.num_blocks > 0) {
    out.add_launch(plan.sum_launch.num_blocks, plan.sum_launch.num_threads, plan.sum_launch.shared_bytes);
    out.add("%s\n", plan.sum_launch.uses_pdl ? ", PDL" : "");
  }
  if (!gradient.by_vectors && gradient.chunks > 0)
    out.add_slow("dy, y and dx are not whole vectors of 16 bytes in every row");
}

}  // namespace flowk::softmax
