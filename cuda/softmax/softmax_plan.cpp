// SPDX-License-Identifier: Apache-2.0
#include "softmax/softmax_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/divide.h"
#include "softmax/softmax_shape.h"
#include "softmax/softmax_short_shape.h"

namespace flowk::softmax {
namespace {

constexpr int64_t vector_bytes = 16;
constexpr int32_t warp_lanes = 32;

int32_t log2_of(int32_t power_of_2) { return __builtin_ctz(static_cast<unsigned>(power_of_2)); }

// Do an operand's rows lie a stride apart, in the order in which they are walked?
bool is_one_run(const SoftmaxProblem& problem, SoftmaxOperand operand) {
  for (int d = 1; d < problem.rank; ++d)
    if (problem.dims[d].strides[operand] != problem.dims[d - 1].strides[operand] * problem.dims[d - 1].extent)
      return false;
  return true;
}

void fill_params(const SoftmaxRequest& request, const SoftmaxProblem& problem, SoftmaxPlan* plan) {
  SoftmaxParams& params = plan->params;
  params.x = static_cast<const unsigned char*>(request.pointers[softmax_x]);
  params.out = static_cast<unsigned char*>(const_cast<void*>(request.pointers[softmax_out]));
  params.side = static_cast<const unsigned char*>(request.pointers[softmax_side]);
  params.dense = static_cast<const unsigned char*>(request.pointers[softmax_dense]);
  params.lengths = static_cast<const unsigned char*>(request.pointers[softmax_lengths]);
  params.columns = static_cast<int32_t>(request.columns);
  params.num_rows = problem.num_rows;
  params.rank = problem.rank;
  params.wide_rows = problem.num_rows >= (int64_t{1} << 31);
  for (int d = 0; d < problem.rank; ++d) {
    params.dims[d].extent = problem.dims[d].extent;
    if (!params.wide_rows) params.dims[d].divider = Divider(static_cast<uint32_t>(problem.dims[d].extent));
    std::copy(problem.dims[d].strides, problem.dims[d].strides + num_softmax_operands, params.dims[d].strides);
  }
  if (params.dense != nullptr) {
    params.dense_first = params.dense_end = params.dense;
    for (int d = 0; d < request.rank; ++d) {
      const int64_t reach = request.strides[softmax_dense][d] * (request.extents[d] - 1);
      (reach < 0 ? params.dense_first : params.dense_end) += reach;
    }
    params.dense_end += request.columns;
  }
  params.band_dim = problem.band_dim;
  params.band_rows = problem.band_rows;
  params.band_extent = problem.band_extent;
  params.has_diagonal = request.has_diagonal;
  params.has_interval = params.has_diagonal || request.lengths_bytes != 0;
  params.seeks_dense_alone = plan->mask == SoftmaxMask::dense && !params.has_interval && !params.wide_rows &&
                             problem.band_dim == 0 && is_one_run(problem, softmax_x) &&
                             is_one_run(problem, softmax_out);
  params.lengths_from_right = request.lengths_from_right;
  params.lengths_bytes = request.lengths_bytes;
  params.diagonal_begin = request.diagonal_begin;
  params.diagonal_end = request.diagonal_end;
  params.log_softmax = request.log_softmax;
  params.bias_is_float32 = request.bias_dtype == FLOWK_FLOAT32;
  params.bias_is_aligned = problem.bias_vectors_agree;
  params.out_dtype = request.out_dtype;
  params.out_is_x_type = request.out_dtype == request.in_dtype;
  params.scale = request.scale;
  if (!request.backward && plan->mask != SoftmaxMask::bias) {
    // A masked score is -infinity before it is scaled, so the scale must keep it that.
    params.negates_x = request.scale < 0;
    const double least = request.in_dtype == FLOWK_FLOAT64 ? std::numeric_limits<double>::denorm_min()
                                                           : std::numeric_limits<float>::denorm_min();
    params.scale = std::max(std::fabs(request.scale), least);
  }
  constexpr double log2_e = 1.4426950408889634;
  params.scale32 = static_cast<float>(params.scale);
  params.scale32_base_2 = static_cast<float>(params.scale * log2_e);
}

SoftmaxForm form_of(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape) {
  if (problem.has_leftovers) return SoftmaxForm::any;
  if (request.has_diagonal || request.lengths_bytes != 0) return SoftmaxForm::aligned;
  const SoftmaxMask mask = mask_of(request);
  if (mask == SoftmaxMask::none) {
    const bool is_one_run = problem.rank <= 1 && problem.num_rows < (int64_t{1} << 31);
    for (const SoftmaxOperand operand : {softmax_x, softmax_out, softmax_side})
      if (!is_one_run || problem.dims[0].strides[operand] < 0 || problem.dims[0].strides[operand] >= (int64_t{1} << 32))
        return SoftmaxForm::aligned;
  }
  if (mask == SoftmaxMask::bias && !problem.bias_vectors_agree) return SoftmaxForm::aligned;
  if (request.pointers[softmax_dense] != nullptr) {
    const auto is_aligned = [&](int64_t bytes) { return bytes % problem.vector_columns == 0; };
    if (!is_aligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(request.pointers[softmax_dense]))))
      return SoftmaxForm::aligned;
    for (int d = 0; d < problem.rank; ++d)
      if (!is_aligned(problem.dims[d].strides[softmax_dense])) return SoftmaxForm::aligned;
  }
  const bool fills = request.columns / problem.vector_columns ==
                     int64_t{shape.lanes_per_row} * shape.vectors_per_thread * shape.cluster_blocks;
  return fills ? SoftmaxForm::whole : SoftmaxForm::unfilled;
}

// Shared memory a block that leaves a multiprocessor room for `blocks` of them and no more.
int32_t shared_bytes_for(const Device& device, int32_t blocks) {
  constexpr int32_t system_bytes = 1024;  // of each block
  const int32_t bytes = device.shared_bytes_per_multiprocessor / (blocks + 1) + 1 - system_bytes;
  return std::clamp(bytes, 0, device.shared_bytes_per_block);
}

void fill_plan(const SoftmaxRequest& request, const SoftmaxProblem& problem, const SoftmaxShape& shape,
               const Device& device, SoftmaxPlan* plan) {
  plan->kernel = shape.kernel;
  plan->mask = mask_of(request);
  plan->backward = request.backward;
  plan->in_dtype = request.in_dtype;
  plan->out_dtype = request.out_dtype;
  plan->vectors_per_thread = shape.vectors_per_thread;
  fill_params(request, problem, plan);
  SoftmaxParams& params = plan->params;
  params.lanes_per_row = shape.lanes_per_row;
  params.rows_per_block = shape.block_threads / shape.lanes_per_row;
  if (shape.kernel == SoftmaxKernel::rows_by_vectors) params.rows_per_block *= shape.vectors_per_thread;
  if (shape.kernel == SoftmaxKernel::staged_rows) params.rows_per_block = span_rows_per_block(shape);
  params.rows_shift = shape.lanes_per_row <= warp_lanes ? log2_of(shape.lanes_per_row) : 0;
  params.cluster_shift = log2_of(shape.cluster_blocks);
  params.is_peeled = problem.has_leftovers;
  // Leftover columns are one a thread.
  params.reads_vectors = problem.vectors_agree && shape.lanes_per_row >= warp_lanes;
  const int32_t warps = std::max(shape.lanes_per_row / warp_lanes, 1);
  const int32_t value_bytes = problem.in_bytes == 2 && shape.kernel != SoftmaxKernel::two_pass_row ? 4 : 8;
  plan->launch = {.num_blocks = ceil_div(problem.num_rows, params.rows_per_block) * shape.cluster_blocks,
                  .num_threads = shape.block_threads,
                  .shared_bytes = softmax_exchange_bytes(value_bytes, warps, shape.cluster_blocks),
                  .cluster_blocks = shape.cluster_blocks,
                  .uses_pdl = device.capability >= 90};
  constexpr int64_t most_vectors_before = 128 / vector_bytes - 1;
  const auto fits_from_a_line = [&](int64_t vectors_per_thread) {
    return request.columns / problem.vector_columns + most_vectors_before <=
           vectors_per_thread * shape.lanes_per_row * shape.cluster_blocks;
  };
  if (shape.kernel == SoftmaxKernel::row_in_registers) {
    plan->form = form_of(request, problem, shape);
    params.starts_on_lines = fits_from_a_line(shape.vectors_per_thread);
    // A block's part starts on a line where the threads have room for it.
    constexpr int64_t line_vectors = 128 / vector_bytes;
    const int64_t row_vectors = request.columns / problem.vector_columns;
    const int64_t part = ceil_div(row_vectors, int64_t{shape.cluster_blocks});
    const int64_t line_part = ceil_div(part, line_vectors) * line_vectors;
    const int64_t held = int64_t{shape.lanes_per_row} * shape.vectors_per_thread;
    params.row_vectors = static_cast<int32_t>(row_vectors);
    params.block_vectors = static_cast<int32_t>(line_part <= held ? line_part : part);
  }
  if (shape.kernel == SoftmaxKernel::row_in_shared) {
    const int64_t slots = shared_row_slots(request, problem, shape);
    params.starts_on_lines = fits_from_a_line(shape.vectors_per_thread + slots);
    params.block_offset_bytes = shared_row_offset(problem, shape);
    plan->launch.shared_bytes =
        static_cast<int32_t>(params.block_offset_bytes + shared_row_bytes(request, problem, shape));
  }
  if (shape.kernel == SoftmaxKernel::persistent_rows) {
    const SoftmaxRing ring = softmax_ring(request, problem, device, shape);
    params.starts_on_lines = true;
    params.turn_batches = ring.row_batches;
    params.ring_batches = ring.batches;
    params.kept_batches = ring.kept_batches;
    params.block_offset_bytes = ring.offset_bytes;
    plan->launch.shared_bytes = ring.offset_bytes + ring.batches * ring.batch_bytes;
    plan->launch.num_blocks = std::min<int64_t>(shape.num_clusters, problem.num_rows) * shape.cluster_blocks;
  }
  if (shape.kernel == SoftmaxKernel::split_row) {
    params.cluster_shift = log2_of(shape.slices);
    params.starts_on_lines = true;
    plan->rows_per_launch = shape.rows_per_launch;
    plan->launch.num_blocks = std::min(shape.rows_per_launch, problem.num_rows) * shape.slices;
  }
  if (shape.kernel == SoftmaxKernel::staged_rows) {
    const SpanUnits units = span_units(request, problem, shape.lanes_per_row);
    plan->unit_columns = units.columns;
    plan->vectors_per_thread = units.per_thread;
    params.has_unit_edges = units.has_edges;
    params.thread_units = units.per_thread;
    params.side_offset_bytes = static_cast<int32_t>(span_bytes(request, problem, shape));
    params.barrier_offset_bytes =
        params.side_offset_bytes + static_cast<int32_t>(span_side_bytes(request, problem, shape));
    plan->launch.shared_bytes = params.barrier_offset_bytes + span_barrier_bytes;
  }
  plan->resident_blocks = shape.resident_blocks;
  if (shape.resident_blocks > 0)
    plan->launch.shared_bytes = std::max(plan->launch.shared_bytes, shared_bytes_for(device, shape.resident_blocks));
}
}  // namespace

const char* softmax_kernel_name(SoftmaxKernel kernel) {
  switch (kernel) {
    case SoftmaxKernel::row_in_registers: return "row_in_registers";
    case SoftmaxKernel::row_in_shared: return "row_in_shared";
    case SoftmaxKernel::split_row: return "split_row";
    case SoftmaxKernel::persistent_rows: return "persistent_rows";
    case SoftmaxKernel::staged_rows: return "staged_rows";
    case SoftmaxKernel::two_pass_row: return "two_pass_row";
    case SoftmaxKernel::rows_by_vectors: return "rows_by_vectors";
    case SoftmaxKernel::rows_in_lanes: return "rows_in_lanes";
  }
  return "unknown";
}

void plan_softmax(const SoftmaxRequest& request, const Device& device, SoftmaxPlan* plan) {
  SoftmaxProblem problem;
  make_softmax_problem(request, &problem);
  fill_plan(request, problem, choose_shape(request, problem, device), device, plan);
}

bool plan_softmax_as(const SoftmaxRequest& request, const Device& device, const SoftmaxShape& shape,
                     SoftmaxPlan* plan) {
  SoftmaxProblem problem;
  make_softmax_problem(request, &problem);
  if (!shape_fits(request, problem, device, shape)) return false;
  fill_plan(request, problem, shape, device, plan);
  return true;
}

}  // namespace flowk::softmax
