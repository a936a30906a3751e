// SPDX-License-Identifier: Apache-2.0
#include "permute/plan/permute_problem.h"

namespace flowk::permute {
namespace {

bool is_multiple(const void* pointer, int64_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

bool last_dim_is_contiguous(const PermuteProblem& problem) {
  const int last = problem.rank - 1;
  return last >= 0 && problem.src_strides[last] == problem.unit_bytes &&
         problem.dst_strides[last] == problem.unit_bytes;
}

// Could the last dimension, contiguous in src and dst, be counted in units twice as wide?
bool can_widen(const PermuteProblem& problem) {
  const int last = problem.rank - 1;
  const int64_t wider = 2 * problem.unit_bytes;
  if (problem.unit_bytes == vector_bytes || problem.extents[last] % 2 != 0) return false;
  if (!is_multiple(problem.src, wider) || !is_multiple(problem.dst, wider)) return false;
  for (int d = 0; d < last; ++d)
    if (problem.src_strides[d] % wider != 0 || problem.dst_strides[d] % wider != 0) return false;
  return true;
}

// From a simplified shape in elements of the problem's sizes.
void set_shape(const IterationSpace& shape, const void* src, void* dst, PermuteProblem* problem) {
  problem->rank = shape.rank;
  problem->src = static_cast<const unsigned char*>(src) + shape.offsets[src_operand] * problem->unit_bytes;
  problem->dst = static_cast<unsigned char*>(dst) + shape.offsets[dst_operand] * problem->dst_unit_bytes;
  problem->src_end = problem->src + problem->unit_bytes;
  for (int d = 0; d < shape.rank; ++d) {
    problem->extents[d] = shape.extents[d];
    problem->src_strides[d] = shape.strides[src_operand][d] * problem->unit_bytes;
    problem->dst_strides[d] = shape.strides[dst_operand][d] * problem->dst_unit_bytes;
    problem->src_end += problem->src_strides[d] * (problem->extents[d] - 1);
  }
}

// Units are elements.
void make_convert_problem(const PermuteRequest& request, PermuteProblem* problem) {
  IterationSpace shape = request.shape;
  simplify(&shape, src_operand);
  if (shape.rank == 0) {  // one element: a row of one
    shape.rank = 1;
    shape.extents[0] = shape.strides[src_operand][0] = shape.strides[dst_operand][0] = 1;
  }
  problem->unit_bytes = request.element_bytes;
  problem->dst_unit_bytes = dtype_info(request.conversion->dst_dtype).element_bytes;
  problem->conversion = request.conversion;
  problem->has_aligned_tile =
      converts_aligned_tiles(problem->unit_bytes, problem->dst_unit_bytes, problem->in_double());
  set_shape(shape, request.src, request.dst, problem);
}

// Units are as wide as they can be.
void make_move_problem(const PermuteRequest& request, PermuteProblem* problem) {
  IterationSpace shape = request.shape;
  simplify(&shape, src_operand);
  problem->unit_bytes = request.element_bytes;
  if (!is_multiple(request.src, request.element_bytes) || !is_multiple(request.dst, request.element_bytes)) {
    // Only complex numbers get here: two halves, one after the other, each aligned.
    problem->unit_bytes = request.element_bytes / 2;
    for (const int k : {dst_operand, src_operand}) {
      shape.offsets[k] *= 2;
      for (int d = 0; d < shape.rank; ++d) shape.strides[k][d] *= 2;
      shape.strides[k][shape.rank] = 1;
    }
    shape.extents[shape.rank++] = 2;
    simplify(&shape, src_operand);
  }
  problem->dst_unit_bytes = problem->unit_bytes;
  set_shape(shape, request.src, request.dst, problem);
  while (last_dim_is_contiguous(*problem) && can_widen(*problem)) {
    const int last = problem->rank - 1;
    problem->unit_bytes *= 2;
    problem->extents[last] /= 2;
    problem->src_strides[last] = problem->dst_strides[last] = problem->unit_bytes;
    if (problem->extents[last] == 1) --problem->rank;  // the others do not merge, because their strides are as before
  }
  problem->dst_unit_bytes = problem->unit_bytes;
}

bool is_integer(flowk_dtype dtype) { return dtype >= FLOWK_INT8 && dtype <= FLOWK_UINT64; }

}  // namespace

void make_problem(const PermuteRequest& request, PermuteProblem* problem) {
  if (request.conversion)
    make_convert_problem(request, problem);
  else
    make_move_problem(request, problem);
}

bool is_convertible(flowk_dtype dtype) {
  return dtype_info(dtype).name != nullptr && dtype < FLOWK_COMPLEX64 && dtype != FLOWK_INT64 && dtype != FLOWK_UINT64;
}

bool is_plain_move(flowk_dtype src_dtype, flowk_dtype dst_dtype, double scale) {
  if (scale != 1) return false;
  return src_dtype == dst_dtype || (is_integer(src_dtype) && is_integer(dst_dtype) &&
                                    dtype_info(src_dtype).element_bytes == dtype_info(dst_dtype).element_bytes);
}

Conversion conversion_of(flowk_dtype src_dtype, flowk_dtype dst_dtype, double scale) {
  const auto is_wide = [](flowk_dtype dtype) {
    return dtype == FLOWK_FLOAT64 || dtype == FLOWK_INT32 || dtype == FLOWK_UINT32;
  };
  return {src_dtype,
          dst_dtype,
          scale == 1 && is_integer(src_dtype) && is_integer(dst_dtype),
          is_wide(src_dtype) || is_wide(dst_dtype),
          static_cast<float>(scale),
          scale};
}

}  // namespace flowk::permute
