// SPDX-License-Identifier: Apache-2.0
// Implements the rules for threads, blocks and shared memory that several mechanisms share.
#include "softmax/plan/softmax_threads.h"

#include <algorithm>
#include <bit>

#include "core/divide.h"
#include "softmax/plan/softmax_tuning.h"

namespace flowk::softmax {

int32_t power_of_2_from(int64_t n) {
  return static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

int32_t lanes_for(int64_t num_vectors, int32_t vectors_per_thread, int32_t blocks, int32_t min_threads) {
  const int64_t lanes = std::max<int64_t>(ceil_div(num_vectors, int64_t{vectors_per_thread} * blocks), min_threads);
  if (blocks == 1 && lanes <= warp_lanes) return power_of_2_from(lanes);
  return static_cast<int32_t>(std::min<int64_t>(round_up(lanes, warp_lanes), 1 << 20));
}

SoftmaxKernelQuery query_of(const SoftmaxCall& call, SoftmaxKernel mechanism, int32_t vectors) {
  return {.mechanism = mechanism,
          .backward = call.request.backward,
          .element_bytes = call.in_bytes,
          .mask = call.mask,
          .vectors = vectors,
          .row_values = call.has_row_values,
          .sinks = call.request.numbers[row_sink] != nullptr,
          .row_scale = call.request.numbers[row_scale] != nullptr,
          .score_terms = call.has_score_terms};
}

int32_t min_lanes(const SoftmaxCall& call) {
  return call.has_tails ? power_of_2_from(2 * (call.vector_columns - 1)) : 1;
}

int32_t block_threads_for(int32_t lanes_per_row, int64_t thread_bytes, int32_t min_threads) {
  if (lanes_per_row > warp_lanes) return lanes_per_row;
  return std::clamp(power_of_2_from(ceil_div(short_rows_block_bytes, thread_bytes)), min_threads,
                    max_short_row_threads);
}

int32_t device_cluster_blocks(const Device& device) {
  if (device.capability < 90) return 1;
  return device.capability == 90 || device.capability / 10 == 10 ? max_cluster_blocks : 8;
}

int32_t cluster_blocks_for(const SoftmaxCall& call, int32_t blocks) {
  constexpr int64_t min_block_bytes = 4096;
  const int32_t max_blocks = device_cluster_blocks(call.device);
  blocks = std::min(blocks, max_blocks);
  while (blocks < max_blocks && call.expected_rows * blocks < call.device.num_multiprocessors &&
         call.row_bytes / (2 * blocks) >= min_block_bytes)
    blocks *= 2;
  return blocks;
}

bool is_one_run(const SoftmaxCall& call) {
  if (!call.is_one_type || !call.vectors_agree) return false;
  const SoftmaxRows& rows = call.output_rows;
  const auto is_run = [&](SoftmaxOperand operand) {
    return rows.rank == 0 || (rows.dims[0].strides[operand] == call.row_bytes && has_one_stride(rows, operand));
  };
  return is_run(softmax_x) && is_run(softmax_out) && (!call.request.backward || is_run(softmax_bias_or_y));
}

bool rows_share(const SoftmaxCall& call, SoftmaxOperand operand) {
  return call.output_rows.dims[0].strides[operand] == 0;
}

int64_t first_column_step(const SoftmaxCall& call, int64_t unit_columns) {
  const auto first =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(call.request.pointers[softmax_x])) / call.in_bytes;
  const int64_t any = first | call.request.columns | unit_columns;
  return any & -any;  // the greatest common divisor, because unit_columns is a power of 2
}

int32_t rows_per_block(const SoftmaxConfig& config) {
  const int32_t rows_per_thread = std::visit(
      [](const auto& mechanism) {
        if constexpr (requires { mechanism.rows_per_thread; }) return mechanism.rows_per_thread;
        return 1;
      },
      config.mechanism);
  return config.block_threads / config.lanes_per_row * rows_per_thread;
}

int64_t segment_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return round_up(rows_per_block(config) * call.row_bytes + vector_bytes - call.in_bytes, vector_bytes);
}

int32_t exchange_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  const int32_t element_bytes = config.kernel() == SoftmaxKernel::two_pass_row ? 8 : call.in_bytes;
  return exchange_bytes(partial_result_bytes(element_bytes), std::max(config.lanes_per_row / warp_lanes, 1),
                        config.cluster_blocks);
}

int64_t vectors_from_line(const SoftmaxCall& call, const SoftmaxConfig& config) {
  const bool starts_on_line = is_aligned(call, softmax_x, line_bytes);
  return ceil_div(call.row_vectors + (starts_on_line ? 0 : line_bytes / vector_bytes - 1),
                  int64_t{config.lanes_per_row} * config.cluster_blocks);
}

bool fits_from_line(const SoftmaxCall& call, const SoftmaxConfig& config, int64_t vectors_per_thread) {
  return call.row_vectors + line_bytes / vector_bytes - 1 <=
         vectors_per_thread * config.lanes_per_row * config.cluster_blocks;
}

void balance_blocks(const SoftmaxCall& call, SoftmaxConfig* config) {
  if (call.device.capability < 90 || config->cluster_blocks > 1 || config->lanes_per_row > warp_lanes) return;
  if (config->kernel() == SoftmaxKernel::two_pass_row || config->resident_blocks > 0) return;
  const int64_t num_blocks = ceil_div(call.rows.num_rows, rows_per_block(*config));
  const int64_t share = ceil_div(num_blocks, call.device.num_multiprocessors);
  if (share > 1 && share <= 16 && share * config->block_threads < max_balanced_threads)
    config->resident_blocks = static_cast<int32_t>(share);
}

}  // namespace flowk::softmax
