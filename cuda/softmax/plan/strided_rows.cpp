// SPDX-License-Identifier: Apache-2.0
// strided_rows takes every call with strided columns: chooses neighbouring rows and threads.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/divide.h"
#include "core/dtype.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {
namespace {

constexpr int32_t word_bytes = 4, sector_bytes = 32, large_cluster = 8;

// Is a column of a thread a vector? One is not a row of float64.
bool is_vector(const SoftmaxCall& call, int32_t row_width) {
  return call.in_bytes <= 4 && row_width * call.in_bytes == vector_bytes;
}

// The kernel for threads with this number of neighbouring rows; -1: there is none for a row of so many vectors.
int32_t kernel_of_width(const SoftmaxCall& call, int32_t row_width) {
  const bool has_vectors = is_vector(call, row_width);
  const int64_t vectors = has_vectors ? std::min<int64_t>(call.request.columns, INT32_MAX) : 1;
  SoftmaxKernelQuery query = query_of(call, SoftmaxKernel::strided_rows, static_cast<int32_t>(vectors));
  query.unit_columns = has_vectors ? vector_bytes / word_bytes : std::max(call.in_bytes / word_bytes, 1);
  return find_kernel(query);
}

// Calls is_so(operand, bytes of its elements) for x, out and, backward, y.
template <class Predicate>
bool all_operands(const SoftmaxCall& call, Predicate is_so) {
  return is_so(softmax_x, call.in_bytes) && is_so(softmax_out, dtype_info(call.request.out_dtype).element_bytes) &&
         (!call.request.backward || is_so(softmax_bias_or_y, call.in_bytes));
}

// Are the results of float64, of another type than x, or of 16 bits with an unusual scale?
bool needs_general(const SoftmaxCall& call) {
  return !call.is_one_type || (!call.request.backward && call.in_bytes == 2 && !call.any_mechanism_is_right);
}

// Are the rows of the innermost dimension neighbours in memory, in every operand?
bool has_neighbours(const SoftmaxCall& call) {
  return call.rows.rank > 0 && all_operands(call, [&](SoftmaxOperand operand, int32_t bytes) {
           return call.rows.dims[0].strides[operand] == bytes;
         });
}

// Are all columns of `row_width` neighbouring rows aligned packs of elements, in every operand?
bool has_packs(const SoftmaxCall& call, int32_t row_width) {
  if (!call.is_one_type || !has_neighbours(call) || call.rows.dims[0].extent % row_width != 0) return false;
  const int64_t pack_bytes = int64_t{row_width} * call.in_bytes;
  return all_operands(call, [&](SoftmaxOperand operand, int32_t) {
    return call.request.column_strides[operand] % pack_bytes == 0 &&
           reinterpret_cast<uintptr_t>(call.request.pointers[operand]) % static_cast<uintptr_t>(pack_bytes) == 0 &&
           std::all_of(call.rows.dims + 1, call.rows.dims + call.rows.rank,
                       [&](const SoftmaxRowDim& dim) { return dim.strides[operand] % pack_bytes == 0; });
  });
}

// Can a thread hold whole rows as a vector of each column? A vector depends on addresses. The kernels have no
// logarithms.
bool takes_vectors(const SoftmaxCall& call) {
  if (call.request.batch_invariant || call.request.log_softmax || needs_general(call)) return false;
  const int32_t width = static_cast<int32_t>(vector_bytes / call.in_bytes);
  return kernel_of_width(call, width) >= 0 && has_packs(call, width);
}

int64_t num_images(const SoftmaxCall& call) { return call.rows.rank < 2 ? 1 : call.rows.dims[1].extent; }
int64_t image_bytes(const SoftmaxCall& call) { return call.rows.dims[0].extent * call.request.columns * call.in_bytes; }

// Are whole planes, with all of their columns, contiguous words, as far from an aligned vector in every operand?
bool has_planes(const SoftmaxCall& call) {
  if (call.request.batch_invariant || needs_general(call) || !has_neighbours(call) || call.rows.rank > 2) return false;
  const int64_t column_bytes = call.rows.dims[0].extent * call.in_bytes;
  const auto shift_of = [&](SoftmaxOperand operand) {
    return reinterpret_cast<uintptr_t>(call.request.pointers[operand]) % static_cast<uintptr_t>(vector_bytes);
  };
  if (image_bytes(call) % word_bytes != 0 || shift_of(softmax_x) % word_bytes != 0) return false;
  return all_operands(call, [&](SoftmaxOperand operand, int32_t) {
    return call.request.column_strides[operand] == column_bytes && shift_of(operand) == shift_of(softmax_x) &&
           (call.rows.rank < 2 || call.rows.dims[1].strides[operand] == column_bytes * call.request.columns);
  });
}

// Can a cluster of this number of blocks share rows?
bool has_clusters(const SoftmaxCall& call, int32_t blocks) {
  return blocks >= 1 && blocks <= device_cluster_blocks(call.device) &&
         std::has_single_bit(static_cast<uint32_t>(blocks));
}

// The threads of a block that merge its rows, and their shared memory, from *end on.
StridedMerge merge_of(int32_t partial_bytes, int32_t rows, int32_t slices, const SoftmaxConfig& config, int32_t* end) {
  StridedMerge merge = {.rows = rows, .slices = slices};
  if (slices * config.cluster_blocks == 1) return merge;
  merge.lanes_shift =
      std::bit_width(static_cast<uint32_t>(std::clamp(config.block_threads / rows, 1, int32_t{warp_lanes}))) - 1;
  merge.parts_offset_bytes = *end;
  merge.results_offset_bytes = *end + partial_bytes * slices * strided_pitch(rows);
  *end = static_cast<int32_t>(round_up(merge.results_offset_bytes + partial_bytes * rows, vector_bytes));
  merge.exchange_offset_bytes = *end;
  if (config.cluster_blocks > 1) *end += exchange_step_bytes(partial_bytes, strided_pitch(rows), config.cluster_blocks);
  return merge;
}

// A block's planes, and its shared memory: the inputs, the partial results of all threads of a row, and a barrier.
// Elements of 16 bits of planes with an odd number of rows are aligned words if a plane is two columns.
void fill_layout(const SoftmaxCall& call, const SoftmaxConfig& config, StridedRows* mechanism) {
  StridedPlanes& planes = mechanism->planes;
  const int32_t images = mechanism->images, slices = config.lanes_per_row;
  planes.num_images = static_cast<int32_t>(num_images(call));
  const int32_t extent = static_cast<int32_t>(call.rows.dims[0].extent), word_rows = word_bytes / call.in_bytes;
  planes.is_folded = word_rows == 2 && extent % 2 != 0;
  const int32_t halves = planes.is_folded ? 2 : 1;
  planes.plane_rows = halves * extent;
  planes.image_bytes = static_cast<int32_t>(image_bytes(call));
  planes.column_bytes = planes.plane_rows * call.in_bytes;
  planes.image_columns = static_cast<int32_t>(call.request.columns) / halves;
  planes.block_columns = static_cast<int32_t>(ceil_div(planes.image_columns, config.cluster_blocks));
  planes.slices = Divider(static_cast<uint32_t>(slices));
  planes.units = Divider(static_cast<uint32_t>(planes.plane_rows / word_rows));
  planes.lanes = Divider(planes.units.divisor * static_cast<uint32_t>(images));
  const int64_t block_bytes =
      int64_t{images - 1} * planes.image_bytes + int64_t{planes.block_columns} * planes.column_bytes;
  planes.second_offset_bytes = static_cast<int32_t>(round_up(block_bytes + line_bytes, line_bytes));
  int32_t end = call.num_inputs * planes.second_offset_bytes;
  const int32_t partial = call.request.backward ? word_bytes : partial_result_bytes(call.in_bytes);
  mechanism->merge = merge_of(partial, images * extent, halves * slices, config, &end);
  planes.barrier_offset_bytes = end;
}

// Do `blocks` such blocks fit a multiprocessor?
bool fits_planes(const SoftmaxCall& call, const SoftmaxConfig& config, int32_t blocks = 1) {
  StridedRows mechanism = config.as<StridedRows>();
  const int32_t images = mechanism.images, slices = config.lanes_per_row, cluster_blocks = config.cluster_blocks;
  if (!has_planes(call) || mechanism.row_width != word_bytes / call.in_bytes || images < 1 || slices < 1 ||
      !has_clusters(call, cluster_blocks) || (images > 1 && cluster_blocks > 1))
    return false;
  constexpr int32_t system_bytes = 1024;  // per block
  const int64_t max_bytes = std::min(call.device.shared_bytes_per_block,
                                     call.device.shared_bytes_per_multiprocessor / blocks - system_bytes) -
                            staged_barrier_bytes;
  if (call.num_inputs * images * image_bytes(call) > max_bytes * cluster_blocks || num_images(call) > INT32_MAX)
    return false;
  fill_layout(call, config, &mechanism);
  const StridedPlanes& planes = mechanism.planes;
  return config.block_threads % warp_lanes == 0 && config.block_threads <= max_row_threads &&
         slices * int64_t{planes.lanes.divisor} <= config.block_threads && planes.barrier_offset_bytes <= max_bytes &&
         planes.image_columns > int64_t{planes.block_columns} * (cluster_blocks - 1);
}

// Whole images of a block, or in a cluster a part of one. The most blocks that fit a multiprocessor share its threads.
// Returns their number.
int32_t divide_images(const SoftmaxCall& call, SoftmaxConfig* config) {
  constexpr int64_t good_bytes = 32 << 10, multiprocessor_threads = 1024, good_threads = 128;
  const int64_t extent = call.rows.dims[0].extent, word_rows = word_bytes / call.in_bytes;
  const int64_t units = extent % word_rows == 0 ? extent / word_rows : extent;
  const int64_t bytes = call.num_inputs * image_bytes(call);
  const int64_t images = std::clamp<int64_t>(std::min(good_bytes / bytes, good_threads / units), 1, num_images(call));
  const int64_t max_slices = std::max<int64_t>(call.request.columns / (2 * config->cluster_blocks), 1);
  const int64_t max_blocks = config->cluster_blocks * call.device.shared_bytes_per_multiprocessor / (images * bytes);
  auto blocks = static_cast<int32_t>(std::clamp<int64_t>(max_blocks, 1, multiprocessor_threads / good_threads));
  config->mechanism = StridedRows{.row_width = static_cast<int32_t>(word_rows), .images = static_cast<int32_t>(images)};
  for (;; --blocks) {
    const int64_t threads =
        std::min<int64_t>(multiprocessor_threads / blocks, max_row_threads) / warp_lanes * warp_lanes;
    const int64_t slices = std::clamp<int64_t>(threads / (images * units), 1, max_slices);
    for (int64_t fewer = slices; 2 * fewer >= slices; --fewer) {
      config->lanes_per_row = static_cast<int32_t>(fewer);
      config->block_threads = static_cast<int32_t>(round_up(fewer * images * units, int64_t{warp_lanes}));
      if (blocks == 1 || fits_planes(call, *config, blocks)) return blocks;
    }
  }
}

// The smallest cluster of which enough blocks fit a multiprocessor: while some compute, others are loaded and stored.
// Forward calls wait too long for more than large_cluster blocks.
SoftmaxConfig choose_planes(const SoftmaxCall& call) {
  constexpr int32_t good_blocks = 4, blocks_of_large_clusters = 2;
  SoftmaxConfig config;
  for (;; config.cluster_blocks *= 2) {
    const int32_t blocks = divide_images(call, &config);
    const bool is_large = config.cluster_blocks >= large_cluster && !call.request.backward;
    if (blocks >= (is_large ? blocks_of_large_clusters : good_blocks) && fits_planes(call, config, blocks))
      return config;
    if (config.cluster_blocks >= device_cluster_blocks(call.device)) return config;
  }
}

// Are the rows of a plane, which are words, less than a sector?
bool has_tiny_planes(const SoftmaxCall& call) {
  constexpr int64_t tiny_bytes = 16;
  const int64_t bytes = has_neighbours(call) ? call.rows.dims[0].extent * call.in_bytes : sector_bytes;
  return !call.request.batch_invariant && bytes <= tiny_bytes && bytes % word_bytes == 0;
}

// Planes are the fastest if they are short and do not start at sectors of 32 bytes, unless a thread has few columns.
// Two blocks must fit a multiprocessor, of the shortest planes one.
bool choose_short_planes(const SoftmaxCall& call, SoftmaxConfig* config) {
  constexpr int64_t max_column_bytes = 1024, max_cluster_bytes = 512, max_short_column_bytes = 256, min_inputs = 32;
  if (!has_planes(call) || has_tiny_planes(call)) return false;
  const int64_t column_bytes = call.rows.dims[0].extent * call.in_bytes;
  if (column_bytes > max_column_bytes || column_bytes % sector_bytes == 0) return false;
  if (column_bytes > sector_bytes && call.request.columns * call.num_inputs < min_inputs) return false;
  *config = choose_planes(call);
  const bool is_short = column_bytes <= max_short_column_bytes, has_words = column_bytes % word_bytes == 0;
  const bool is_costly = call.in_bytes == 4 && !call.request.backward;  // to merge
  if (config->cluster_blocks > 1 && (column_bytes > max_cluster_bytes ||
                                     (!is_short && has_words && (is_costly || config->cluster_blocks > large_cluster))))
    return false;
  return fits_planes(call, *config, is_short ? 1 : 2);
}

}  // namespace

// Rows outside planes and vectors have the fewest threads that hold them, or those that leave the block's rows
// min_row_bytes of memory. If their rows would have less than cluster_row_bytes, a cluster shares them.
SoftmaxConfig choose_strided_rows(const SoftmaxCall& call) {
  constexpr int32_t min_row_bytes = 32, good_threads = 256, few_threads = 128, few_slices = 8;
  SoftmaxConfig config;
  if (choose_short_planes(call, &config)) return config;
  config = {};
  const bool is_tiny = has_tiny_planes(call);
  StridedRows mechanism = {.row_width = call.in_bytes == 2 && has_neighbours(call) ? 2 : 1};
  if (!is_tiny && takes_vectors(call)) mechanism.row_width = static_cast<int32_t>(vector_bytes / call.in_bytes);
  const SoftmaxKernelRow& kernel = softmax_kernels[kernel_of(call, config, mechanism)];
  const int32_t lane_bytes = std::max(mechanism.row_width * call.in_bytes, word_bytes);
  const int32_t most = kernel.max_threads * lane_bytes / min_row_bytes;
  const bool is_alone = lane_bytes > word_bytes || call.request.batch_invariant;
  const int32_t max_blocks = is_alone ? 1 : device_cluster_blocks(call.device);
  const bool is_general = needs_general(call) || call.request.columns > int64_t{most} * max_blocks * kernel.max_vectors;
  const int32_t thread_columns = is_general || is_tiny ? strided_general_columns : kernel.max_vectors;
  const int32_t slices = power_of_2_from(ceil_div(call.request.columns, int64_t{thread_columns}));
  const int64_t stride = call.request.column_strides[softmax_out];
  const bool has_sectors = stride % sector_bytes == 0, is_forward = !call.request.backward;
  int32_t good_row_bytes = has_sectors ? 128 : 256, min_threads = good_threads;
  config.lanes_per_row = std::min(slices, most);
  // Forward calls merge more, and rows at sectors need less memory. A plane has no more.
  int32_t cluster_row_bytes = has_sectors                                ? (is_forward ? 64 : 128)
                              : is_forward && stride % vector_bytes == 0 ? 128
                                                                         : 256;
  if (has_neighbours(call))
    cluster_row_bytes =
        static_cast<int32_t>(std::min<int64_t>(cluster_row_bytes, call.rows.dims[0].extent * call.in_bytes));
  int32_t cluster_lanes = std::min(power_of_2_from(good_threads * lane_bytes / cluster_row_bytes), most);
  const int32_t max_alone = has_sectors ? kernel.max_threads / good_threads * cluster_lanes : cluster_lanes;
  if (!is_general && max_blocks > 1 && slices > max_alone) {
    if (slices > large_cluster * cluster_lanes) cluster_lanes = std::min(2 * cluster_lanes, most);
    config.cluster_blocks = std::clamp(slices / cluster_lanes, 1, max_blocks);
    config.lanes_per_row = slices / config.cluster_blocks;
    good_row_bytes = min_row_bytes;
  } else if (is_tiny || (is_forward && has_sectors && !is_alone && slices > 1 && slices <= few_slices)) {
    good_row_bytes = min_row_bytes;
    min_threads = few_threads;
  }
  config.block_threads =
      std::clamp(config.lanes_per_row * good_row_bytes / lane_bytes, min_threads, kernel.max_threads);
  config.mechanism = mechanism;
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const StridedRows& mechanism) {
  if (mechanism.images > 0) return fits_planes(call, config);
  const int32_t threads = config.block_threads, lanes = config.lanes_per_row, width = mechanism.row_width;
  const bool has_width = width == 1 || (width == 2 && call.in_bytes == 2 && has_neighbours(call)) ||
                         (is_vector(call, width) && takes_vectors(call) && lanes == 1);
  if (!has_width) return false;
  const int32_t kernel = kernel_of(call, config, mechanism);
  return kernel >= 0 && lanes >= 1 && threads >= lanes && threads % warp_lanes == 0 &&
         threads <= softmax_kernels[kernel].max_threads && has_clusters(call, config.cluster_blocks) &&
         (config.cluster_blocks == 1 || softmax_kernels[kernel].unit_columns == 1) &&
         std::has_single_bit(static_cast<uint32_t>(lanes)) && std::has_single_bit(static_cast<uint32_t>(threads));
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const StridedRows& mechanism) {
  return kernel_of_width(call, mechanism.row_width);
}

void fill(const SoftmaxCall& call, StridedRows& mechanism, SoftmaxPlan* plan) {
  mechanism.steps32 = score_steps<float>(plan->params.scale, false);  // the kernels negate x
  mechanism.steps64 = score_steps<double>(plan->params.scale, false);
  if (mechanism.images > 0) {
    fill_layout(call, plan->config, &mechanism);
    plan->launch.num_blocks = ceil_div(num_images(call), int64_t{mechanism.images}) * plan->config.cluster_blocks;
    plan->launch.shared_bytes = mechanism.planes.barrier_offset_bytes + staged_barrier_bytes;
    return;
  }
  SoftmaxRows& rows = plan->params.rows;
  const int32_t block_slices = plan->config.lanes_per_row, cluster_blocks = plan->config.cluster_blocks;
  const int32_t slices = block_slices * cluster_blocks, width = mechanism.row_width;
  const int32_t lanes = plan->params.rows_per_block;
  mechanism.are_words = width * call.in_bytes % word_bytes == 0 && has_packs(call, width);
  if (width > 1) {
    SoftmaxRowDim& inner = rows.dims[0];
    mechanism.has_single_rows = inner.extent % width != 0;
    rows.num_rows /= inner.extent;
    inner.extent = ceil_div(inner.extent, int64_t{width});
    rows.num_rows *= inner.extent;
    for (int64_t& stride : inner.strides) stride *= width;
    set_dividers(&rows);
  }
  const int64_t* const strides = call.request.column_strides;
  mechanism.column_strides[0] = strides[softmax_x];
  mechanism.column_strides[1] = strides[softmax_bias_or_y];
  mechanism.out_column_stride = strides[softmax_out];
  const SoftmaxKernelRow& kernel = softmax_kernels[kernel_of(call, plan->config, mechanism)];
  const int32_t step = strided_step(kernel.unit_columns);
  mechanism.columns = static_cast<int32_t>(ceil_div(call.request.columns, int64_t{slices} * step) * step);
  mechanism.missing = static_cast<int32_t>(int64_t{mechanism.columns} * slices - call.request.columns);
  const bool has_narrow_steps = all_operands(call, [&](SoftmaxOperand operand, int32_t) {
    const int64_t bytes = strides[operand] * slices;
    return bytes >= INT32_MIN && bytes <= INT32_MAX;
  });
  mechanism.is_general =
      needs_general(call) || (!is_vector(call, width) && !has_narrow_steps) || mechanism.columns > kernel.max_vectors;
  // A thread of 16 bits computes two rows. If it has one, the results of the other are not stored.
  const int32_t thread_rows = std::max(width, call.in_bytes == 2 ? 2 : 1);
  mechanism.lanes_shift = std::countr_zero(static_cast<uint32_t>(lanes));
  const bool is_16_bit = call.in_bytes == 2 && !mechanism.is_general;
  const int32_t partial = call.request.backward ? std::max(call.in_bytes, 4) : partial_result_bytes(is_16_bit ? 2 : 8);
  plan->launch.num_blocks = ceil_div(rows.num_rows, int64_t{lanes}) * cluster_blocks;
  plan->launch.shared_bytes = 0;
  mechanism.merge = merge_of(partial, lanes * thread_rows, block_slices, plan->config, &plan->launch.shared_bytes);
}

}  // namespace flowk::softmax
