// SPDX-License-Identifier: Apache-2.0
#include "softmax/softmax_shape.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/divide.h"
#include "softmax/softmax_holder.h"
#include "softmax/softmax_short_shape.h"

namespace flowk::softmax {
namespace {

constexpr int64_t vector_bytes = 16;
constexpr int32_t warp_lanes = 32;

// Rows that lie in single warps go several to a block, so that a block reads at least so much: an H200 starts blocks at
// some rate, and those of 2 KB cannot come faster than 0.82 of copy, whatever else they do. float16, fractions of copy
// with blocks of 2, 4, 8 and 16 KB: 32 columns 0.83, 1.006, 1.013, -; 128: 0.82, 0.99, 0.974, 0.974; 512: 0.82, 1.00,
// 0.98, 0.98; lengths 128: 0.74, 0.83, 0.83, 0.79; float32 128: 0.81, 0.99, 0.976, 0.976.
constexpr int64_t short_rows_block_bytes = 4096;
constexpr int32_t least_short_row_threads = 64;
// Of ragged rows with one input: warps that run the same code together, where there is much of it. 1001 columns with a
// dense mask, float16 0.92 for 0.90, float32 0.955 for 0.93; 640 without a mask, float16 1.00 for 0.96.
constexpr int32_t least_ragged_row_threads = 128;
constexpr int32_t most_short_row_threads = 256;

int32_t power_of_2_from(int64_t n) {
  int32_t power = 1;
  while (power < n) power *= 2;
  return power;
}

// The fewest lanes that hold a row of `num_vectors`, in whole warps or the part of one that shuffles allow.
int32_t lanes_for(int64_t num_vectors, int32_t vectors, int32_t blocks, int32_t least) {
  const int64_t lanes = std::max<int64_t>(ceil_div(num_vectors, int64_t{vectors} * blocks), least);
  if (blocks == 1 && lanes <= warp_lanes) return power_of_2_from(lanes);
  return static_cast<int32_t>(std::min<int64_t>(ceil_div(lanes, warp_lanes) * warp_lanes, 1 << 20));
}

// The leftover columns of a row, up to a vector's less one at either end, are one a lane.
int32_t least_lanes(const SoftmaxProblem& problem) {
  return problem.has_leftovers ? power_of_2_from(2 * (problem.vector_columns - 1)) : 1;
}

// `thread_bytes`: what a thread reads of a row.
int32_t threads_for(int32_t lanes, int64_t thread_bytes, int32_t least) {
  if (lanes > warp_lanes) return lanes;
  return std::clamp(power_of_2_from(ceil_div(short_rows_block_bytes, thread_bytes)), least, most_short_row_threads);
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

// The vectors of a thread: the most of row_in_registers, and those that row_in_shared has in registers where the table
// asks for `wanted`.
int32_t most_register_vectors(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  return problem.in_bytes == 4 && !request.backward && mask_of(request) != SoftmaxMask::bias ? 16 : 8;
}
int32_t held_vectors(const SoftmaxRequest& request, const SoftmaxProblem& problem, int32_t wanted) {
  return problem.in_bytes == 4 && !request.backward && mask_of(request) == SoftmaxMask::none ? wanted : 4;
}

// In registers of a block or of as many blocks as the table or a small number of rows asks for; where those hold it.
SoftmaxShape register_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                            const HolderRow& holder, int64_t row_bytes) {
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::row_in_registers;
  const int64_t num_vectors = request.columns / problem.vector_columns;
  const int32_t most_vectors = most_register_vectors(request, problem);
  const int32_t num_inputs = request.backward || mask_of(request) == SoftmaxMask::bias ? 2 : 1;
  const bool is_ragged = is_ragged_row(request, problem);
  const bool is_plain =
      !request.backward && mask_of(request) == SoftmaxMask::none && !request.has_diagonal && request.lengths_bytes == 0;
  const int32_t least = least_lanes(problem);
  int32_t& vectors = shape.vectors_per_thread;
  vectors = std::min(holder.vectors_per_thread, most_vectors);
  int32_t least_blocks = holder.cluster_blocks;
  if (is_ragged) {
    // No blocks of 3 warps or less: 41429 columns of float16 0.95 by 4 blocks of 192 threads, 0.88 by 8 of 96.
    while (least_blocks > 1 && lanes_for(num_vectors, vectors, least_blocks, least) <= 3 * warp_lanes)
      least_blocks /= 2;
    // Backward, more vectors a thread where fewer lanes lack one: 344 columns of float16 1.01 by 16 lanes with 3
    // vectors, 0.81 by 32 with 1 or 2; 293 of float32 1.01 and 0.70.
    const auto vectors_with_gaps = [&](int32_t n) {
      const int64_t lanes = lanes_for(num_vectors, n, 1, least);
      return ceil_div(num_vectors, lanes) * lanes;
    };
    if (request.backward && vectors == 2 && vectors_with_gaps(4) < vectors_with_gaps(2)) vectors = 4;
    // Fewer vectors a thread where threads have much less room for vectors that are not there: 1536 columns of float32
    // 0.99 by 96 threads, 0.95 by 64; 5120 of float16 with a dense mask 0.90 by 160, 0.83 by 96.
    const auto room = [&](int32_t n) { return int64_t{n} * lanes_for(num_vectors, n, 1, least); };
    if (num_inputs == 1 && least_blocks == 1 && vectors == 8 && 8 * room(4) <= 7 * room(8) &&
        (mask_of(request) == SoftmaxMask::dense || (problem.in_bytes == 4 && is_plain)))
      vectors = 4;
  }
  shape.cluster_blocks = spread_blocks(problem, device, least_blocks, row_bytes);
  // A few rows over many blocks: of two warps or more, to 8 warps of 4 vectors a thread. 4 rows of 131072 columns of
  // float16 0.66 for 0.60, 1 row of 32768 of float32 0.56 for 0.52, backward 0.66 for 0.57.
  const auto lanes_with = [&](int32_t n) { return lanes_for(num_vectors, n, shape.cluster_blocks, least); };
  while (shape.cluster_blocks > least_blocks && ((vectors > 2 && lanes_with(vectors) < 2 * warp_lanes) ||
                                                 (vectors > 4 && lanes_with(vectors / 2) <= 8 * warp_lanes)))
    vectors /= 2;
  // Without clusters, or without as large ones, a thread holds more.
  while (lanes_for(num_vectors, vectors, shape.cluster_blocks, least) > max_register_lanes && vectors < most_vectors)
    vectors *= 2;
  // Few short rows: more threads a row. 12288 rows of 128 columns, float16 1.12 for 1.03, 1024 of float32 1.08 for
  // 0.85; 3072 of 256 columns of float16 2 vectors a thread, with 1 0.93.
  while (shape.cluster_blocks == 1 && vectors > 1 && lanes_for(num_vectors, vectors / 2, 1, least) <= warp_lanes &&
         problem.num_rows * lanes_for(num_vectors, vectors, 1, least) <
             (vectors > 2 ? 512 : 256) * device.num_multiprocessors)
    vectors /= 2;
  // Plain rows of float32 with columns outside whole vectors that fill threads of 16: 1001 columns 0.965 for 0.925,
  // 2001 0.973 for 0.929; those that do not fill them, or need more than a warp, lose: 777 columns 0.91 for 0.947, 3706
  // 0.90 for 0.93.
  const int32_t lanes_of_16 = lanes_for(num_vectors, 16, 1, least);
  if (is_plain && problem.has_leftovers && problem.in_bytes == 4 && vectors == 8 && shape.cluster_blocks == 1 &&
      lanes_of_16 <= warp_lanes && 10 * num_vectors >= 9 * 16 * lanes_of_16)
    vectors = 16;
  shape.lanes_per_row = lanes_for(num_vectors, vectors, shape.cluster_blocks, least);
  shape.block_threads = shape.cluster_blocks > 1 ? shape.lanes_per_row
                                                 : threads_for(shape.lanes_per_row, vectors * vector_bytes * num_inputs,
                                                               is_ragged && num_inputs == 1 ? least_ragged_row_threads
                                                                                            : least_short_row_threads);
  // And larger blocks: 8192 rows of 512 columns, float16, backward 1.02 for 0.96; without a second input 0.97 for 1.08.
  constexpr int32_t few_rows_threads = 128;
  const int32_t few_blocks = num_inputs == 2 ? 32 : 12;  // of a multiprocessor
  if (shape.lanes_per_row <= warp_lanes && shape.block_threads < few_rows_threads &&
      problem.num_rows * shape.lanes_per_row < few_blocks * shape.block_threads * device.num_multiprocessors)
    shape.block_threads = few_rows_threads;
  // As many blocks as multiprocessors: 1024 rows of 128 columns, float16, 1.07 for 0.89.
  while (shape.lanes_per_row <= warp_lanes && shape.block_threads > 2 * warp_lanes &&
         problem.num_rows * shape.lanes_per_row < int64_t{shape.block_threads} * device.num_multiprocessors)
    shape.block_threads /= 2;
  // Found with rows that fill their threads (50257 columns, float16: 0.96 without, 0.84 with; 13056 0.96 and 0.89), and
  // of use where not all blocks are resident at once.
  if (!is_ragged &&
      problem.num_rows * shape.cluster_blocks > int64_t{holder.resident_blocks} * device.num_multiprocessors)
    shape.resident_blocks = holder.resident_blocks;
  return shape;
}

// In registers and shared memory.
SoftmaxShape shared_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                          const HolderRow& holder, int64_t row_bytes) {
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::row_in_shared;
  shape.vectors_per_thread = held_vectors(request, problem, holder.threads > 0 ? holder.vectors_per_thread : 4);
  shape.lanes_per_row = shape.block_threads = holder.threads > 0 ? holder.threads : max_register_lanes;
  shape.cluster_blocks = spread_blocks(problem, device, holder.cluster_blocks, row_bytes);
  return shape;
}

// Rows that are cut into slices. 128 of 2^20 columns, float32 backward 0.61; read twice by clusters 0.57.
constexpr int64_t least_sliced_bytes = 1 << 20;

// Slices of 8 vectors a thread, or less where that leaves multiprocessors idle; a launch reads 16 MB of x, which L2
// still has for the second one. 128 rows of 2^20 columns, float32 backward: 0.61; launches of 8 MB 0.53, 4 vectors a
// thread 0.54.
SoftmaxShape slices_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device) {
  constexpr int32_t threads = 256, vectors_per_thread = 8, most_slices = 512;
  constexpr int64_t launch_bytes = 16 << 20;
  const int64_t num_vectors = request.columns / problem.vector_columns;
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::split_row;
  shape.lanes_per_row = shape.block_threads = threads;
  const auto is_too_few = [&](int64_t slices) {
    return num_vectors > slices * threads * vectors_per_thread ||
           (problem.num_rows * slices < device.num_multiprocessors && num_vectors >= 2 * slices * threads);
  };
  while (shape.slices < most_slices && is_too_few(shape.slices)) shape.slices *= 2;
  shape.rows_per_launch = std::clamp<int64_t>(launch_bytes / (request.columns * problem.in_bytes), 1, problem.num_rows);
  return shape;
}

// By clusters that stay, of which a row each fills the GPU: where the last turn leaves few of them without a row. What
// the GPU's parts leave over is one cluster (H200: 15 of 8 blocks and 7 of 16 are resident on 132 multiprocessors).
SoftmaxShape turn_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                        const HolderRow& holder) {
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::persistent_rows;
  shape.vectors_per_thread = request.backward ? 2 : 4;
  shape.lanes_per_row = shape.block_threads = turn_threads;
  shape.cluster_blocks = holder.turn_blocks;
  const int32_t most_clusters = device.num_multiprocessors / std::max(holder.turn_blocks, 1);
  const int64_t resident = std::max(most_clusters - 1, 1), turns = ceil_div(problem.num_rows, resident);
  if (holder.turn_blocks > 0 && turns > 1 && 10 * problem.num_rows >= 9 * turns * resident)
    shape.num_clusters = most_clusters;
  return shape;
}

// A few rows that a cluster each would leave most of the GPU to. Fractions of copy with clusters and in slices: 1 row
// of 2^18 columns, float32 0.31 and 0.32, float16 0.50 and 0.38; of 2^19, float16 0.35 and 0.39; of 2^20, float16 0.27
// and 0.40, float32 0.19 and 0.38, backward 0.24 and 0.45, 0.15 and 0.52; 8 rows of 2^20 0.51 and 0.61, 0.40 and 0.52.
bool prefers_slices(const SoftmaxProblem& problem, int64_t row_bytes) {
  constexpr int64_t most_rows = 8;
  return row_bytes >= (problem.num_rows == 1 ? 1 : 2) * least_sliced_bytes && problem.num_rows <= most_rows;
}

// Blocks of a cluster have 32 KB of a row or more, so that their second reading finds it in L2.
SoftmaxShape read_twice_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device) {
  constexpr int32_t elements_per_lane = 8;
  constexpr int64_t block_bytes = 32768;
  const int64_t row_bytes = request.columns * problem.in_bytes;
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::two_pass_row;
  shape.lanes_per_row = std::min(lanes_for(request.columns, elements_per_lane, 1, 1), max_register_lanes);
  shape.block_threads = threads_for(shape.lanes_per_row, elements_per_lane * problem.in_bytes, least_short_row_threads);
  if (shape.lanes_per_row == max_register_lanes) {
    int32_t blocks = 1;
    while (blocks < max_cluster_blocks && row_bytes / (2 * blocks) >= block_bytes) blocks *= 2;
    shape.cluster_blocks = spread_blocks(problem, device, blocks, row_bytes);
  }
  return shape;
}

}  // namespace

SoftmaxMask mask_of(const SoftmaxRequest& request) {
  if (request.backward) return SoftmaxMask::none;
  if (request.pointers[softmax_side] != nullptr) return SoftmaxMask::bias;
  return request.pointers[softmax_dense] != nullptr ? SoftmaxMask::dense : SoftmaxMask::none;
}

int32_t shared_row_offset(const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  const int32_t bytes =
      softmax_exchange_bytes(problem.in_bytes == 2 ? 4 : 8, shape.lanes_per_row / warp_lanes, shape.cluster_blocks);
  return ceil_div(bytes, int32_t{vector_bytes}) * int32_t{vector_bytes};
}

int64_t shared_row_slots(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  // A row is cut from the start of its first line on.
  constexpr int64_t line_bytes = 128;
  bool is_on_lines = reinterpret_cast<uintptr_t>(request.pointers[softmax_x]) % line_bytes == 0;
  for (int d = 0; d < problem.rank; ++d) is_on_lines &= problem.dims[d].strides[softmax_x] % line_bytes == 0;
  const int64_t num_vectors =
      request.columns / problem.vector_columns + (is_on_lines ? 0 : line_bytes / vector_bytes - 1);
  const int64_t lanes = int64_t{shape.lanes_per_row} * shape.cluster_blocks;
  return std::max<int64_t>(ceil_div(num_vectors, lanes) - shape.vectors_per_thread, 0);
}

int64_t shared_row_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  const int64_t num_inputs = request.backward ? 2 : 1;
  return shared_row_slots(request, problem, shape) * shape.block_threads * num_inputs * vector_bytes;
}

SoftmaxRing softmax_ring(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                         const SoftmaxShape& shape) {
  constexpr int32_t warps = turn_threads / warp_lanes;
  SoftmaxRing ring;
  SoftmaxShape in_shared = shape;
  in_shared.vectors_per_thread = 0;
  const int64_t row_batches =
      ceil_div(shared_row_slots(request, problem, in_shared), int64_t{shape.vectors_per_thread});
  if (row_batches > max_turn_batches) return ring;
  // Two exchanges in turn, of the warps of a block and of the blocks of a cluster.
  const int32_t value_bytes = problem.in_bytes == 2 ? 4 : 8;
  const auto exchange_bytes = [&](int32_t num_warps, int32_t blocks) {
    return ceil_div(softmax_exchange_bytes(value_bytes, num_warps, blocks), int32_t{vector_bytes}) *
           int32_t{vector_bytes};
  };
  ring.offset_bytes = 2 * (exchange_bytes(warps, 1) + exchange_bytes(1, shape.cluster_blocks));
  ring.batch_bytes = shape.vectors_per_thread * (request.backward ? 2 : 1) * turn_threads * int32_t{vector_bytes};
  const int64_t fit = (device.shared_bytes_per_block - ring.offset_bytes) / ring.batch_bytes;
  // Of a row that does not fit, what leaves room for batches on their way; and most of it, so that the rest is still in
  // L2 when it is read again.
  constexpr int64_t least_on_their_way = 2;
  const int64_t kept = fit >= row_batches ? row_batches : fit - least_on_their_way;
  if (row_batches > 2 * kept) return ring;
  ring.row_batches = static_cast<int32_t>(row_batches);
  ring.kept_batches = static_cast<int32_t>(kept);
  ring.batches = static_cast<int32_t>(std::min(fit, 2 * row_batches - 1));
  return ring;
}

// A row of slices is read again after the first vectors of `out` have been written.
bool slices_fit(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  if (request.in_dtype != request.out_dtype || problem.in_bytes > 4 || !problem.vectors_agree) return false;
  if (mask_of(request) == SoftmaxMask::bias) return false;
  const void* const out = request.pointers[softmax_out];
  if (out == request.pointers[softmax_x] || (request.backward && out == request.pointers[softmax_side])) return false;
  if (shape.slices < 1 || (shape.slices & (shape.slices - 1)) != 0 || shape.rows_per_launch < 1) return false;
  if (shape.lanes_per_row < warp_lanes || shape.lanes_per_row > max_register_lanes) return false;
  const int64_t slot_vectors = 1 + ceil_div(int64_t{shape.slices} * 4 * problem.in_bytes, vector_bytes);
  return shape.block_threads >= least_lanes(problem) && request.columns / problem.vector_columns - 1 >= slot_vectors;
}

bool shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                const SoftmaxShape& shape) {
  // Where float16's exponents are one instruction, the product of its largest score with the scale has to be finite.
  constexpr double max_float16_scale = 0x1p100;
  const bool is_fused = shape.kernel == SoftmaxKernel::row_in_registers ||
                        shape.kernel == SoftmaxKernel::row_in_shared || shape.kernel == SoftmaxKernel::split_row ||
                        shape.kernel == SoftmaxKernel::persistent_rows ||
                        shape.kernel == SoftmaxKernel::rows_by_vectors;
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
      if (!has_register_kernel(request) || !problem.vectors_agree || lanes > max_register_lanes) return false;
      if (vectors < 1 || vectors > most_register_vectors(request, problem) || (vectors & (vectors - 1)) != 0)
        return false;
      if (mask_of(request) == SoftmaxMask::dense && vectors == 8 && lanes > max_dense_lanes) return false;
      return lanes >= least_lanes(problem) &&
             request.columns / problem.vector_columns <= int64_t{lanes} * vectors * blocks;
    }
    case SoftmaxKernel::row_in_shared:
      if (shape.vectors_per_thread != 4 && shape.vectors_per_thread != held_vectors(request, problem, 8)) return false;
      return request.in_dtype == request.out_dtype && problem.in_bytes <= 4 && problem.vectors_agree &&
             mask_of(request) != SoftmaxMask::bias && lanes == shape.block_threads && lanes >= warp_lanes &&
             lanes <= max_register_lanes &&
             shared_row_offset(problem, shape) + shared_row_bytes(request, problem, shape) <=
                 device.shared_bytes_per_block;
    case SoftmaxKernel::split_row: return slices_fit(request, problem, shape);
    case SoftmaxKernel::persistent_rows:
      return shape.vectors_per_thread == (request.backward ? 2 : 4) && shape.num_clusters > 0 &&
             request.in_dtype == request.out_dtype && problem.in_bytes <= 4 && problem.vectors_agree &&
             mask_of(request) == SoftmaxMask::none && !request.has_diagonal && request.lengths_bytes == 0 &&
             (request.backward || request.scale >= 0) && lanes == turn_threads && shape.block_threads == turn_threads &&
             softmax_ring(request, problem, device, shape).batches > 0;
    case SoftmaxKernel::rows_by_vectors:
    case SoftmaxKernel::rows_in_lanes:
    case SoftmaxKernel::staged_rows: return short_shape_fits(request, problem, device, shape);
    case SoftmaxKernel::two_pass_row: return lanes <= max_register_lanes && (blocks == 1 || lanes >= warp_lanes);
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
  if (shape->kernel == SoftmaxKernel::two_pass_row || shape->resident_blocks > 0) return;
  const int64_t rows_per_thread =
      shape->kernel == SoftmaxKernel::rows_by_vectors ? shape->vectors_per_thread : shape->rows_per_thread;
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
  if (take(vectors_shape(request, problem))) return shape;
  if (take(lanes_shape(request, problem))) return shape;
  const int64_t row_bytes = request.columns * problem.in_bytes;
  if (prefers_slices(problem, row_bytes) && take(slices_shape(request, problem, device))) return shape;
  const HolderRow* holder = find_holder(request, problem, row_bytes);
  if (holder != nullptr && take(turn_shape(request, problem, device, *holder))) return shape;
  if (holder != nullptr && holder->threads == 0) {
    const SoftmaxShape in_registers = register_shape(request, problem, device, *holder, row_bytes);
    if (prefers_span(request, problem, in_registers) && take(span_shape(request, problem, device))) return shape;
    if (take(in_registers)) return shape;
  }
  // Registers that lack the blocks of a cluster hand a row to shared memory.
  if (holder != nullptr && take(shared_shape(request, problem, device, *holder, row_bytes))) return shape;
  if (row_bytes >= least_sliced_bytes && take(slices_shape(request, problem, device))) return shape;
  return read_twice_shape(request, problem, device);
}

}  // namespace

SoftmaxShape choose_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device) {
  SoftmaxShape shape = first_that_fits(request, problem, device);
  spread_evenly(problem, device, &shape);
  return shape;
}

}  // namespace flowk::softmax
