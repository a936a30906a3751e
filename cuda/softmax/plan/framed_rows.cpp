// SPDX-License-Identifier: Apache-2.0
// framed_rows: chooses the threads that hold a row's frame, the aligned vectors that contain the row, and lays out the
// shared memory that results leave through.
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

// Bytes of shared memory, forward: what the warps of a row exchange; with the results of a block's rows, and what the
// threads of each row share.
int64_t exchanged_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  if (config.lanes_per_row <= warp_lanes) return 0;
  return framed_exchanges *
         exchange_step_bytes(partial_result_bytes(call.in_bytes), config.lanes_per_row / warp_lanes, 1);
}

int64_t shared_bytes(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return exchanged_bytes(call, config) + segment_bytes(call, config) + rows_per_block(config) * segment_row_bytes;
}

}  // namespace

SoftmaxConfig choose_framed_rows(const SoftmaxCall& call) {
  SoftmaxConfig config;
  config.mechanism = FramedRows{};
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
  const int32_t short_row_threads = call.request.backward ? framed_threads : framed_softmax_threads;
  config.block_threads = config.lanes_per_row > warp_lanes ? config.lanes_per_row : short_row_threads;
  return config;
}

int64_t framed_vectors(const SoftmaxCall& call, const SoftmaxConfig& config) {
  return int64_t{config.lanes_per_row} * vectors_per_thread(call, config.lanes_per_row);
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const FramedRows&) {
  return is_one_run(call) && config.cluster_blocks == 1 && call.has_interval &&
         call.request.columns >= 2 * call.vector_columns && call.rows.num_rows < max_framed_number &&
         has_near_lengths(call) &&
         (call.request.backward || shared_bytes(call, config) <= call.device.shared_bytes_per_block);
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig& config, const FramedRows&) {
  return find_kernel(query_of(call, SoftmaxKernel::framed_rows, vectors_per_thread(call, config.lanes_per_row)));
}

void fill(const SoftmaxCall& call, FramedRows& mechanism, SoftmaxPlan* plan) {
  const SoftmaxRequest& request = call.request;
  mechanism.vectors_per_thread = vectors_per_thread(call, plan->config.lanes_per_row);
  mechanism.has_edges = first_column_step(call, call.vector_columns) < call.vector_columns;
  mechanism.shares_ends = plan->config.lanes_per_row < warp_lanes && mechanism.has_edges;
  const auto clamp = [](int64_t n) {
    return static_cast<int32_t>(std::clamp(n, -max_framed_number, max_framed_number));
  };
  mechanism.diagonal_begin = clamp(request.diagonal_begin);
  mechanism.diagonal_end = clamp(request.diagonal_end);
  const bool has_window = request.has_diagonal && mechanism.diagonal_begin > -max_framed_number;
  mechanism.starts_late = has_window || (request.lengths_bytes != 0 && request.lengths_from_right);
  if (request.backward) return;
  mechanism.results_offset_bytes = static_cast<int32_t>(exchanged_bytes(call, plan->config));
  mechanism.rows_offset_bytes =
      mechanism.results_offset_bytes + static_cast<int32_t>(segment_bytes(call, plan->config));
  plan->launch.shared_bytes = static_cast<int32_t>(shared_bytes(call, plan->config));
}

}  // namespace flowk::softmax
