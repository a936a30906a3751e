// SPDX-License-Identifier: Apache-2.0
#include "softmax/softmax_problem.h"

#include <algorithm>
#include <cstdlib>

#include "core/dtype.h"

namespace flowk::softmax {
namespace {

constexpr int64_t vector_bytes = 16;

// Rows that a mask or a bias broadcasts over are walked in bands: all rows that share a band of the mask before the
// next band, so that it is read from L2 all times but the first, and each operand's rows stay neighbours in memory. How
// many bytes of mask a band has. Fractions of copy on an H200, float16, 16 heads: 1024 columns: whole (1 MB) 0.987, 512
// rows 0.965, a row at a time 0.953; 2048: 2 MB 0.978, a row at a time 0.944; 4096: 1 MB 0.945, 4 MB 0.93, whole
// (16 MB) 0.81; 8192: 2 MB 0.957, 8 MB 0.89, whole 0.82.
struct BandRow {
  int64_t max_columns;
  int64_t band_bytes;
};
constexpr BandRow band_table[] = {{2048, 2 << 20}, {4096, 1 << 20}, {INT64_MAX, 2 << 20}};

bool is_one_dim(const SoftmaxDim& outer, const SoftmaxDim& inner) {
  for (int i = 0; i < num_softmax_operands; ++i)
    if (outer.strides[i] != inner.strides[i] * inner.extent) return false;
  return true;
}

// Dimensions that are not 1, by the size of their strides in the output, largest first, merged.
void collect_dims(const SoftmaxRequest& request, SoftmaxProblem* problem) {
  SoftmaxDim sorted[max_rank];
  int rank = 0;
  for (int d = 0; d < request.rank; ++d) {
    if (request.extents[d] == 1) continue;
    SoftmaxDim dim;
    dim.extent = request.extents[d];
    for (int i = 0; i < num_softmax_operands; ++i) dim.strides[i] = request.strides[i][d];
    int at = rank++;
    for (; at > 0 && std::abs(sorted[at - 1].strides[softmax_out]) < std::abs(dim.strides[softmax_out]); --at)
      sorted[at] = sorted[at - 1];
    sorted[at] = dim;
    problem->num_rows *= dim.extent;
  }
  // Innermost first.
  for (int d = rank - 1; d >= 0; --d) {
    SoftmaxDim& inner = problem->dims[std::max(problem->rank - 1, 0)];
    if (problem->rank > 0 && is_one_dim(sorted[d], inner))
      inner.extent *= sorted[d].extent;
    else
      problem->dims[problem->rank++] = sorted[d];
  }
}

// Where the innermost rows have a mask of their own and the next ones share it: walks the innermost in bands.
void split_bands(const SoftmaxRequest& request, SoftmaxProblem* problem) {
  if (request.backward || problem->rank < 2) return;
  int64_t shared_bytes = 0;  // of one row of what is broadcast
  int64_t element_bytes[num_softmax_operands] = {};
  element_bytes[softmax_dense] = 1;
  element_bytes[softmax_side] = dtype_info(request.bias_dtype).element_bytes;
  for (const SoftmaxOperand operand : {softmax_dense, softmax_side})
    if (request.pointers[operand] != nullptr && problem->dims[0].strides[operand] != 0 &&
        problem->dims[1].strides[operand] == 0)
      shared_bytes += element_bytes[operand] * request.columns;
  if (shared_bytes == 0) return;
  int64_t band_bytes = 0;
  for (const BandRow& row : band_table)
    if (request.columns <= row.max_columns) {
      band_bytes = row.band_bytes;
      break;
    }
  const int64_t extent = problem->dims[0].extent;
  if (shared_bytes * extent <= band_bytes) return;
  const int64_t most_rows = std::max<int64_t>(band_bytes / shared_bytes, 1);
  const int64_t num_bands = (extent + most_rows - 1) / most_rows;
  const int64_t rows = (extent + num_bands - 1) / num_bands;
  // All dimensions next to the first that share its mask stay inside a band.
  int at = 1;
  while (at < problem->rank &&
         (request.pointers[softmax_dense] == nullptr || problem->dims[at].strides[softmax_dense] == 0) &&
         (request.pointers[softmax_side] == nullptr || problem->dims[at].strides[softmax_side] == 0))
    ++at;
  if (at == 1) at = 2;  // one of the two is shared along dims[1] only
  for (int d = problem->rank; d > at; --d) problem->dims[d] = problem->dims[d - 1];
  ++problem->rank;
  SoftmaxDim& bands = problem->dims[at];
  bands.extent = num_bands;
  for (int i = 0; i < num_softmax_operands; ++i) bands.strides[i] = problem->dims[0].strides[i] * rows;
  problem->dims[0].extent = rows;
  problem->num_rows = problem->num_rows / extent * rows * num_bands;
  problem->band_dim = at;
  problem->band_rows = static_cast<int32_t>(rows);
  problem->band_extent = extent;
}

// Are the elements of two operands that share a column at the same place of units of `columns` elements, in all rows?
bool phases_agree(const SoftmaxRequest& request, const SoftmaxProblem& problem, SoftmaxOperand a, int64_t a_bytes,
                  SoftmaxOperand b, int64_t b_bytes, int64_t columns) {
  const auto phase = [columns](int64_t bytes, int64_t element_bytes) {
    const int64_t rest = bytes / element_bytes % columns;
    return rest < 0 ? rest + columns : rest;
  };
  if (phase(static_cast<int64_t>(reinterpret_cast<uintptr_t>(request.pointers[a])), a_bytes) !=
      phase(static_cast<int64_t>(reinterpret_cast<uintptr_t>(request.pointers[b])), b_bytes))
    return false;
  for (int d = 0; d < problem.rank; ++d)
    if (phase(problem.dims[d].strides[a], a_bytes) != phase(problem.dims[d].strides[b], b_bytes)) return false;
  return true;
}

bool rows_are_aligned(const SoftmaxRequest& request, const SoftmaxProblem& problem) {
  if (reinterpret_cast<uintptr_t>(request.pointers[softmax_x]) % vector_bytes != 0) return false;
  for (int d = 0; d < problem.rank; ++d)
    if (problem.dims[d].strides[softmax_x] % vector_bytes != 0) return false;
  return true;
}

}  // namespace

void make_softmax_problem(const SoftmaxRequest& request, SoftmaxProblem* problem) {
  collect_dims(request, problem);
  split_bands(request, problem);
  problem->in_bytes = dtype_info(request.in_dtype).element_bytes;
  problem->out_bytes = dtype_info(request.out_dtype).element_bytes;
  problem->vector_columns = static_cast<int32_t>(vector_bytes / problem->in_bytes);
  const int64_t out_unit = std::min<int64_t>(problem->vector_columns, vector_bytes / problem->out_bytes);
  problem->vectors_agree =
      phases_agree(request, *problem, softmax_x, problem->in_bytes, softmax_out, problem->out_bytes, out_unit) &&
      (!request.backward || phases_agree(request, *problem, softmax_x, problem->in_bytes, softmax_side,
                                         problem->in_bytes, problem->vector_columns));
  problem->bias_vectors_agree = !request.backward && request.pointers[softmax_side] != nullptr &&
                                request.bias_dtype == request.in_dtype &&
                                phases_agree(request, *problem, softmax_x, problem->in_bytes, softmax_side,
                                             problem->in_bytes, problem->vector_columns);
  problem->has_leftovers = request.columns % problem->vector_columns != 0 || !rows_are_aligned(request, *problem);
}

}  // namespace flowk::softmax
