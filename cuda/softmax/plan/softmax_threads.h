// SPDX-License-Identifier: Apache-2.0
// Declares the rules for threads, blocks and shared memory that several mechanisms share.
#pragma once

#include "softmax/plan/softmax_call.h"

namespace flowk::softmax {

int32_t power_of_2_from(int64_t n);

// The fewest lanes >= `min_threads` that hold a row of `num_vectors` in `blocks` blocks: whole warps, or 2^n lanes of
// one.
int32_t lanes_for(int64_t num_vectors, int32_t vectors_per_thread, int32_t blocks = 1, int32_t min_threads = 1);

// The query for kernels of the mechanism that take the call.
SoftmaxKernelQuery query_of(const SoftmaxCall& call, SoftmaxKernel mechanism, int32_t vectors = 0);

// The fewest lanes of a row: head and tail have fewer columns than a vector each, and each of these columns a lane.
int32_t min_lanes(const SoftmaxCall& call);

// Threads per block, if a thread reads `thread_bytes` of a row: rows of less than a warp share a block of at least
// `min_threads` threads.
int32_t block_threads_for(int32_t lanes_per_row, int64_t thread_bytes, int32_t min_threads);

int32_t device_cluster_blocks(const Device& device);

// `blocks`, or the most that a cluster of the device has; more for a few long rows, until they fill the GPU or a block
// has 4 KB of a row.
int32_t cluster_blocks_for(const SoftmaxCall& call, int32_t blocks);

// Do the rows of x, out and, backward, y lie one after the other, as elements of one type of at most 4 bytes?
bool is_one_run(const SoftmaxCall& call);

// Of such rows: they start at multiples of this number of columns in aligned units of `unit_columns` columns.
int64_t first_column_step(const SoftmaxCall& call, int64_t unit_columns);

// Do neighbouring rows of the output share a row of the operand?
bool rows_share(const SoftmaxCall& call, SoftmaxOperand operand);

int32_t rows_per_block(const SoftmaxConfig& config);

// Bytes of shared memory for a block's rows of x, which may start and end inside a vector.
int64_t segment_bytes(const SoftmaxCall& call, const SoftmaxConfig& config);

// Bytes of shared memory that the blocks of a row reduce it through.
int32_t exchange_bytes(const SoftmaxCall& call, const SoftmaxConfig& config);

// Vectors per thread if a row is cut into threads' vectors from the start of its first 128-byte line.
int64_t vectors_from_line(const SoftmaxCall& call, const SoftmaxConfig& config);

// Are `vectors_per_thread` enough for such a row, at any start in a line?
bool fits_from_line(const SoftmaxCall& call, const SoftmaxConfig& config, int64_t vectors_per_thread);

// Limits the blocks per multiprocessor to their share if all blocks are resident at once: without the limit some
// multiprocessors take more, above all while the stream's previous grid still runs.
void balance_blocks(const SoftmaxCall& call, SoftmaxConfig* config);

}  // namespace flowk::softmax
