// SPDX-License-Identifier: Apache-2.0
// framed_rows: chooses the threads that take a row, and lays out the shared memory of a block's rows.
#include <algorithm>
#include <cstdint>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"
#include "softmax/plan/softmax_tuning.h"

namespace flowk::softmax {
namespace {

// Are the lengths of all rows less than 2 GB apart?
bool has_near_lengths(const SoftmaxCall& call) {
  const OperandMemory memory = memory_of(call, softmax_lengths, 0);
  return memory.end - memory.first < int64_t{1} << 31;
}

// Bytes of shared memory for a block's rows, which start anywhere in a sector.
int64_t sectors_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return round_up(segment_bytes(call, config) + sector_bytes - vector_bytes, int64_t{sector_bytes});
}

// Bytes of shared memory: a block's rows of x, or of dy and, if their threads do not hold them, of y.
int64_t vectors_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  const int64_t frame_vectors =
      ceil_div(call.request.columns + call.vector_columns - first_column_step(call, call.vector_columns),
               int64_t{call.vector_columns});
  const bool are_held =
      frame_vectors <= max_kernel_vectors(query_of(call, SoftmaxKernel::framed_rows)) * config.lanes_per_row;
  return (call.request.backward && !are_held ? 2 : 1) * sectors_bytes(call, config);
}

// With what the threads of each row share.
int64_t shared_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return vectors_bytes(call, config) + rows_per_block(config) * segment_row_bytes;
}

}  // namespace

// Few rows have more threads per row and smaller blocks.
SoftmaxConfig choose_framed_rows(const SoftmaxCall& call) {
  constexpr auto bound = &SoftmaxFramedRow::max_row_bytes;
  const SoftmaxFramedRow& row = call.request.backward ? find_tuning_row(framed_gradients, bound, call.row_bytes)
                                : call.in_bytes == 2  ? find_tuning_row(framed_softmax_16_bit, bound, call.row_bytes)
                                                      : find_tuning_row(framed_softmax_32_bit, bound, call.row_bytes);
  constexpr int64_t threads_per_multiprocessor = 512, blocks_per_multiprocessor = 8;
  const int64_t num_rows = call.rows.num_rows, num_multiprocessors = call.device.num_multiprocessors;
  int32_t lanes = row.lanes_per_row, threads = row.block_threads;
  while (lanes < warp_lanes && num_rows * lanes < threads_per_multiprocessor * num_multiprocessors) lanes *= 2;
  while (threads > warp_lanes && num_rows * lanes < threads * blocks_per_multiprocessor * num_multiprocessors)
    threads /= 2;
  SoftmaxConfig config;
  config.mechanism = FramedRows{};
  config.lanes_per_row = lanes;
  config.block_threads = threads;
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const FramedRows&) {
  const bool negates_x = !call.request.backward && call.request.scale < 0;
  return is_one_run(call) && config.cluster_blocks == 1 && call.has_interval && !negates_x &&
         call.request.columns >= 2 * call.vector_columns && call.rows.num_rows < max_framed_number &&
         has_near_lengths(call) && config.lanes_per_row >= 2 && config.lanes_per_row <= warp_lanes &&
         shared_bytes(call, config) <= call.device.shared_bytes_per_block;
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const FramedRows&) {
  return find_kernel(query_of(call, SoftmaxKernel::framed_rows, 1));
}

void fill(const SoftmaxCall& call, FramedRows& mechanism, SoftmaxPlan* plan) {
  const SoftmaxRequest& request = call.request;
  const auto clamp = [](int64_t n) {
    return static_cast<int32_t>(std::clamp(n, -max_framed_number, max_framed_number));
  };
  mechanism.diagonal_begin = clamp(request.diagonal_begin);
  mechanism.diagonal_end = clamp(request.diagonal_end);
  mechanism.through_l1 = call.row_bytes <= framed_cached_row_bytes;
  mechanism.second_offset_bytes = static_cast<int32_t>(sectors_bytes(call, plan->config));
  mechanism.rows_offset_bytes = static_cast<int32_t>(vectors_bytes(call, plan->config));
  plan->launch.shared_bytes = static_cast<int32_t>(shared_bytes(call, plan->config));
}

}  // namespace flowk::softmax
