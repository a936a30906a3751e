// SPDX-License-Identifier: Apache-2.0
// Derives the facts about a request that the choice of a mechanism depends on.
#include "softmax/plan/softmax_call.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/divide.h"
#include "core/dtype.h"

namespace flowk::softmax {
namespace {

SoftmaxMask mask_of(const SoftmaxRequest& request) {
  if (request.backward) return SoftmaxMask::none;
  const bool has_dense = request.pointers[softmax_dense] != nullptr, has_softcap = request.softcap > 0;
  const bool has_score_terms = has_softcap || request.numbers[row_scale] != nullptr;
  if (request.pointers[softmax_bias_or_y] != nullptr || (has_score_terms && has_dense)) return SoftmaxMask::bias;
  if (has_dense) return SoftmaxMask::dense;
  // Exponents that are computed from x are rounded differently, and only rows of some alignments have such kernels.
  // With a scale of 0 they are not NaN for an infinite x.
  if (has_score_terms && (request.batch_invariant || request.scale == 0)) return SoftmaxMask::bias;
  return has_softcap ? SoftmaxMask::scores : SoftmaxMask::none;
}

// Do the elements of x and of another operand that share a column have the same offset in units of `columns` elements,
// in every row?
bool offsets_agree(const SoftmaxCall& call, SoftmaxOperand operand, int64_t element_bytes, int64_t columns) {
  const auto offset = [columns](int64_t bytes, int64_t one_bytes) {
    const int64_t rest = bytes / one_bytes % columns;
    return rest < 0 ? rest + columns : rest;
  };
  const auto address = [&](SoftmaxOperand of) { return reinterpret_cast<intptr_t>(call.request.pointers[of]); };
  if (offset(address(softmax_x), call.in_bytes) != offset(address(operand), element_bytes)) return false;
  for (int d = 0; d < call.rows.rank; ++d) {
    const SoftmaxRowDim& dim = call.rows.dims[d];
    if (offset(dim.strides[softmax_x], call.in_bytes) != offset(dim.strides[operand], element_bytes)) return false;
  }
  return true;
}

}  // namespace

bool is_aligned(const SoftmaxCall& call, SoftmaxOperand operand, int64_t bytes) {
  if (reinterpret_cast<uintptr_t>(call.request.pointers[operand]) % static_cast<uintptr_t>(bytes) != 0) return false;
  return std::all_of(call.rows.dims, call.rows.dims + call.rows.rank,
                     [&](const SoftmaxRowDim& dim) { return dim.strides[operand] % bytes == 0; });
}

OperandMemory memory_of(const SoftmaxCall& call, SoftmaxOperand operand, int64_t row_bytes) {
  const auto* const base = static_cast<const unsigned char*>(call.request.pointers[operand]);
  OperandMemory memory = {base, base + row_bytes};
  for (int d = 0; d < call.request.rank; ++d) {
    const int64_t reach = call.request.strides[operand][d] * (call.request.extents[d] - 1);
    (reach < 0 ? memory.first : memory.end) += reach;
  }
  return memory;
}

bool has_one_stride(const SoftmaxRows& rows, SoftmaxOperand operand) {
  for (int d = 1; d < rows.rank; ++d) {
    const SoftmaxRowDim &outer = rows.dims[d], &inner = rows.dims[d - 1];
    if (outer.strides[operand] != inner.strides[operand] * inner.extent) return false;
  }
  return true;
}

SoftmaxCall::SoftmaxCall(const SoftmaxRequest& request_of, const Device& device_of)
    : request(request_of),
      device(device_of),
      output_rows(collect_rows(request_of)),
      rows(tile_rows(request_of, output_rows)),
      mask(mask_of(request_of)) {
  in_bytes = dtype_info(request.in_dtype).element_bytes;
  vector_columns = static_cast<int32_t>(vector_bytes / in_bytes);
  row_vectors = request.columns / vector_columns;
  row_bytes = request.columns * in_bytes;
  num_inputs = request.backward || request.pointers[softmax_bias_or_y] != nullptr ? 2 : 1;
  has_score_terms = request.softcap > 0 || (has_scaled_scores(mask) && request.numbers[row_scale] != nullptr);
  has_row_values = has_score_terms || request.numbers[row_scale] != nullptr ||
                   request.pointers[softmax_lse] != nullptr || request.dsinks != nullptr ||
                   request.numbers[row_sink] != nullptr;
  has_dense = !request.backward && request.pointers[softmax_dense] != nullptr;
  has_interval = request.has_diagonal || request.lengths_bytes != 0;
  is_plain = !request.backward && mask == SoftmaxMask::none && !has_interval;
  is_one_type = request.in_dtype == request.out_dtype && in_bytes <= 4;
  has_bias_alone = mask == SoftmaxMask::bias && !has_score_terms && !has_dense && !has_interval &&
                   request.bias_dtype == request.in_dtype && is_one_type;
  const int32_t out_bytes = dtype_info(request.out_dtype).element_bytes;
  vectors_agree =
      (request.pointers[softmax_out] == nullptr ||
       offsets_agree(*this, softmax_out, out_bytes, std::min<int64_t>(vector_columns, vector_bytes / out_bytes))) &&
      (!request.backward || offsets_agree(*this, softmax_bias_or_y, in_bytes, vector_columns)) &&
      (!request.backward || request.softcap == 0 || offsets_agree(*this, softmax_dense, in_bytes, vector_columns));
  bias_vectors_agree =
      has_scaled_scores(mask) &&
      (request.pointers[softmax_bias_or_y] == nullptr ||
       (request.bias_dtype == request.in_dtype && offsets_agree(*this, softmax_bias_or_y, in_bytes, vector_columns)));
  has_tails = request.columns % vector_columns != 0 || !is_aligned(*this, softmax_x, vector_bytes);
  expected_rows = request.batch_invariant ? INT32_MAX : rows.num_rows;
  is_unaligned = request.batch_invariant && (has_tails || !vectors_agree);
  if (request.batch_invariant) {
    row_vectors = ceil_div(request.columns, int64_t{vector_columns});
    vectors_agree = true;
    has_tails = false;
  }
  is_power_of_2 = !has_tails && std::has_single_bit(static_cast<uint64_t>(row_vectors));
  const double scale = std::fabs(request.scale);
  const bool needs_log_of_sink = !request.backward && request.log_softmax && request.numbers[row_sink] != nullptr;
  any_mechanism_is_right =
      !needs_log_of_sink && (request.backward || has_scaled_scores(mask) ||
                             (scale >= (request.in_dtype == FLOWK_FLOAT64 ? min_float64_scale : min_float32_scale) &&
                              (request.in_dtype != FLOWK_FLOAT16 || scale <= max_float16_scale)));
}

}  // namespace flowk::softmax
