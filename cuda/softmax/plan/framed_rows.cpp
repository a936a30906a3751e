// SPDX-License-Identifier: Apache-2.0
// framed_rows: chooses the threads that take a row's frame, the aligned vectors that contain the row, and lays out the
// shared memory of a block's rows.
#include <algorithm>
#include <cstdint>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"
#include "softmax/plan/softmax_tuning.h"

namespace flowk::softmax {
namespace {

// The most vectors that contain a row.
int64_t frame_vectors(const SoftmaxCall& call) {
  return ceil_div(call.request.columns + call.vector_columns - first_column_step(call, call.vector_columns),
                  int64_t{call.vector_columns});
}

int32_t vectors_per_thread(const SoftmaxCall& call, int32_t lanes) {
  return static_cast<int32_t>(std::min<int64_t>(ceil_div(frame_vectors(call), int64_t{lanes}), INT32_MAX));
}

// Are the lengths of all rows less than 2 GB apart?
bool has_near_lengths(const SoftmaxCall& call) {
  const OperandMemory memory = memory_of(call, softmax_lengths, 0);
  return memory.end - memory.first < int64_t{1} << 31;
}

// Bytes of shared memory, forward: a block's rows, and what the threads of each row share.
int64_t shared_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return segment_bytes(call, config) + rows_per_block(config) * segment_row_bytes;
}

// Forward. Few rows have more threads per row and smaller blocks.
void choose_softmax_threads(const SoftmaxCall& call, SoftmaxConfig* config) {
  constexpr auto bound = &SoftmaxFramedRow::max_row_bytes;
  const SoftmaxFramedRow& row = call.in_bytes == 2 ? find_tuning_row(framed_softmax_16_bit, bound, call.row_bytes)
                                                   : find_tuning_row(framed_softmax_32_bit, bound, call.row_bytes);
  constexpr int64_t threads_per_multiprocessor = 512, blocks_per_multiprocessor = 8;
  const int64_t num_rows = call.rows.num_rows, num_multiprocessors = call.device.num_multiprocessors;
  int32_t lanes = row.lanes_per_row, threads = row.block_threads;
  while (lanes < warp_lanes && num_rows * lanes < threads_per_multiprocessor * num_multiprocessors) lanes *= 2;
  while (threads > warp_lanes && num_rows * lanes < threads * blocks_per_multiprocessor * num_multiprocessors)
    threads /= 2;
  config->lanes_per_row = lanes;
  config->block_threads = threads;
}

}  // namespace

SoftmaxConfig choose_framed_rows(const SoftmaxCall& call) {
  SoftmaxConfig config;
  config.mechanism = FramedRows{};
  if (!call.request.backward) {
    choose_softmax_threads(call, &config);
    return config;
  }
  const int32_t max_vectors = max_kernel_vectors(query_of(call, SoftmaxKernel::framed_rows));
  if (max_vectors == 0) return config;
  int64_t least = INT64_MAX;
  const auto take = [&](int32_t lanes) {
    const int32_t vectors = vectors_per_thread(call, lanes);
    const int64_t cost = lanes * (vectors + framed_thread_vectors);
    if (vectors > max_vectors || cost > least) return;
    least = cost;
    config.lanes_per_row = lanes;
  };
  for (int32_t lanes = framed_min_lanes; lanes < warp_lanes; lanes *= 2) take(lanes);
  for (int32_t lanes = warp_lanes; lanes <= framed_max_lanes; lanes += warp_lanes) take(lanes);
  config.block_threads = config.lanes_per_row > warp_lanes ? config.lanes_per_row : framed_threads;
  return config;
}

int64_t framed_vectors(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return int64_t{config.lanes_per_row} * vectors_per_thread(call, config.lanes_per_row);
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const FramedRows&) {
  return is_one_run(call) && config.cluster_blocks == 1 && call.has_interval &&
         call.request.columns >= 2 * call.vector_columns && call.rows.num_rows < max_framed_number &&
         has_near_lengths(call) &&
         (call.request.backward || (config.lanes_per_row >= 2 && config.lanes_per_row <= warp_lanes &&
                                    shared_bytes(call, config) <= call.device.shared_bytes_per_block));
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const FramedRows&) {
  const int32_t vectors = call.request.backward ? vectors_per_thread(call, config.lanes_per_row) : 1;
  return find_kernel(query_of(call, SoftmaxKernel::framed_rows, vectors));
}

void fill(const SoftmaxCall& call, FramedRows& mechanism, SoftmaxPlan* plan) {
  const SoftmaxRequest& request = call.request;
  mechanism.vectors_per_thread = vectors_per_thread(call, plan->config.lanes_per_row);
  const bool has_edges = first_column_step(call, call.vector_columns) < call.vector_columns;
  mechanism.shares_ends = plan->config.lanes_per_row < warp_lanes && has_edges;
  const auto clamp = [](int64_t n) {
    return static_cast<int32_t>(std::clamp(n, -max_framed_number, max_framed_number));
  };
  mechanism.diagonal_begin = clamp(request.diagonal_begin);
  mechanism.diagonal_end = clamp(request.diagonal_end);
  const bool has_window = request.has_diagonal && mechanism.diagonal_begin > -max_framed_number;
  mechanism.starts_late = has_window || (request.lengths_bytes != 0 && request.lengths_from_right);
  if (request.backward) return;
  mechanism.rows_offset_bytes = static_cast<int32_t>(segment_bytes(call, plan->config));
  plan->launch.shared_bytes = static_cast<int32_t>(shared_bytes(call, plan->config));
}

}  // namespace flowk::softmax
