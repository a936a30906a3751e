// SPDX-License-Identifier: Apache-2.0
// rows_by_vectors and rows_in_lanes take short rows of whole vectors that lie one after the other: chooses their
// threads per row.
#include <algorithm>
#include <cstdint>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {
namespace {

constexpr int32_t block_threads = 64;  // 4 KB per block

}  // namespace

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const RowsByVectors& mechanism) {
  return find_kernel(query_of(call, SoftmaxKernel::rows_by_vectors, mechanism.rows_per_thread));
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const RowsInLanes& mechanism) {
  return find_kernel(query_of(call, SoftmaxKernel::rows_in_lanes, mechanism.vectors_per_thread));
}

// Longer rows have threads of their own.
SoftmaxConfig choose_rows_by_vectors(const SoftmaxCall& call) {
  SoftmaxConfig config;
  if (call.row_bytes > (call.in_bytes == 2 ? rows_by_vectors_16_bit_bytes : rows_by_vectors_32_bit_bytes))
    return config;
  config.mechanism =
      RowsByVectors{.rows_per_thread = max_kernel_vectors(query_of(call, SoftmaxKernel::rows_by_vectors))};
  config.lanes_per_row = static_cast<int32_t>(std::max<int64_t>(call.row_vectors, 1));
  config.block_threads = block_threads;
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const RowsByVectors&) {
  return is_one_run(call) && !call.has_interval && !call.has_tails && config.cluster_blocks == 1 &&
         config.lanes_per_row <= 8 && call.row_vectors == config.lanes_per_row;
}

// The fewest threads that hold a row, but two for rows of 3 and 4 vectors.
SoftmaxConfig choose_rows_in_lanes(const SoftmaxCall& call) {
  SoftmaxConfig config;
  constexpr int32_t max_vectors = 4;
  if (call.row_vectors > max_vectors * warp_lanes) return config;
  const int32_t vectors = call.row_vectors <= max_vectors ? max_vectors / 2 : max_vectors;
  config.lanes_per_row = power_of_2_from(ceil_div(call.row_vectors, vectors));
  config.mechanism =
      RowsInLanes{.vectors_per_thread = static_cast<int32_t>(ceil_div(call.row_vectors, config.lanes_per_row))};
  const bool has_large_blocks = !call.is_power_of_2 || call.row_vectors <= rows_in_lanes_large_block_vectors;
  config.block_threads = has_large_blocks ? 2 * block_threads : block_threads;
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const RowsInLanes& mechanism) {
  return is_one_run(call) && call.has_interval && !call.has_tails && config.cluster_blocks == 1 &&
         config.lanes_per_row <= warp_lanes && call.rows.num_rows < int64_t{1} << 31 &&
         call.row_vectors <= int64_t{config.lanes_per_row} * mechanism.vectors_per_thread;
}

}  // namespace flowk::softmax
