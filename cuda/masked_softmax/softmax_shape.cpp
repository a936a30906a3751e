// SPDX-License-Identifier: Apache-2.0
#include "masked_softmax/softmax_shape.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/divide.h"
#include "masked_softmax/softmax_short_shape.h"

namespace flowk {
namespace {

constexpr int64_t chunk_bytes = 16;
constexpr int32_t warp_lanes = 32;

// How rows of up to so many bytes are held: chunks of 16 bytes a thread in registers; the blocks of a cluster; in
// registers by as many threads as that takes, or, with `threads` a block, in registers and shared memory; and how many
// blocks a multiprocessor takes at a time (0: as many as fit). Fractions of copy on an H200 stand with each row.
struct HolderRow {
  int64_t max_row_bytes;
  int32_t vectors_per_thread;
  int32_t cluster_blocks;
  int32_t threads = 0;
  int32_t resident_blocks = 0;
};

// No dense mask and no bias, every column kept. Many chunks a thread and few threads a row: a maximum and a sum over a
// warp cost a third of what they do over a block.
constexpr HolderRow plain_16_bit[] = {
    {128, 2, 1},              // 32 columns: 1.00, 64: 0.99
    {16384, 4, 1},            // 128: 0.99, 512: 0.98, 1024: 0.99, 2048: 0.99, 4096: 0.967, 8192: 0.975
    {32768, 8, 1, 0, 3},      // 16384: 0.965
    {65536, 8, 4, 0, 6},      // 32768: 0.983
    {131072, 8, 8},           // 65536: 0.977, 50257: 0.958
    {262144, 8, 8},           // 131072: 0.96
    {524288, 8, 16},          // 262144: 0.958
    {1048576, 4, 16, 256},    // 524288: 0.85
    {INT64_MAX, 4, 16, 512},  // 2^20: 0.78
};
constexpr HolderRow plain_32_bit[] = {
    {128, 2, 1},              // 32 columns: 0.965; 4 chunks a thread 0.92
    {4096, 4, 1},             // 64: 0.98, 128: 0.99, 512: 0.99, 1024: 0.987
    {8192, 16, 1, 0, 5},      // 2048: 0.987; as many blocks as fit 0.97
    {16384, 16, 1, 0, 6},     // 4096: 0.973; 0.967
    {32768, 16, 1, 0, 3},     // 8192: 0.98; 0.965
    {65536, 8, 4, 0, 6},      // 16384: 0.984; 0.97
    {131072, 8, 2},           // 32768: 0.978
    {524288, 8, 16},          // 65536: 0.969, 131072: 0.92
    {1048576, 4, 16, 256},    // 262144: 0.867; registers 0.82
    {2097152, 4, 16, 512},    // 524288: 0.747; registers 0.64
    {INT64_MAX, 8, 16, 512},  // 2^20: 0.57
};
// Lengths, causal, window; and float32 rows that do not fill warps: 1000 columns without a mask 0.98, by 4 chunks a
// thread 0.95.
constexpr HolderRow interval_16_bit[] = {
    {128, 2, 1},
    {1024, 4, 1},
    {32768, 8, 1},        // 4096: 0.93, 8192: 0.92, 16384: 0.915; 4 chunks a thread 0.87, 0.85
    {65536, 8, 2},        // 32768: 0.905
    {131072, 4, 4, 128},  // 65536: 0.90
    {262144, 4, 8, 128},  // 131072: 0.88
    {524288, 4, 16, 128},
    {1048576, 4, 16, 256},
    {INT64_MAX, 4, 16, 512},
};
constexpr HolderRow interval_32_bit[] = {
    {2048, 4, 1},          {32768, 8, 1},  // 2048: 0.90, 4096: 0.94, 8192: 0.95
    {65536, 4, 2, 128},                    // 16384: 0.89
    {131072, 4, 4, 128},                   // 32768: 0.907
    {262144, 4, 4, 256},                   // 65536: 0.896; 50257 without a mask 0.94, registers 0.85
    {524288, 4, 8, 256},                   // 131072: 0.878
    {1048576, 4, 16, 256}, {2097152, 4, 16, 512}, {INT64_MAX, 8, 16, 512},
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
    {131072, 4, 4},    // 32768: 1.00
    {262144, 4, 8},    // 65536: 0.947; 8 chunks a thread 0.89
    {524288, 8, 8},    // 131072: 0.89; 4 chunks a thread 0.88
    {1048576, 8, 16},  // 262144
};
// With a dense mask.
constexpr HolderRow dense_16_bit[] = {
    {2048, 4, 1},             // 128: 0.89, 512: 0.98, 1024: 1.00
    {16384, 8, 1},            // 2048: 0.95, 4096: 0.94, 8192: 0.948
    {32768, 8, 2},            // 16384: 0.956
    {65536, 8, 4},            // 32768: 0.963
    {131072, 8, 8},           // 65536: 0.969
    {524288, 8, 16},          // 131072: 0.99
    {1048576, 4, 16, 256},    // 524288
    {INT64_MAX, 4, 16, 512},  // 2^20
};
constexpr HolderRow dense_32_bit[] = {
    {1024, 4, 1},           // 128: 0.94
    {4096, 8, 1},           // 512: 0.99, 1024: 0.98; 4 chunks a thread 0.92
    {32768, 16, 1},         // 2048: 0.953, 4096: 0.96, 8192: 0.95; 4 chunks a thread 0.88, 0.83
    {65536, 8, 4},          // 16384: 0.947
    {131072, 8, 8},         // 32768: 0.95
    {262144, 8, 8},         // 65536: 0.93
    {524288, 8, 16},        // 131072: 0.947; shared memory 0.79
    {1048576, 4, 16, 256},  // 262144
    {2097152, 4, 16, 512},  // 2^19
    {INT64_MAX, 8, 16, 512},
};
// Backward: two inputs, both in registers. 128 to 131072 columns reach 1.00 to 1.04 in both types.
constexpr HolderRow backward_16_bit[] = {
    {4096, 2, 1},             // 32 columns: 1.03, 64: 1.02, 512: 1.03, 1024: 1.03, 2048: 1.04
    {32768, 8, 1},            // 4096: 1.02, 8192: 1.02, 16384: 1.02
    {65536, 8, 2},            // 32768: 1.03
    {131072, 4, 8},           // 65536: 1.02, 50257: 0.996; 8 chunks a thread 0.90
    {524288, 4, 16},          // 131072: 1.018, 262144: 0.978; 8 chunks a thread 0.96, 0.91
    {1048576, 8, 16},         // 524288: 0.765; shared memory 0.72
    {INT64_MAX, 8, 16, 512},  // 2^20: 0.62; read twice 0.50
};
constexpr HolderRow backward_32_bit[] = {
    {8192, 2, 1},             // 512: 1.03, 1024: 1.03, 2048: 1.03
    {32768, 4, 1},            // 4096: 1.04, 8192: 1.03
    {65536, 4, 2},            // 16384: 1.04
    {131072, 4, 4},           // 32768: 1.04
    {262144, 4, 8},           // 65536: 1.03
    {524288, 8, 16},          // 131072: 1.004
    {1048576, 4, 16, 512},    // 262144: 0.863; registers 0.82
    {INT64_MAX, 8, 16, 512},  // 524288: 0.667; read twice 0.586
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

const HolderRow* find_holder(const SoftmaxRequest& request, const SoftmaxProblem& problem, int64_t row_bytes) {
  const bool is_16_bit = problem.in_bytes == 2;
  const bool fills_warps = !problem.has_leftovers && request.columns / problem.chunk_columns % warp_lanes == 0;
  if (request.backward) return is_16_bit ? find_row(backward_16_bit, row_bytes) : find_row(backward_32_bit, row_bytes);
  switch (mask_of(request)) {
    case SoftmaxMask::interval:
      if (request.has_diagonal || request.lengths_bytes != 0 || (!is_16_bit && !fills_warps))
        return is_16_bit ? find_row(interval_16_bit, row_bytes) : find_row(interval_32_bit, row_bytes);
      return is_16_bit ? find_row(plain_16_bit, row_bytes) : find_row(plain_32_bit, row_bytes);
    case SoftmaxMask::dense:
      // Long rows with leftover columns as those without a mask: 50257 columns 0.72, registers 0.66 and 0.63.
      if (!problem.has_leftovers || row_bytes <= 65536)
        return is_16_bit ? find_row(dense_16_bit, row_bytes) : find_row(dense_32_bit, row_bytes);
      return is_16_bit ? find_row(interval_16_bit, row_bytes) : find_row(interval_32_bit, row_bytes);
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
  // A few rows over many blocks: of two warps or more.
  while (shape.cluster_blocks > holder.cluster_blocks && vectors > 2 &&
         lanes_for(num_chunks, vectors, shape.cluster_blocks, least) < 2 * warp_lanes)
    vectors /= 2;
  // Without clusters, or without as large ones, a thread holds more.
  while (lanes_for(num_chunks, vectors, shape.cluster_blocks, least) > max_register_lanes && vectors < most_vectors)
    vectors *= 2;
  // Few short rows: more threads a row. 12288 rows of 128 columns, float16 1.12 for 1.03, 1024 of float32 1.08 for
  // 0.85; 3072 of 256 columns of float16 2 chunks a thread, with 1 0.93.
  while (shape.cluster_blocks == 1 && vectors > 1 && lanes_for(num_chunks, vectors / 2, 1, least) <= warp_lanes &&
         problem.num_rows * lanes_for(num_chunks, vectors, 1, least) <
             (vectors > 2 ? 512 : 256) * device.num_multiprocessors)
    vectors /= 2;
  shape.lanes_per_row = lanes_for(num_chunks, vectors, shape.cluster_blocks, least);
  shape.block_threads = shape.cluster_blocks > 1 ? shape.lanes_per_row
                                                 : threads_for(shape.lanes_per_row, vectors * chunk_bytes * num_inputs);
  // And larger blocks: 8192 rows of 512 columns, float16, backward 1.02 for 0.96; without a second input 0.97 for 1.08.
  constexpr int32_t few_rows_threads = 128;
  const int32_t few_blocks = num_inputs == 2 ? 32 : 12;  // of a multiprocessor
  if (shape.lanes_per_row <= warp_lanes && shape.block_threads < few_rows_threads &&
      problem.num_rows * shape.lanes_per_row < few_blocks * shape.block_threads * device.num_multiprocessors)
    shape.block_threads = few_rows_threads;
  // Found with rows that fill their threads (50257 columns, float16: 0.96 without, 0.84 with), and of use where not all
  // blocks are resident at once.
  if (!problem.has_leftovers &&
      problem.num_rows * shape.cluster_blocks > int64_t{holder.resident_blocks} * device.num_multiprocessors)
    shape.resident_blocks = holder.resident_blocks;
  return shape;
}

// In registers and shared memory.
SoftmaxShape shared_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                          const HolderRow& holder, int64_t row_bytes) {
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::row_in_shared;
  shape.vectors_per_thread = holder.threads > 0 ? holder.vectors_per_thread : 4;
  shape.lanes_per_row = shape.block_threads = holder.threads > 0 ? holder.threads : max_register_lanes;
  shape.cluster_blocks = spread_blocks(problem, device, holder.cluster_blocks, row_bytes);
  // Few rows: several clusters read a whole row and each writes a part, unless it is written over what others read.
  // A row of 2^20 columns, float16: 1 cluster 0.26, 2 0.285, 4 0.295; float32 0.19, 0.21, 0.21.
  constexpr int64_t most_blocks = 64;
  if (request.backward || request.pointers[softmax_x] == request.pointers[softmax_out]) return shape;
  while (shape.copies < 4 && problem.num_rows * shape.cluster_blocks * shape.copies * 2 <= most_blocks)
    shape.copies *= 2;
  if (shape.copies > 1) shape.vectors_per_thread = 8;
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

int32_t shared_row_offset(const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  const int32_t bytes =
      softmax_exchange_bytes(problem.in_bytes == 2 ? 4 : 8, shape.lanes_per_row / warp_lanes, shape.cluster_blocks);
  return ceil_div(bytes, int32_t{chunk_bytes}) * int32_t{chunk_bytes};
}

int64_t shared_row_slots(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  // A row is cut from the start of its first line on.
  constexpr int64_t line_bytes = 128;
  bool is_on_lines = reinterpret_cast<uintptr_t>(request.pointers[softmax_x]) % line_bytes == 0;
  for (int d = 0; d < problem.rank; ++d) is_on_lines &= problem.dims[d].strides[softmax_x] % line_bytes == 0;
  const int64_t num_chunks = request.columns / problem.chunk_columns + (is_on_lines ? 0 : line_bytes / chunk_bytes - 1);
  const int64_t lanes = int64_t{shape.lanes_per_row} * shape.cluster_blocks;
  return std::max<int64_t>(ceil_div(num_chunks, lanes) - shape.vectors_per_thread, 0);
}

int64_t shared_row_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  const int64_t num_inputs = request.backward ? 2 : 1;
  return shared_row_slots(request, problem, shape) * shape.block_threads * num_inputs * chunk_bytes;
}

bool shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                const SoftmaxShape& shape) {
  // Where float16's exponents are one instruction, the product of its largest score with the scale has to be finite.
  constexpr double max_float16_scale = 0x1p100;
  const bool is_fused = shape.kernel == SoftmaxKernel::row_in_registers ||
                        shape.kernel == SoftmaxKernel::row_in_shared || shape.kernel == SoftmaxKernel::rows_by_chunks;
  if (is_fused && !request.backward && request.in_dtype == FLOWK_FLOAT16 &&
      std::fabs(request.scale) > max_float16_scale)
    return false;
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
      // Each of several clusters reads the whole row: before any has written it only if it is written elsewhere.
      if (shape.vectors_per_thread != 4 && shape.vectors_per_thread != 8) return false;
      if (shape.copies < 1 || (shape.copies & (shape.copies - 1)) != 0) return false;
      if (shape.copies > 1 && request.pointers[softmax_x] == request.pointers[softmax_out]) return false;
      if (shape.copies > 1 && request.backward) return false;
      return request.in_dtype == request.out_dtype && problem.chunks_agree && mask_of(request) != SoftmaxMask::bias &&
             lanes == shape.block_threads && lanes >= warp_lanes && lanes <= max_register_lanes &&
             shared_row_offset(problem, shape) + shared_row_bytes(request, problem, shape) <=
                 device.shared_bytes_per_block;
    case SoftmaxKernel::rows_by_chunks:
    case SoftmaxKernel::rows_in_lanes:
    case SoftmaxKernel::rows_in_span: return short_shape_fits(request, problem, device, shape);
    case SoftmaxKernel::row_read_twice: return lanes <= max_register_lanes && (blocks == 1 || lanes >= warp_lanes);
    default: return false;
  }
}

namespace {

// The blocks of a grid that all fit at once may start while the grid before ends, all of them where that ends first.
// So no multiprocessor may take more than its share. Fractions of copy, without and with: 19712 rows of 77 columns,
// float16 0.63 and 0.92, float32 0.63 and 0.91; 3072 rows of 256 of float32 0.72 and 1.00; 12288 of 128 0.92 and 1.04.
void spread_evenly(const SoftmaxProblem& problem, const Device& device, SoftmaxShape* shape) {
  constexpr int64_t most_threads = 1024;  // of a multiprocessor: 8 blocks of 128 lost 0.1 by it
  if (device.capability < 90 || shape->cluster_blocks > 1 || shape->lanes_per_row > warp_lanes) return;
  if (shape->kernel == SoftmaxKernel::row_read_twice || shape->resident_blocks > 0) return;
  const int64_t rows_per_thread =
      shape->kernel == SoftmaxKernel::rows_by_chunks ? shape->vectors_per_thread : shape->rows_per_thread;
  const int64_t rows_per_block = shape->block_threads / shape->lanes_per_row * rows_per_thread;
  const int64_t num_blocks = ceil_div(problem.num_rows, rows_per_block);
  const int64_t share = ceil_div(num_blocks, int64_t{device.num_multiprocessors});
  if (share > 1 && share <= 16 && share * shape->block_threads < most_threads)
    shape->resident_blocks = static_cast<int32_t>(share);
}

SoftmaxShape first_that_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device) {
  SoftmaxShape shape;
  const auto take = [&](const SoftmaxShape& candidate) {
    shape = candidate;
    return shape_fits(request, problem, device, candidate);
  };
  if (take(chunks_shape(request, problem))) return shape;
  if (take(lanes_shape(request, problem))) return shape;
  const int64_t row_bytes = request.columns * problem.in_bytes, num_chunks = request.columns / problem.chunk_columns;
  const bool is_16_bit = problem.in_bytes == 2;
  const HolderRow* holder = find_holder(request, problem, row_bytes);
  if (holder != nullptr && holder->threads == 0) {
    const int32_t most_vectors = is_16_bit || request.backward ? 8 : 16;
    const int32_t num_inputs = request.backward || mask_of(request) == SoftmaxMask::bias ? 2 : 1;
    const SoftmaxShape in_registers =
        register_shape(problem, device, *holder, row_bytes, num_chunks, most_vectors, num_inputs);
    if (prefers_span(request, problem, in_registers) && take(span_shape(request, problem, device))) return shape;
    if (take(in_registers)) return shape;
  }
  // Registers that lack the blocks of a cluster hand a row to shared memory.
  if (holder != nullptr && take(shared_shape(request, problem, device, *holder, row_bytes))) return shape;
  return read_twice_shape(request, problem, device);
}

}  // namespace

SoftmaxShape choose_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device) {
  SoftmaxShape shape = first_that_fits(request, problem, device);
  spread_evenly(problem, device, &shape);
  return shape;
}

}  // namespace flowk
