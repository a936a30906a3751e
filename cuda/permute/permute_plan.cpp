// SPDX-License-Identifier: Apache-2.0
#include "permute/permute_plan.h"

#include <algorithm>

#include "permute/permute_problem.h"

namespace flowk::permute {
namespace {

// Where the last dimension stays last: from how many bytes on rows of aligned units are copied one by one, by the rank
// of the simplified problem. Shorter ones go through a tile, which reads and writes more of what lies together.
// Fractions of copy on an H200, row_copy against tile: rank 3, 256 bytes 0.97 and 0.96; rank 4, 128 bytes 0.97 and
// 0.93, 192 bytes 0.99 and 0.95; rank 6, 64 bytes 0.70 and 0.94, 192 bytes 0.92 and 0.94, 384 bytes 0.96 and 0.98.
struct RowCopyRow {
  int max_rank;
  int64_t min_row_bytes;
};
constexpr RowCopyRow row_copy_rows[] = {{3, 64}, {4, 128}, {max_rank, 512}};
constexpr int64_t min_shifted_row_copy_bytes = 128;

bool rows_are_copied(int rank, int64_t row_bytes) {
  for (const RowCopyRow& row : row_copy_rows)
    if (rank <= row.max_rank) return row_bytes >= row.min_row_bytes;
  return false;
}

bool is_multiple(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

// Could the last dimension, contiguous on both sides, be counted in units twice as wide?
bool can_widen(const PermuteProblem& problem) {
  const int last = problem.rank - 1;
  const int64_t wider = 2 * problem.unit_bytes;
  if (problem.unit_bytes == vector_bytes || problem.extents[last] % 2 != 0) return false;
  if (!is_multiple(problem.src, wider) || !is_multiple(problem.dst, wider)) return false;
  for (int d = 0; d < last; ++d)
    if (problem.src_strides[d] % wider != 0 || problem.dst_strides[d] % wider != 0) return false;
  return true;
}

bool last_dim_is_reversed(const PermuteProblem& problem) {
  const int last = problem.rank - 1;
  return last >= 0 && problem.src_strides[last] == problem.unit_bytes &&
         problem.dst_strides[last] == -int64_t{problem.unit_bytes};
}

bool last_dim_is_contiguous(const PermuteProblem& problem) {
  const int last = problem.rank - 1;
  return last >= 0 && problem.src_strides[last] == problem.unit_bytes &&
         problem.dst_strides[last] == problem.unit_bytes;
}

// Rows are the dimensions but the last, or the whole tensor as one row.
void plan_copy(const PermuteProblem& problem, PermuteKernel kernel, PermutePlan* plan) {
  CopyParams& copy = plan->copy;
  const int last = problem.rank - 1;
  const int64_t row_units = problem.rank > 0 ? problem.extents[last] : 1;
  copy.src = problem.src;
  copy.dst = problem.dst;
  copy.src_end = problem.src_end;
  copy.row_bytes = row_units * problem.unit_bytes;
  if (kernel == PermuteKernel::reversed_row_copy) copy.dst -= copy.row_bytes - problem.unit_bytes;
  // A row that starts anywhere in a vector touches up to one vector more than it fills.
  const bool in_vectors = kernel == PermuteKernel::shifted_row_copy || kernel == PermuteKernel::reversed_row_copy;
  const int64_t units_per_row = in_vectors ? ceil_div(copy.row_bytes + vector_bytes - 1, vector_bytes) : row_units;
  copy.rank = std::max(last, 0);
  int64_t num_rows = 1;
  for (int d = last - 1, i = 0; d >= 0; --d, ++i) {
    copy.dims[i].src_stride = problem.src_strides[d];
    copy.dims[i].dst_stride = problem.dst_strides[d];
    copy.dims[i].extent = problem.extents[d];
    copy.dims[i].divider = Divider(static_cast<uint32_t>(problem.extents[d]));
    num_rows *= problem.extents[d];
  }
  copy.num_units = num_rows * units_per_row;
  copy.wide_units_per_row = units_per_row;
  copy.units_per_row = Divider(static_cast<uint32_t>(units_per_row));
  plan->kernel = kernel;
  plan->unit_bytes = problem.unit_bytes;
  plan->wide_index = copy.num_units >= (int64_t{1} << 31);
  plan->launch = {ceil_div(copy.num_units, copy_threads), copy_threads, 0};
  // One run stays a plain launch: it is the copy that all others are measured by.
  plan->launch.uses_pdl = kernel != PermuteKernel::contiguous_copy;
}

}  // namespace

void make_problem(const PermuteRequest& request, PermuteProblem* problem) {
  PairShape shape = request.shape;
  simplify(&shape);
  problem->unit_bytes = request.element_bytes;
  if (!is_multiple(request.src, request.element_bytes) || !is_multiple(request.dst, request.element_bytes)) {
    // Only complex numbers get here: two halves, one after the other, each aligned.
    problem->unit_bytes = request.element_bytes / 2;
    shape.src_offset *= 2;
    shape.dst_offset *= 2;
    for (int d = 0; d < shape.rank; ++d) {
      shape.src_strides[d] *= 2;
      shape.dst_strides[d] *= 2;
    }
    shape.extents[shape.rank] = 2;
    shape.src_strides[shape.rank] = 1;
    shape.dst_strides[shape.rank] = 1;
    ++shape.rank;
    simplify(&shape);
  }
  problem->rank = shape.rank;
  problem->src = static_cast<const unsigned char*>(request.src) + shape.src_offset * problem->unit_bytes;
  problem->dst = static_cast<unsigned char*>(request.dst) + shape.dst_offset * problem->unit_bytes;
  problem->src_end = problem->src + problem->unit_bytes;
  for (int d = 0; d < shape.rank; ++d) {
    problem->extents[d] = shape.extents[d];
    problem->src_strides[d] = shape.src_strides[d] * problem->unit_bytes;
    problem->dst_strides[d] = shape.dst_strides[d] * problem->unit_bytes;
    problem->src_end += problem->src_strides[d] * (problem->extents[d] - 1);
  }
  while (last_dim_is_contiguous(*problem) && can_widen(*problem)) {
    const int last = problem->rank - 1;
    problem->unit_bytes *= 2;
    problem->extents[last] /= 2;
    problem->src_strides[last] = problem->dst_strides[last] = problem->unit_bytes;
    if (problem->extents[last] == 1) --problem->rank;  // the neighbours do not merge: their strides have not changed
  }
  problem->dst_unit_bytes = problem->unit_bytes;
}

void plan_permute(const PermuteRequest& request, const Device& device, PermutePlan* plan) {
  PermuteProblem problem;
  make_problem(request, &problem);
  plan_problem(problem, device, plan);
}

void plan_problem(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  const bool aligned = problem.unit_bytes == vector_bytes;
  if (problem.rank == 0 || (problem.rank == 1 && last_dim_is_contiguous(problem)))
    return plan_copy(
        problem, aligned || problem.rank == 0 ? PermuteKernel::contiguous_copy : PermuteKernel::shifted_row_copy, plan);
  if (last_dim_is_contiguous(problem)) {
    const int64_t row_bytes = problem.extents[problem.rank - 1] * problem.unit_bytes;
    if (aligned && rows_are_copied(problem.rank, row_bytes)) return plan_copy(problem, PermuteKernel::row_copy, plan);
    if (!aligned && row_bytes >= min_shifted_row_copy_bytes)
      return plan_copy(problem, PermuteKernel::shifted_row_copy, plan);
  }
  if (last_dim_is_reversed(problem) &&
      problem.extents[problem.rank - 1] * problem.unit_bytes >= min_shifted_row_copy_bytes)
    return plan_copy(problem, PermuteKernel::reversed_row_copy, plan);
  if (plan_channels(problem, plan)) return;
  plan_tile(problem, device, plan);
}

}  // namespace flowk::permute
