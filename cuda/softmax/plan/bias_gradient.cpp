// SPDX-License-Identifier: Apache-2.0
// bias_gradient: groups the rows that share a row of the bias, chooses chunks of them and threads, and says so.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

#include "core/divide.h"
#include "core/dtype.h"
#include "core/text_writer.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"
#include "softmax/softmax_bias_gradient.h"

namespace flowk::softmax {
namespace {

// Row "bias_gradient: chunks" of bench/tuning/softmax_h200.json.
// thread_vectors: a row costs each of its threads as much as this number of vectors, besides the vectors themselves.
// good_block_threads: rows of up to a warp share blocks of this size.
// near_bytes: the neighbouring rows of a block have this much of dy together, if the grid has good_threads. The other
//   rows of the block are further chunks of the same rows of the bias.
// min_block_chunk_members: a chunk has at least this number of members, because the sums of all chunks are added up.
// min_chunk_members: the same if several blocks have chunks of one row of the bias. Their sums are written to memory.
// max_blocks: several blocks have chunks of one row of the bias until the grid has this many blocks.
constexpr int32_t thread_vectors = 2, good_block_threads = 128;
constexpr int64_t near_bytes = 512, good_threads = 65536;
constexpr int64_t min_block_chunk_members = 4, min_chunk_members = 8, max_blocks = 1024;
// Of bias_gradient_of_chunks: partials that a thread loads at once.
constexpr int32_t partials_in_flight = 8;

// The number of threads that share a row, which lies in at most `vectors` vectors.
int32_t lanes_of_frame(int64_t vectors) {
  int32_t found = max_bias_gradient_threads;
  int64_t least = INT64_MAX;
  for (int32_t lanes = 1; lanes <= max_bias_gradient_threads; lanes += lanes < warp_lanes ? lanes : warp_lanes) {
    const int64_t own = ceil_div(vectors, int64_t{lanes}), cost = lanes * (own + thread_vectors);
    if (own > max_bias_gradient_vectors || cost >= least) continue;
    least = cost;
    found = lanes;
  }
  return found;
}

// What depends on the sizes alone, and so does the order of all sums over rows.
struct BiasGradientLayout {
  int32_t sum_bytes, width, lanes, block_threads, block_rows, groups_shift, block_chunks, chunk_blocks;
  int32_t exchange_offset_bytes;
  int64_t num_group_blocks, row_sums, block_sums;
  bool has_whole_vectors, sums_are_shared;

  BiasGradientLayout(const BiasGradientSizes& sizes, const Device& device) {
    const int32_t element_bytes = dtype_info(sizes.y_dtype).element_bytes;
    sum_bytes = std::max(element_bytes, 4);
    width = vector_bytes / element_bytes;
    has_whole_vectors = sizes.columns % width == 0;
    lanes = lanes_of_frame(ceil_div(sizes.columns + (has_whole_vectors ? 0 : width - 1), int64_t{width}));
    block_threads = lanes > warp_lanes ? lanes : good_block_threads;
    block_rows = block_threads / lanes;  // a power of 2, as all numbers of rows of a block
    choose_chunks(sizes, element_bytes);
    // As ColumnSums has them. Neighbouring rows of a warp, wherever they start in a vector, are added to different
    // banks.
    const int64_t places = sizes.columns + (has_whole_vectors ? 0 : 2 * width), pack = vector_bytes / sum_bytes;
    row_sums = places + (has_whole_vectors ? places / 32 * pack : places / width);
    const int64_t past_bank = has_whole_vectors ? pack : sizes.columns + std::max(lanes * width / 32, 1);
    row_sums += (past_bank + 2 * width - row_sums % (2 * width)) % (2 * width);
    block_sums = round_up(row_sums * block_rows, pack);
    const int32_t num_warps = std::max(lanes / warp_lanes, 1);
    exchange_offset_bytes = static_cast<int32_t>(
        round_up(2 * exchange_step_bytes(partial_result_bytes(element_bytes), num_warps, 1), line_bytes));
    sums_are_shared = exchange_offset_bytes + block_sums * sum_bytes <= device.shared_bytes_per_block;
  }
  int64_t chunks() const { return int64_t{block_chunks} * chunk_blocks; }
  int64_t num_blocks() const { return num_group_blocks * chunk_blocks; }
  int64_t partials_bytes(const BiasGradientSizes& sizes) const {
    return chunk_blocks > 1 ? round_up(chunk_blocks * sizes.groups * sizes.columns * sum_bytes, line_bytes) : 0;
  }

 private:
  void choose_chunks(const BiasGradientSizes& sizes, int32_t element_bytes) {
    const int64_t most_chunks = std::max<int64_t>(sizes.members / min_chunk_members, 1);
    // From a member to the next one, in elements past whole vectors; members `period` apart start at the same element
    // of a vector. Both if the rows are contiguous.
    const auto member_step = static_cast<int32_t>(static_cast<uint64_t>(sizes.member_rows) *
                                                  static_cast<uint64_t>(sizes.columns) % static_cast<uint64_t>(width));
    const int64_t most_block_chunks = std::max<int64_t>(sizes.members / min_block_chunk_members, 1);
    int32_t period = width / std::gcd(width, member_step);
    if (period > most_block_chunks) period = 1;
    int64_t near_rows = 1;
    if (sizes.member_rows != 1 && sizes.groups >= ceil_div(good_threads, std::min(most_chunks, good_threads) * lanes))
      near_rows = power_of_2_from(ceil_div(near_bytes, sizes.columns * element_bytes));
    near_rows = std::min<int64_t>(near_rows, std::max(block_rows / period, 1));
    block_chunks = static_cast<int32_t>(std::min<uint64_t>(std::bit_floor(static_cast<uint64_t>(most_block_chunks)),
                                                           static_cast<uint64_t>(block_rows / near_rows)));
    const int32_t block_groups = block_rows / block_chunks;
    groups_shift = std::countr_zero(static_cast<uint32_t>(block_groups));
    num_group_blocks = ceil_div(sizes.groups, int64_t{block_groups});
    const int64_t good_blocks =
        std::min(max_blocks / std::min(num_group_blocks, max_blocks), most_chunks / block_chunks);
    // All chunks together are whole periods, if there are that many.
    const int64_t step = std::max(period / block_chunks, 1), blocks = std::max(good_blocks, int64_t{1});
    chunk_blocks = sizes.members == 0 ? 0 : static_cast<int32_t>(blocks < step ? blocks : blocks / step * step);
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

// Does bias_gradient_in_registers take the call: can the threads of a block hold its rows?
bool holds_rows(const SoftmaxCall& call, const BiasGradient& gradient, const BiasGradientLayout& layout) {
  // batch_invariant: the compiler may round sums of vectors in registers and of others in different ways.
  return call.request.in_dtype != FLOWK_FLOAT64 && !call.request.log_softmax && !call.request.batch_invariant &&
         gradient.by_vectors && call.is_one_type && gradient.vectors_per_thread <= max_bias_gradient_vectors &&
         (layout.sums_are_shared || (!gradient.has_edges && layout.block_chunks == 1)) &&
         (!gradient.has_edges || call.request.columns >= 2 * layout.width);
}

// Do all members of a chunk start at the same element of a vector?
bool have_one_phase(const SoftmaxRows& rows, const BiasGradient& gradient, const BiasGradientLayout& layout) {
  if (!gradient.has_edges || gradient.members <= layout.chunks()) return true;
  const auto is_whole = [](int64_t step) { return step % vector_bytes == 0; };
  return rows.dims[0].extent >= gradient.members && std::all_of(gradient.steps, gradient.steps + 3, is_whole);
}

}  // namespace

int64_t bias_gradient_workspace_bytes(const BiasGradientSizes& sizes, const Device& device) {
  const BiasGradientLayout layout(sizes, device);
  return layout.partials_bytes(sizes) +
         (layout.sums_are_shared ? 0 : layout.num_blocks() * layout.block_sums * layout.sum_bytes);
}

void plan_bias_gradient(const BiasGradientRequest& request, const Device& device, BiasGradientPlan* plan) {
  const SoftmaxCall call(request.softmax, device);
  SoftmaxRows rows = call.rows;
  BiasGradient& gradient = plan->gradient;
  gradient.members = put_members_first(&rows);
  gradient.groups = rows.num_rows / gradient.members;
  const BiasGradientSizes& sizes = request.sizes;
  const BiasGradientLayout layout(sizes, device);
  plan->in_dtype = call.request.in_dtype;
  fill_params(call, rows, layout.lanes, layout.block_threads / layout.lanes, &plan->params);

  gradient.dbias = static_cast<unsigned char*>(request.dbias);
  gradient.dbias_dtype = request.dbias_dtype;
  gradient.groups_shift = layout.groups_shift;
  gradient.block_chunks = layout.block_chunks;
  gradient.num_group_blocks = layout.num_group_blocks;
  gradient.chunk_blocks = layout.chunk_blocks;
  gradient.columns = WideDivider(static_cast<uint64_t>(call.request.columns));
  // Frames start with the vector that has the row's first column. batch_invariant: a row's first vector starts with its
  // first column wherever the row lies.
  gradient.has_edges = !layout.has_whole_vectors;
  gradient.has_frames = !call.request.batch_invariant && call.vectors_agree && gradient.has_edges;
  gradient.by_vectors = call.vectors_agree && !call.is_unaligned && (gradient.has_edges || !call.has_tails);
  const int64_t frame_columns = call.request.columns + (gradient.has_frames ? layout.width - 1 : 0);
  gradient.vectors_per_thread = static_cast<int32_t>(ceil_div(frame_columns, int64_t{layout.width} * layout.lanes));
  gradient.has_steps = !call.has_interval && rows.dims[0].extent >= gradient.members;
  const SoftmaxOperand stepped[] = {softmax_x, softmax_bias_or_y, softmax_out};
  for (int k = 0; k < 3; ++k) gradient.steps[k] = rows.dims[0].strides[stepped[k]] * layout.chunks();
  gradient.in_registers = holds_rows(call, gradient, layout);
  // batch_invariant: the compiler may round sums of several vectors in another way.
  if (gradient.by_vectors && !gradient.has_edges && !call.has_interval && !call.request.log_softmax &&
      !call.request.batch_invariant)
    gradient.vectors_at_once = bias_gradient_vectors_at_once;
  gradient.has_one_phase = have_one_phase(rows, gradient, layout);
  const SoftmaxOperand inputs[] = {softmax_x, softmax_bias_or_y};
  for (int k = 0; k < 2; ++k) {
    const OperandMemory memory = memory_of(call, inputs[k], call.row_bytes);
    gradient.memory[k] = memory.first;
    gradient.memory_end[k] = memory.end;
  }
  auto* const workspace = static_cast<unsigned char*>(request.workspace);
  if (layout.chunk_blocks > 1) {
    gradient.group_blocks = Divider(static_cast<uint32_t>(layout.num_group_blocks));
    gradient.partials = workspace;
  }
  gradient.row_sums = layout.row_sums;
  gradient.block_sums = layout.block_sums;
  gradient.sums_offset_bytes = layout.exchange_offset_bytes;
  const bool has_sums = !gradient.in_registers || layout.block_chunks > 1 || !gradient.has_one_phase;
  if (has_sums && !layout.sums_are_shared) gradient.sums = workspace + layout.partials_bytes(sizes);
  const int64_t shared_sums = has_sums && layout.sums_are_shared ? layout.block_sums : 0;
  plan->launch = {.num_blocks = layout.num_blocks(),
                  .num_threads = layout.block_threads,
                  .shared_bytes = layout.exchange_offset_bytes + static_cast<int32_t>(shared_sums) * layout.sum_bytes,
                  .uses_pdl = device.runs_pdl()};
  if (layout.chunk_blocks == 1) return;
  const int64_t warps =
      std::clamp<int64_t>(ceil_div(layout.chunk_blocks, partials_in_flight), 1, max_bias_gradient_threads / warp_lanes);
  plan->sum_launch = {.num_blocks = ceil_div(gradient.groups * call.request.columns, int64_t{warp_lanes}),
                      .num_threads = static_cast<int32_t>(warps * warp_lanes),
                      .shared_bytes = static_cast<int32_t>(warps * warp_lanes * layout.sum_bytes),
                      .uses_pdl = device.runs_pdl()};
}

void explain_bias_gradient(const BiasGradientPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  const BiasGradient& gradient = plan.gradient;
  const SoftmaxParams& params = plan.params;
  const int64_t members = gradient.chunk_blocks == 0 ? 0 : gradient.members;
  if (text_bytes > 0) text[0] = '\0';
  out.add("%s: the threads of a row take one after the other of the rows that share a row of the bias\n",
          gradient.in_registers ? "bias_gradient_in_registers" : "bias_gradient");
  out.add("  backward %s to %s%s: %lld row%s of %d columns, each shared by %lld row%s\n",
          dtype_info(plan.in_dtype).name, dtype_info(gradient.dbias_dtype).name,
          params.out == nullptr ? "" : ", and dx", static_cast<long long>(gradient.groups), plural(gradient.groups),
          params.columns, static_cast<long long>(members), plural(members));
  if (gradient.chunk_blocks == 0) out.add("  dbias is set to zeros\n");
  if (plan.launch.num_blocks > 0) {
    out.add("  row: %d thread%s of a block, %d vector%s of 16 bytes per thread%s", params.lanes_per_row,
            plural(params.lanes_per_row), gradient.vectors_per_thread, plural(gradient.vectors_per_thread),
            gradient.by_vectors ? "" : ", by single elements");
    if (params.rows_per_block > 1)
      out.add("; %d rows per block, of %d rows of the bias", params.rows_per_block, 1 << gradient.groups_shift);
    out.add("; sums in %s\n", gradient.in_registers      ? "registers"
                              : gradient.sums == nullptr ? "shared memory"
                                                         : "the workspace");
    out.add_launch(plan.launch.num_blocks, plan.launch.num_threads, plan.launch.shared_bytes);
    out.add("%s\n", plan.launch.uses_pdl ? ", PDL" : "");
  }
  if (gradient.chunk_blocks > 1) out.add("  then the sum of %d blocks of these rows\n", gradient.chunk_blocks);
  if (plan.sum_launch.num_blocks > 0) {
    out.add_launch(plan.sum_launch.num_blocks, plan.sum_launch.num_threads, plan.sum_launch.shared_bytes);
    out.add("%s\n", plan.sum_launch.uses_pdl ? ", PDL" : "");
  }
  if (gradient.chunk_blocks == 0) return;
  if (!gradient.by_vectors)
    out.add_slow("dy, y and dx start at different elements of a vector of 16 bytes, or the call is batch-invariant");
  else if (!gradient.in_registers)
    out.add_slow(
        "dy and y are loaded twice: rows of one type that a block holds, without log_softmax and batch_invariant, "
        "run faster");
}

}  // namespace flowk::softmax
