// SPDX-License-Identifier: Apache-2.0
#include "permute/permute_convert_plan.h"

#include <algorithm>

#include "permute/permute_problem.h"

namespace flowk::permute {
namespace {

// Where the last dimension stays last: from how many bytes on, as the mean of both sides, rows are converted one by
// one; shorter ones go through a tile. The bounds of plain rows (permute_plan.cpp).
struct ConvertRowsRow {
  int max_rank;
  int64_t min_row_bytes;
};
constexpr ConvertRowsRow convert_rows_rows[] = {{3, 64}, {4, 128}, {max_rank, 512}};

bool rows_are_converted(const PermuteProblem& problem) {
  const int last = problem.rank - 1;
  if (problem.src_strides[last] != problem.unit_bytes || problem.dst_strides[last] != problem.dst_unit_bytes)
    return false;
  if (problem.rank == 1) return true;
  for (const ConvertRowsRow& row : convert_rows_rows)
    if (problem.rank <= row.max_rank) return problem.bytes_of(problem.extents[last]) >= row.min_row_bytes;
  return false;
}

void plan_convert_rows(const PermuteProblem& problem, PermutePlan* plan) {
  CopyParams& copy = plan->copy;
  const int last = problem.rank - 1;
  copy.src = problem.src;
  copy.dst = problem.dst;
  copy.src_end = problem.src_end;
  copy.row_bytes = problem.extents[last] * problem.dst_unit_bytes;
  copy.rank = last;
  // A row that starts anywhere in a group touches up to one group more than it fills.
  const int64_t group = convert_group_elements(problem.unit_bytes, problem.dst_unit_bytes);
  uint64_t starts = reinterpret_cast<uintptr_t>(problem.dst);
  int64_t num_rows = 1;
  for (int d = last - 1, i = 0; d >= 0; --d, ++i) {
    copy.dims[i].src_stride = problem.src_strides[d];
    copy.dims[i].dst_stride = problem.dst_strides[d];
    copy.dims[i].extent = problem.extents[d];
    copy.dims[i].divider = Divider(static_cast<uint32_t>(problem.extents[d]));
    num_rows *= problem.extents[d];
    starts |= static_cast<uint64_t>(problem.dst_strides[d]);
  }
  const bool starts_on_groups = starts % static_cast<uint64_t>(group * problem.dst_unit_bytes) == 0;
  const int64_t units_per_row = ceil_div(problem.extents[last] + (starts_on_groups ? 0 : group - 1), group);
  copy.num_units = num_rows * units_per_row;
  copy.wide_units_per_row = units_per_row;
  copy.units_per_row = Divider(static_cast<uint32_t>(units_per_row));
  plan->kernel = PermuteKernel::row_copy;
  plan->unit_bytes = problem.unit_bytes;
  plan->wide_index = copy.num_units >= (int64_t{1} << 31);
  plan->launch = {ceil_div(copy.num_units, copy_threads), copy_threads, 0};
  plan->launch.uses_pdl = true;
}

void plan_in_double(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  if (rows_are_converted(problem)) return plan_convert_rows(problem, plan);
  plan_tile(problem, device, plan);
}

void plan_in_float(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  if (rows_are_converted(problem)) return plan_convert_rows(problem, plan);
  // The channel kernels are compiled for what images are made of.
  PermutePlan channels;
  if (plan_channels(problem, &channels) && channels.channels.num_channels >= 3)
    *plan = channels;
  else
    plan_tile(problem, device, plan);
}

bool is_integer(flowk_dtype dtype) { return dtype >= FLOWK_INT8 && dtype <= FLOWK_UINT64; }

}  // namespace

bool is_convertible(flowk_dtype dtype) {
  return dtype_info(dtype).name != nullptr && dtype < FLOWK_COMPLEX64 && dtype != FLOWK_INT64 && dtype != FLOWK_UINT64;
}

bool is_plain_move(flowk_dtype src_dtype, flowk_dtype dst_dtype, double scale) {
  if (scale != 1) return false;
  return src_dtype == dst_dtype || (is_integer(src_dtype) && is_integer(dst_dtype) &&
                                    dtype_info(src_dtype).element_bytes == dtype_info(dst_dtype).element_bytes);
}

bool computes_in_double(flowk_dtype src_dtype, flowk_dtype dst_dtype) {
  const auto is_wide = [](flowk_dtype dtype) {
    return dtype == FLOWK_FLOAT64 || dtype == FLOWK_INT32 || dtype == FLOWK_UINT32;
  };
  return is_wide(src_dtype) || is_wide(dst_dtype);
}

void make_convert_problem(const PermuteConvertRequest& request, PermuteProblem* problem) {
  PairShape shape = request.shape;
  simplify(&shape);
  if (shape.rank == 0) {  // one element: a row of one
    shape.rank = 1;
    shape.extents[0] = shape.src_strides[0] = shape.dst_strides[0] = 1;
  }
  problem->unit_bytes = dtype_info(request.src_dtype).element_bytes;
  problem->dst_unit_bytes = dtype_info(request.dst_dtype).element_bytes;
  problem->is_converted = true;
  problem->rank = shape.rank;
  problem->src = static_cast<const unsigned char*>(request.src) + shape.src_offset * problem->unit_bytes;
  problem->dst = static_cast<unsigned char*>(request.dst) + shape.dst_offset * problem->dst_unit_bytes;
  problem->src_end = problem->src + problem->unit_bytes;
  for (int d = 0; d < shape.rank; ++d) {
    problem->extents[d] = shape.extents[d];
    problem->src_strides[d] = shape.src_strides[d] * problem->unit_bytes;
    problem->dst_strides[d] = shape.dst_strides[d] * problem->dst_unit_bytes;
    problem->src_end += problem->src_strides[d] * (problem->extents[d] - 1);
  }
}

void plan_permute_convert(const PermuteConvertRequest& request, const Device& device, PermuteConvertPlan* plan) {
  PermuteProblem problem;
  make_convert_problem(request, &problem);
  plan->movement = cached_plan(
      problem, device, computes_in_double(request.src_dtype, request.dst_dtype) ? plan_in_double : plan_in_float);
  plan->dst_unit_bytes = problem.dst_unit_bytes;
  plan->in_double = computes_in_double(request.src_dtype, request.dst_dtype);
  plan->conversion = {request.src_dtype, request.dst_dtype,
                      request.scale == 1 && is_integer(request.src_dtype) && is_integer(request.dst_dtype),
                      static_cast<float>(request.scale), request.scale};
}

}  // namespace flowk::permute
