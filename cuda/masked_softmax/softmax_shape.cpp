// SPDX-License-Identifier: Apache-2.0
#include "masked_softmax/softmax_shape.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "core/divide.h"

namespace flowk {
namespace {

constexpr int64_t chunk_bytes = 16;
constexpr int32_t warp_lanes = 32;

// How rows of up to so many bytes are held: in registers, chunks of 16 bytes a thread, lanes as many as the row has
// chunks for; or in shared memory (0 chunks a thread), by so many threads a block. And by how many blocks. Fractions of
// copy on an H200 stand with each row.
struct HolderRow {
  int64_t max_row_bytes;
  int32_t vectors_per_thread;
  int32_t cluster_blocks;
  int32_t shared_threads = 0;
};
// No dense mask and no bias. Many chunks a thread and few threads a row: a maximum and a sum over a warp cost a third
// of what they do over a block. 2048 columns of float16 with 4 chunks for 2 of twice the threads: 0.99 for 0.89; 1024
// of float32 with 8 for 2: 0.98 for 0.71.
constexpr HolderRow interval_16_bit[] = {
    {128, 2, 1},              // 32 columns: 1.00, 64: 0.99
    {8192, 4, 1},             // 128: 0.99, 512: 0.98, 1024: 0.99, 2048: 0.985, 4096: 0.96
    {16384, 8, 1},            // 8192: 0.975
    {32768, 4, 2},            // 16384: 0.97; one block 0.96
    {65536, 4, 8},            // 32768: 0.94
    {131072, 0, 4, 256},      // 65536: 0.90, on another day 0.98; registers 0.88
    {262144, 0, 8, 256},      // 131072: 0.89; registers 0.73
    {1048576, 0, 16, 256},    // 262144: 0.865, 524288: 0.79; 512 threads 0.76
    {INT64_MAX, 0, 16, 512},  // 2^20: 0.50, with 128 KB a block
};
constexpr HolderRow interval_32_bit[] = {
    {2048, 4, 1},       // 32 columns: 0.97, 64: 0.98, 128: 0.99, 512: 0.99
    {4096, 8, 1},       // 1024: 0.98
    {8192, 16, 1},      // 2048: 0.965
    {32768, 8, 1},      // 4096: 0.96, 8192: 0.965
    {65536, 8, 4},      // 16384: 0.97
    {131072, 8, 8},     // 32768: 0.97
    {262144, 8, 16},    // 65536: 0.97
    {524288, 8, 16},    // 131072: 0.92; 16 chunks a thread 0.905
    {2097152, 16, 16},  // 262144: 0.81, 524288: 0.63; shared memory 0.47
    {INT64_MAX, 0, 16, 512},
};
// A bias: its scores are float32 and stay in registers.
constexpr HolderRow bias_16_bit[] = {
    {1024, 2, 1},      // to 512 columns
    {32768, 4, 1},     // to 16384
    {65536, 4, 4},     // 32768
    {131072, 4, 8},    // 65536
    {524288, 4, 16},   // to 262144
    {1048576, 8, 16},  // to 524288
};
constexpr HolderRow bias_32_bit[] = {
    {16384, 4, 1},     // to 4096 columns
    {65536, 8, 1},     // to 16384
    {131072, 8, 2},    // 32768
    {262144, 8, 4},    // 65536
    {524288, 8, 8},    // 131072
    {1048576, 8, 16},  // 262144
};
// With a dense mask.
constexpr HolderRow dense_16_bit[] = {
    {8192, 4, 1},             // 128: 0.89, 512: 0.98, 1024: 0.985, 2048: 0.97, 4096: 0.945
    {16384, 8, 1},            // 8192: 0.95
    {32768, 4, 2},            // 16384: 0.93
    {65536, 4, 8},            // 32768: 0.90
    {262144, 8, 8},           // 65536: 0.86, 131072: 0.93; shared memory 0.79 and 0.88
    {524288, 8, 16},          // 262144
    {INT64_MAX, 0, 16, 512},  // 2^20
};
constexpr HolderRow dense_32_bit[] = {
    {1024, 4, 1},             // 128: 0.94
    {4096, 8, 1},             // 512: 0.99, 1024: 0.98; 4 chunks a thread 0.92
    {32768, 16, 1},           // 2048: 0.95, 4096: 0.96, 8192: 0.95; 4 chunks a thread 0.88, 0.83
    {65536, 8, 4},            // 16384: 0.95
    {131072, 8, 8},           // 32768: 0.95; shared memory 0.69
    {262144, 8, 8},           // 65536: 0.935
    {524288, 8, 16},          // 131072: 0.95
    {1048576, 16, 16},        // 262144
    {INT64_MAX, 0, 16, 512},  // 2^19
};
// Backward: two inputs, both in registers. 128 to 131072 columns reach 1.00 to 1.04 in both types.
constexpr HolderRow backward_16_bit[] = {
    {4096, 2, 1},      // 32 columns: 1.03, 64: 1.02, 512: 1.03, 1024: 1.03, 2048: 1.04
    {32768, 8, 1},     // 4096: 1.02, 8192: 1.02, 16384: 1.02
    {65536, 8, 2},     // 32768: 1.03
    {131072, 8, 4},    // 65536: 1.02
    {262144, 8, 8},    // 131072: 1.01
    {1048576, 8, 16},  // 262144: 0.95, 524288: 0.80
};
constexpr HolderRow backward_32_bit[] = {
    {8192, 2, 1},      // 512: 1.03, 1024: 1.03, 2048: 1.03
    {32768, 4, 1},     // 4096: 1.04, 8192: 1.03
    {65536, 4, 2},     // 16384: 1.04
    {131072, 4, 4},    // 32768: 1.04
    {262144, 4, 8},    // 65536: 1.03
    {524288, 4, 16},   // 131072: 1.02
    {1048576, 8, 16},  // 262144: 0.91
};

// Rows that lie in single warps go several to a block, so that a block reads at least so much: an H200 starts blocks at
// some rate, and those of 2 KB cannot come faster than 0.82 of copy, whatever else they do. float16, fractions of copy
// with blocks of 2, 4, 8 and 16 KB: 32 columns 0.83, 1.006, 1.013, -; 128: 0.82, 0.99, 0.974, 0.974; 512: 0.82, 1.00,
// 0.98, 0.98; lengths 128: 0.74, 0.83, 0.83, 0.79; float32 128: 0.81, 0.99, 0.976, 0.976.
constexpr int64_t short_rows_block_bytes = 4096;
constexpr int32_t least_short_row_threads = 64;
constexpr int32_t most_short_row_threads = 256;

template <size_t kSize>
const HolderRow* find_row(const HolderRow (&table)[kSize], int64_t row_bytes) {
  for (const HolderRow& row : table)
    if (row_bytes <= row.max_row_bytes) return &row;
  return nullptr;
}

const HolderRow* find_holder(const SoftmaxRequest& request, SoftmaxMask mask, int64_t row_bytes, bool is_16_bit) {
  if (request.backward) return is_16_bit ? find_row(backward_16_bit, row_bytes) : find_row(backward_32_bit, row_bytes);
  switch (mask) {
    case SoftmaxMask::interval:
      return is_16_bit ? find_row(interval_16_bit, row_bytes) : find_row(interval_32_bit, row_bytes);
    case SoftmaxMask::dense: return is_16_bit ? find_row(dense_16_bit, row_bytes) : find_row(dense_32_bit, row_bytes);
    case SoftmaxMask::bias: break;
  }
  return is_16_bit ? find_row(bias_16_bit, row_bytes) : find_row(bias_32_bit, row_bytes);
}

int32_t power_of_2_from(int64_t n) {
  int32_t power = 1;
  while (power < n) power *= 2;
  return power;
}

// The fewest lanes that hold a row of `num_chunks`, in whole warps or the part of one that shuffles allow.
int32_t lanes_for(int64_t num_chunks, int32_t vectors, int32_t blocks, int32_t least) {
  const int64_t lanes = std::max<int64_t>(ceil_div(num_chunks, int64_t{vectors} * blocks), least);
  if (blocks == 1 && lanes <= warp_lanes) return power_of_2_from(lanes);
  return static_cast<int32_t>(std::min<int64_t>(ceil_div(lanes, warp_lanes) * warp_lanes, 1 << 20));
}

// The leftover columns of a row, up to a chunk's less one at either end, are one a lane.
int32_t least_lanes(const SoftmaxProblem& problem) {
  return problem.has_leftovers ? power_of_2_from(2 * (problem.chunk_columns - 1)) : 1;
}

// `thread_bytes`: what a thread reads of a row.
int32_t threads_for(int32_t lanes, int64_t thread_bytes) {
  if (lanes > warp_lanes) return lanes;
  return std::clamp(power_of_2_from(ceil_div(short_rows_block_bytes, thread_bytes)), least_short_row_threads,
                    most_short_row_threads);
}

int32_t most_cluster_blocks(const Device& device) {
  if (device.capability < 90) return 1;
  return device.capability == 90 || device.capability / 10 == 10 ? max_cluster_blocks : 8;
}

bool has_register_kernel(const SoftmaxRequest& request) {
  if (request.in_dtype == request.out_dtype) return true;
  // float32 scores to 16-bit probabilities, and the gradients back.
  return request.backward ? request.out_dtype == FLOWK_FLOAT32 : request.in_dtype == FLOWK_FLOAT32;
}

int32_t shared_row_offset(const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  return softmax_exchange_bytes(problem.in_bytes == 2 ? 4 : 8, shape.lanes_per_row / warp_lanes, shape.cluster_blocks);
}

// Blocks a row: those wanted, as far as there are clusters of them; more for a few long rows, so that they fill the
// GPU, as long as each block has 4 KB of a row.
int32_t spread_blocks(const SoftmaxProblem& problem, const Device& device, int32_t blocks, int64_t row_bytes) {
  constexpr int64_t least_block_bytes = 4096;
  const int32_t most_blocks = most_cluster_blocks(device);
  blocks = std::min(blocks, most_blocks);
  while (blocks < most_blocks && problem.num_rows * blocks < device.num_multiprocessors &&
         row_bytes / (2 * blocks) >= least_block_bytes)
    blocks *= 2;
  return blocks;
}

// In registers of a block or of as many blocks as the table or a small number of rows asks for; where those hold it.
SoftmaxShape register_shape(const SoftmaxProblem& problem, const Device& device, const HolderRow& holder,
                            int64_t row_bytes, int64_t num_chunks, int32_t most_vectors, int32_t num_inputs) {
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::row_in_registers;
  const int32_t least = least_lanes(problem);
  int32_t& vectors = shape.vectors_per_thread;
  vectors = holder.vectors_per_thread;
  shape.cluster_blocks = spread_blocks(problem, device, holder.cluster_blocks, row_bytes);
  // Without clusters, or without as large ones, a thread holds more.
  while (lanes_for(num_chunks, vectors, shape.cluster_blocks, least) > max_register_lanes && vectors < most_vectors)
    vectors *= 2;
  shape.lanes_per_row = lanes_for(num_chunks, vectors, shape.cluster_blocks, least);
  shape.block_threads = threads_for(shape.lanes_per_row, vectors * chunk_bytes * num_inputs);
  return shape;
}

SoftmaxShape shared_shape(const SoftmaxProblem& problem, const Device& device, int32_t threads, int32_t blocks,
                          int64_t row_bytes) {
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::row_in_shared;
  shape.lanes_per_row = shape.block_threads = threads;
  shape.cluster_blocks = spread_blocks(problem, device, blocks, row_bytes);
  return shape;
}

// Rows of 2^n chunks, and few of them.
SoftmaxShape chunks_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  constexpr int64_t max_row_bytes[] = {32, 64};  // of 16 and of 32 bits: longer ones have threads of their own
  SoftmaxShape shape;
  const int64_t num_chunks = request.columns / problem.chunk_columns;
  if (request.columns * problem.in_bytes > max_row_bytes[problem.in_bytes == 2 ? 0 : 1]) return shape;
  shape.kernel = SoftmaxKernel::rows_by_chunks;
  shape.vectors_per_thread = request.backward ? 2 : 4;
  shape.lanes_per_row = static_cast<int32_t>(std::max<int64_t>(num_chunks, 1));
  shape.block_threads = least_short_row_threads;
  return shape;
}

// Rows of up to 4 chunks a lane of which an interval is kept.
SoftmaxShape lanes_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  constexpr int32_t most_vectors = 4;
  const int64_t num_chunks = request.columns / problem.chunk_columns;
  SoftmaxShape shape;
  if (num_chunks > most_vectors * warp_lanes) return shape;
  shape.kernel = SoftmaxKernel::rows_in_lanes;
  shape.vectors_per_thread = std::min(power_of_2_from(num_chunks), most_vectors);
  shape.lanes_per_row = lanes_for(num_chunks, shape.vectors_per_thread, 1, 1);
  shape.block_threads = least_short_row_threads;
  return shape;
}

// Blocks of a cluster have 32 KB of a row or more, so that their second reading finds it in L2.
SoftmaxShape read_twice_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device) {
  constexpr int32_t elements_per_lane = 8;
  constexpr int64_t block_bytes = 32768;
  const int64_t row_bytes = request.columns * problem.in_bytes;
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::row_read_twice;
  shape.lanes_per_row = std::min(lanes_for(request.columns, elements_per_lane, 1, 1), max_register_lanes);
  shape.block_threads = threads_for(shape.lanes_per_row, elements_per_lane * problem.in_bytes);
  if (shape.lanes_per_row == max_register_lanes) {
    int32_t blocks = 1;
    while (blocks < max_cluster_blocks && row_bytes / (2 * blocks) >= block_bytes) blocks *= 2;
    shape.cluster_blocks = spread_blocks(problem, device, blocks, row_bytes);
  }
  return shape;
}

}  // namespace

SoftmaxMask mask_of(const SoftmaxRequest& request) {
  if (request.backward) return SoftmaxMask::interval;
  if (request.pointers[softmax_side] != nullptr) return SoftmaxMask::bias;
  return request.pointers[softmax_dense] != nullptr ? SoftmaxMask::dense : SoftmaxMask::interval;
}

bool rows_are_one_run(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  if (request.in_dtype != request.out_dtype || problem.in_bytes > 4 || !problem.chunks_agree) return false;
  if (problem.band_dim != 0) return false;
  for (const SoftmaxOperand operand : {softmax_x, softmax_out, softmax_side}) {
    if (request.pointers[operand] == nullptr) continue;
    int64_t stride = request.columns * problem.in_bytes;
    for (int d = 0; d < problem.rank; ++d) {
      if (problem.dims[d].strides[operand] != stride) return false;
      stride *= problem.dims[d].extent;
    }
  }
  return true;
}

bool has_interval(const SoftmaxRequest& request) { return request.has_diagonal || request.lengths_bytes != 0; }

int64_t shared_row_vectors(const SoftmaxProblem& problem, int64_t columns, const SoftmaxShape& shape) {
  return ceil_div(columns / problem.chunk_columns, shape.cluster_blocks);
}

int64_t shared_row_bytes(const SoftmaxProblem& problem, int64_t columns, const SoftmaxShape& shape) {
  return ceil_div(shared_row_offset(problem, shape), chunk_bytes) * chunk_bytes +
         shared_row_vectors(problem, columns, shape) * chunk_bytes;
}

bool shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                const SoftmaxShape& shape) {
  const int32_t lanes = shape.lanes_per_row;
  if (lanes < 1 || shape.block_threads < 1 || shape.block_threads % warp_lanes != 0) return false;
  if (lanes < warp_lanes ? (lanes & (lanes - 1)) != 0 : lanes % warp_lanes != 0) return false;
  if (shape.block_threads != lanes && (lanes > warp_lanes || shape.block_threads % lanes != 0)) return false;
  const int32_t blocks = shape.cluster_blocks;
  if (blocks < 1 || blocks > most_cluster_blocks(device) || (blocks & (blocks - 1)) != 0) return false;
  if (blocks > 1 && shape.block_threads != lanes) return false;
  switch (shape.kernel) {
    case SoftmaxKernel::row_in_registers: {
      const int32_t vectors = shape.vectors_per_thread;
      if (!has_register_kernel(request) || !problem.chunks_agree || lanes > max_register_lanes) return false;
      if (vectors < 1 || vectors > (problem.in_bytes == 2 || request.backward ? 8 : 16) ||
          (vectors & (vectors - 1)) != 0)
        return false;
      return lanes >= least_lanes(problem) &&
             request.columns / problem.chunk_columns <= int64_t{lanes} * vectors * blocks;
    }
    case SoftmaxKernel::row_in_shared:
      return !request.backward && request.in_dtype == request.out_dtype && problem.chunks_agree &&
             mask_of(request) != SoftmaxMask::bias && lanes == shape.block_threads && lanes >= warp_lanes &&
             lanes <= max_register_lanes &&
             shared_row_bytes(problem, request.columns, shape) <= device.shared_bytes_per_block;
    case SoftmaxKernel::rows_in_span: return span_shape_fits(request, problem, device, shape);
    case SoftmaxKernel::rows_in_lanes: {
      const int32_t vectors = shape.vectors_per_thread;
      if (vectors != 4 && (lanes > 1 || (vectors != 1 && vectors != 2))) return false;
      return blocks == 1 && lanes <= warp_lanes && shape.block_threads <= 128 && !request.backward &&
             has_interval(request) && mask_of(request) == SoftmaxMask::interval && !problem.has_leftovers &&
             rows_are_one_run(request, problem) && problem.num_rows < int64_t{1} << 31 &&
             request.columns / problem.chunk_columns <= int64_t{lanes} * vectors;
    }
    case SoftmaxKernel::rows_by_chunks:
      return blocks == 1 && !has_interval(request) && shape.vectors_per_thread == (request.backward ? 2 : 4) &&
             shape.block_threads <= 256 && lanes <= 8 && mask_of(request) == SoftmaxMask::interval &&
             rows_are_one_run(request, problem) && !problem.has_leftovers &&
             request.columns == int64_t{lanes} * problem.chunk_columns;
    case SoftmaxKernel::row_read_twice: return lanes <= max_register_lanes && (blocks == 1 || lanes >= warp_lanes);
    default: return false;
  }
}

SoftmaxShape choose_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device) {
  SoftmaxShape shape;
  const auto take = [&](const SoftmaxShape& candidate) {
    shape = candidate;
    return shape_fits(request, problem, device, candidate);
  };
  if (take(chunks_shape(request, problem))) return shape;
  if (take(lanes_shape(request, problem))) return shape;
  const int64_t row_bytes = request.columns * problem.in_bytes, num_chunks = request.columns / problem.chunk_columns;
  const bool is_16_bit = problem.in_bytes == 2;
  const HolderRow* holder = find_holder(request, mask_of(request), row_bytes, is_16_bit);
  if (holder != nullptr && holder->vectors_per_thread > 0) {
    const int32_t most_vectors = is_16_bit || request.backward ? 8 : 16;
    const int32_t num_inputs = request.backward || mask_of(request) == SoftmaxMask::bias ? 2 : 1;
    const SoftmaxShape in_registers =
        register_shape(problem, device, *holder, row_bytes, num_chunks, most_vectors, num_inputs);
    if (prefers_span(request, problem, in_registers) && take(span_shape(request, problem, device))) return shape;
    if (take(in_registers)) return shape;
  }
  // Registers that lack the blocks of a cluster hand a row to shared memory.
  if (holder != nullptr) {
    const int32_t threads = holder->shared_threads > 0 ? holder->shared_threads : max_register_lanes;
    if (take(shared_shape(problem, device, threads, holder->cluster_blocks, row_bytes))) return shape;
  }
  return read_twice_shape(request, problem, device);
}

}  // namespace flowk
