// SPDX-License-Identifier: Apache-2.0
// Sizes in shared memory, and the limits that follow from them, which plans and kernels of softmax both need.
#pragma once

#include "softmax/softmax_kernel_table.h"

namespace flowk::softmax {

// A warp's partial result of a row: its maximum, and the sum of exponentials in float64 if x is not of 16 bits.
constexpr int partial_result_bytes(int element_bytes) { return element_bytes == 2 ? 8 : 16; }

// To reduce a row over num_warps warps in each of cluster_blocks blocks: a barrier, and a partial result of each warp.
constexpr int exchange_barrier_bytes = 16;
FLOWK_HOST_DEVICE constexpr int exchange_bytes(int partial_bytes, int num_warps, int cluster_blocks) {
  return exchange_barrier_bytes + partial_bytes * num_warps * cluster_blocks;
}
// The same in whole vectors: the bytes from an exchange to what follows it.
FLOWK_HOST_DEVICE constexpr int exchange_step_bytes(int partial_bytes, int num_warps, int cluster_blocks) {
  return exchange_barrier_bytes +
         (partial_bytes * num_warps * cluster_blocks + vector_bytes - 1) / vector_bytes * vector_bytes;
}

// row_in_registers: the vectors of memory that contain `vectors` of an unaligned row, and one for what the last of them
// reads after it.
FLOWK_HOST_DEVICE constexpr int stage_vectors(int vectors) { return vectors + 2; }

// persistent_rows: threads per block, and the most batches per row: a warp has one lane for each batch of two rows. Two
// exchanges, for this row and the next, between the warps of a block and between the blocks of a cluster.
constexpr int persistent_threads = max_row_threads;
constexpr int max_persistent_batches = 16;
constexpr int persistent_exchanges = 2;
constexpr int persistent_exchange_bytes(int partial_bytes, int cluster_blocks) {
  return persistent_exchanges * (exchange_step_bytes(partial_bytes, persistent_threads / warp_lanes, 1) +
                                 exchange_step_bytes(partial_bytes, 1, cluster_blocks));
}

// split_row: the vectors at the start of a row of out that hold a counter and one partial result per slice.
FLOWK_HOST_DEVICE constexpr int slice_slot_vectors(int partial_bytes, int slices) {
  return 1 + (slices * partial_bytes + vector_bytes - 1) / vector_bytes;
}

// staged_rows: columns per unit, and the longest rows that one thread takes by single columns. A block has two barriers
// of 8 bytes, and in front of a mask a table with an entry for each run of its rows, one that ends it, and a
// vector, because up to 16 bytes before the first and after the last row are read.
constexpr int staged_unit_columns = 4;
constexpr int max_staged_columns = 20;
constexpr int max_rows_per_thread = 16;
constexpr int staged_barrier_bytes = 16;
constexpr int max_mask_runs = 16;
constexpr int mask_run_bytes = 16;
constexpr int mask_table_bytes = (max_mask_runs + 2) * mask_run_bytes + vector_bytes;
static_assert(mask_table_bytes % vector_bytes == 0);

// Its rows of a whole block: the maxima of the block's warps in shared memory, then their sums.
constexpr int max_staged_warps = max_staged_lanes / warp_lanes;
constexpr int staged_partials_bytes = max_staged_warps * 8;
FLOWK_HOST_DEVICE constexpr int staged_exchange_bytes(int lanes_per_row) {
  return lanes_per_row > warp_lanes ? 2 * staged_partials_bytes : 0;
}

// The mask of a row is read whole. Under lengths, causal and window flowk.h promises that no longer rows are.
constexpr int max_staged_interval_columns = 1280;

// strided_rows: partial results from one thread of a row to the next. With a pitch of `rows` there would be bank
// conflicts.
FLOWK_HOST_DEVICE constexpr int strided_pitch(int rows) { return rows + 1; }

// framed_rows: the number of rows, and the diagonals, are less than max_framed_number. The threads of a row share
// segment_row_bytes of shared memory.
constexpr int64_t max_framed_number = int64_t{1} << 30;
constexpr int segment_row_bytes = 16;

}  // namespace flowk::softmax
