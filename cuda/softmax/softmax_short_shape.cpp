// SPDX-License-Identifier: Apache-2.0
// Shapes of the kernels of short rows alone: rows_by_vectors, rows_in_lanes and staged_rows.
#include "softmax/softmax_short_shape.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

#include "core/divide.h"
#include "softmax/softmax_holder.h"

namespace flowk::softmax {
namespace {

constexpr int64_t vector_bytes = 16;
constexpr int32_t warp_lanes = 32;
constexpr int32_t vector_threads = 64;  // rows_by_vectors, rows_in_lanes: 4 KB a block

// staged_rows:
constexpr int64_t max_columns = 256;
constexpr int32_t least_most_units = 5;  // 16 threads hold any row of so many columns
constexpr int32_t span_threads = 128;
// What a block reads of x, or of dy and y, at least. Fractions of copy, float16, with 5 to 8 KB: 3 columns 0.97, 4:
// 0.99, 5: 0.99, 6: 0.98, 7: 1.01; with 4 KB or less 3: 0.91, 4: 0.92, 7: 0.94.
constexpr int64_t block_bytes = 5200;

int32_t power_of_2_from(int64_t n) { return static_cast<int32_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

// Do a call's rows of x, out and y lie one after the other, in the order in which they are walked, as one type of up
// to 4 bytes?
bool rows_are_one_run(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  if (request.in_dtype != request.out_dtype || problem.in_bytes > 4 || !problem.vectors_agree) return false;
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

// Columns that a row's first unit has before the row are multiples of this.
int64_t phase_step(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  const auto first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(request.pointers[softmax_x])) / problem.in_bytes;
  return std::gcd(std::gcd(first, request.columns), int64_t{span_unit_columns});
}

int64_t mask_runs(const SoftmaxProblem& problem, int64_t rows_per_block) {
  const int64_t run_rows = problem.rank == 0 ? 1 : problem.dims[0].extent;
  return std::min(ceil_div(rows_per_block - 1, run_rows) + 1, problem.num_rows);
}

bool vectors_shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  return !has_interval(request) && mask_of(request) == SoftmaxMask::none && !problem.has_leftovers &&
         shape.vectors_per_thread == (request.backward ? 2 : 4) && shape.block_threads <= 256 &&
         shape.lanes_per_row <= 8 && request.columns == int64_t{shape.lanes_per_row} * problem.vector_columns;
}

bool lanes_shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  const int32_t lanes = shape.lanes_per_row, vectors = shape.vectors_per_thread;
  if (vectors < 1 || vectors > max_lane_vectors) return false;
  return has_interval(request) && mask_of(request) == SoftmaxMask::none && !request.backward &&
         !problem.has_leftovers && lanes <= warp_lanes && shape.block_threads <= 128 &&
         problem.num_rows < int64_t{1} << 31 && request.columns / problem.vector_columns <= int64_t{lanes} * vectors;
}

// The most units per thread where fewer than 16 threads hold a row. Gradients, and scores with a bias, have two inputs
// in registers, of float32: 33 columns 0.98 with 3 units per thread, 0.93 with 5; of float32 with a dense mask 77
// columns 0.945 with 5, 0.93 with 10, 255 columns 0.98 with 9, 0.89 with 5.
int32_t most_units(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  if (problem.in_bytes != 4 || request.columns <= max_span_elements) return max_span_elements;
  if (request.backward || mask_of(request) == SoftmaxMask::bias) return 4;
  return request.pointers[softmax_dense] != nullptr ? 9 : max_span_units;
}

bool span_shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                     const SoftmaxShape& shape) {
  if (request.columns > max_columns) return false;
  if (has_interval(request) && (request.backward || problem.num_rows >= int64_t{1} << 31)) return false;
  // A bias goes through shared memory as x does.
  if (mask_of(request) == SoftmaxMask::bias &&
      (!problem.bias_vectors_agree || request.pointers[softmax_dense] != nullptr))
    return false;
  if (shape.lanes_per_row > 16 || shape.block_threads > span_threads) return false;
  const bool has_mask = request.pointers[softmax_dense] != nullptr;
  const bool has_whole_rows = request.columns <= max_span_elements;
  if (shape.rows_per_thread < 1 || shape.rows_per_thread > (has_whole_rows ? 16 : 1)) return false;
  const int32_t units = span_units(request, problem, shape.lanes_per_row).per_thread;
  if (units == 0 || units > std::max(most_units(request, problem), least_most_units)) return false;
  if (has_mask) {
    const int64_t stride = problem.dims[0].strides[softmax_dense];
    const int64_t rows = span_rows_per_block(shape);
    if (problem.num_rows >= int64_t{1} << 31) return false;
    if (stride < 0 || stride > 2 * request.columns || mask_runs(problem, rows) > max_mask_runs) return false;
  }
  return span_bytes(request, problem, shape) + span_side_bytes(request, problem, shape) + span_barrier_bytes <=
         device.shared_bytes_per_block;
}

}  // namespace

SpanUnits span_units(const SoftmaxRequest& request, const SoftmaxProblem& problem, int32_t lanes) {
  SpanUnits units;
  if (request.columns <= max_span_elements) {
    units.columns = 1;
    units.per_thread = lanes == 1 ? static_cast<int32_t>(request.columns) : 0;
    return units;
  }
  const int64_t step = phase_step(request, problem);
  units.columns = span_unit_columns;
  units.has_edges = step < span_unit_columns;
  // A row's window is a unit longer where it starts late in one; threads have as many units each, or one less.
  const int64_t least = ceil_div(request.columns, int64_t{span_unit_columns});
  const int64_t most = ceil_div(request.columns + span_unit_columns - step, int64_t{span_unit_columns});
  const int64_t per_thread = ceil_div(most, int64_t{lanes});
  const bool exists = per_thread >= min_span_units && per_thread <= max_span_units && least / lanes >= per_thread - 1;
  units.per_thread = exists ? static_cast<int32_t>(per_thread) : 0;
  return units;
}

int32_t span_rows_per_block(const SoftmaxShape& shape) {
  return shape.block_threads / shape.lanes_per_row * shape.rows_per_thread;
}

int64_t span_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  // It may start and end inside a vector.
  const int64_t bytes = span_rows_per_block(shape) * request.columns * problem.in_bytes;
  return ceil_div(bytes + vector_bytes - problem.in_bytes, vector_bytes) * vector_bytes;
}

int64_t span_side_bytes(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  if (request.backward || mask_of(request) == SoftmaxMask::bias) return span_bytes(request, problem, shape);
  if (request.pointers[softmax_dense] == nullptr) return 0;
  // A table of 2 numbers a run. Each run of the mask starts and ends inside vectors; a word before the first and after
  // the last row is read.
  const int64_t rows = span_rows_per_block(shape), row_stride = problem.dims[0].strides[softmax_dense];
  const int64_t runs = mask_runs(problem, rows);
  const int64_t bytes =
      rows * row_stride + runs * (std::max(request.columns - row_stride, int64_t{0}) + 2 * vector_bytes);
  return ceil_div(bytes, vector_bytes) * vector_bytes + 8 * (max_mask_runs + 2) + 2 * vector_bytes;
}

bool short_shape_fits(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device,
                      const SoftmaxShape& shape) {
  if (shape.cluster_blocks != 1 || !rows_are_one_run(request, problem)) return false;
  switch (shape.kernel) {
    case SoftmaxKernel::rows_by_vectors: return vectors_shape_fits(request, problem, shape);
    case SoftmaxKernel::rows_in_lanes: return lanes_shape_fits(request, problem, shape);
    default: return span_shape_fits(request, problem, device, shape);
  }
}

// Rows of 2^n vectors, and few of them.
SoftmaxShape vectors_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  constexpr int64_t max_row_bytes[] = {32, 64};  // of 16 and of 32 bits: longer ones have threads of their own
  SoftmaxShape shape;
  const int64_t num_vectors = request.columns / problem.vector_columns;
  if (request.columns * problem.in_bytes > max_row_bytes[problem.in_bytes == 2 ? 0 : 1]) return shape;
  shape.kernel = SoftmaxKernel::rows_by_vectors;
  shape.vectors_per_thread = request.backward ? 2 : 4;
  shape.lanes_per_row = static_cast<int32_t>(std::max<int64_t>(num_vectors, 1));
  shape.block_threads = vector_threads;
  return shape;
}

// Rows of which an interval is kept: the fewest lanes that hold one, each with no more vectors than it takes; 3 and 4
// vectors by two lanes: 32 columns of float16 0.81 for 0.60.
SoftmaxShape lanes_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  const int64_t num_vectors = request.columns / problem.vector_columns;
  SoftmaxShape shape;
  if (num_vectors > max_lane_vectors * warp_lanes) return shape;
  shape.kernel = SoftmaxKernel::rows_in_lanes;
  const int64_t most_vectors = num_vectors <= max_lane_vectors ? max_lane_vectors / 2 : max_lane_vectors;
  shape.lanes_per_row = power_of_2_from(ceil_div(num_vectors, most_vectors));
  shape.vectors_per_thread = static_cast<int32_t>(ceil_div(num_vectors, int64_t{shape.lanes_per_row}));
  // 640 columns of float16 0.83 for 0.80 with blocks of half the size, 8 of float32 0.75 for 0.69; 128 the other way.
  const bool has_large_blocks = is_ragged_row(request, problem) || num_vectors <= 8;
  shape.block_threads = has_large_blocks ? 2 * vector_threads : vector_threads;
  return shape;
}

bool prefers_span(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& in_registers) {
  if (request.columns > max_columns) return false;
  if (problem.has_leftovers) return true;
  if (mask_of(request) == SoftmaxMask::bias) return false;
  const int64_t num_vectors = request.columns / problem.vector_columns;
  return 10 * num_vectors < 9 * int64_t{in_registers.lanes_per_row} * in_registers.vectors_per_thread;
}

SoftmaxShape span_shape(const SoftmaxRequest& request, const SoftmaxProblem& problem, const Device& device) {
  const bool has_whole_rows = request.columns <= max_span_elements;
  SoftmaxShape shape;
  shape.kernel = SoftmaxKernel::staged_rows;
  shape.block_threads = span_threads;
  shape.lanes_per_row = 1;
  // The fewest threads that hold a row: each costs some 100 instructions for itself.
  const bool has_mask = request.pointers[softmax_dense] != nullptr;
  const bool has_two_inputs = request.backward || mask_of(request) == SoftmaxMask::bias;
  const auto holds = [&](int32_t lanes) {
    const int32_t units = span_units(request, problem, lanes).per_thread;
    return units > 0 && units <= most_units(request, problem);
  };
  while (shape.lanes_per_row < 16 && !holds(shape.lanes_per_row)) shape.lanes_per_row *= 2;
  if (has_whole_rows) {
    const int64_t pass_bytes = request.columns * problem.in_bytes * (has_two_inputs ? 2 : 1) * span_threads;
    shape.rows_per_thread = static_cast<int32_t>(std::min<int64_t>(ceil_div(block_bytes, pass_bytes), 16));
    if (shape.rows_per_thread > 4) shape.rows_per_thread += shape.rows_per_thread % 2;
  }
  // Of few rows more threads a row and smaller blocks, until every multiprocessor has work: float16 19712 rows of 77,
  // 0.74 for 0.65, with a dense mask 0.63 for 0.46.
  constexpr int64_t threads_per_multiprocessor = 512, blocks_per_multiprocessor = 8;
  const int64_t num_multiprocessors = device.num_multiprocessors;
  while (problem.num_rows * shape.lanes_per_row < threads_per_multiprocessor * num_multiprocessors &&
         shape.lanes_per_row < 16 && holds(2 * shape.lanes_per_row))
    shape.lanes_per_row *= 2;
  // With a dense mask the fewest warps that read 4 KB, one for each copy at least. float16 of 33, 77, 100 and 150
  // columns, fractions of copy with 3 KB: 0.72, 0.82, 0.89, 0.89; 4 to 5 KB 0.93, 0.94, 0.92, 0.97; 8 to 10 KB 0.83,
  // 0.87, 0.90, 0.92.
  constexpr int64_t masked_block_bytes = 4096;
  if (has_mask && !has_whole_rows) {
    const int64_t warp_bytes = warp_lanes / shape.lanes_per_row * request.columns * problem.in_bytes;
    const int64_t warps = std::max<int64_t>(ceil_div(masked_block_bytes, warp_bytes), 2);
    shape.block_threads = static_cast<int32_t>(std::min<int64_t>(warps * warp_lanes, span_threads));
  }
  const auto has_few_blocks = [&] {
    return ceil_div(problem.num_rows, int64_t{span_rows_per_block(shape)}) <
           blocks_per_multiprocessor * num_multiprocessors;
  };
  while (shape.rows_per_thread > 1 && has_few_blocks()) --shape.rows_per_thread;
  const auto has_many_runs = [&] { return has_mask && mask_runs(problem, span_rows_per_block(shape)) > max_mask_runs; };
  while (shape.block_threads > warp_lanes && (has_few_blocks() || has_many_runs()))
    shape.block_threads = (shape.block_threads / warp_lanes + 1) / 2 * warp_lanes;
  return shape;
}

}  // namespace flowk::softmax
