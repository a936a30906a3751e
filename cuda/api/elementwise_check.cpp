// SPDX-License-Identifier: Apache-2.0
#include "api/elementwise_check.h"

#include <cstring>

#include "api/check.h"
#include "core/dtype.h"
#include "core/iteration_space.h"

namespace flowk::api {
using namespace elementwise;

const char* const elementwise_operand_names[max_operands] = {"out", "x", "y", "z"};

namespace {

// The layout in bytes: the bytes of an element are its last dimension, so that tensors of all types can be compared.
Layout layout_in_bytes(const Layout& layout, int64_t element_bytes) {
  Layout bytes = layout;
  for (int d = 0; d < layout.rank; ++d) bytes.strides[d] *= element_bytes;
  bytes.extents[bytes.rank] = element_bytes;
  bytes.strides[bytes.rank++] = 1;
  return bytes;
}

bool is_in_place(const ElementwiseTensor& out, const Layout& out_layout, const ElementwiseTensor& input,
                 const Layout& layout) {
  if (input.pointer != out.pointer || dtype_info(input.dtype).element_bytes != dtype_info(out.dtype).element_bytes)
    return false;
  for (int d = 0; d < layout.rank; ++d)
    if (layout.extents[d] > 1 && layout.strides[d] != out_layout.strides[d]) return false;
  return true;
}

// Enters an input that is a number.
Status take_number(const ElementwiseTensor& tensor, int k, ElementwiseRequest* request) {
  if (tensor.pointer == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "%s = NULL, must not be", elementwise_operand_names[k]);
  const int32_t element_bytes = dtype_info(tensor.dtype).element_bytes;
  request->is_number[k] = true;
  std::memcpy(request->numbers[k], tensor.pointer, static_cast<size_t>(element_bytes));
  request->dtypes[k] = tensor.dtype;
  request->element_shifts[k] = __builtin_ctz(static_cast<unsigned>(element_bytes));
  for (int d = 0; d < request->shape.rank; ++d) request->shape.strides[k][d] = 0;
  return {};
}

}  // namespace

ElementwiseTensor input_of(const void* pointer, const int64_t* strides, flowk_dtype dtype) {
  const int32_t value = dtype;
  if (value < 0 || (value & FLOWK_NUMBER) == 0) return {pointer, strides, dtype};
  return {pointer, nullptr, static_cast<flowk_dtype>(value & ~FLOWK_NUMBER), true};
}

Status check_tensors(const ElementwiseTensor* tensors, int num_operands, int32_t rank, const int64_t* shape,
                     ElementwiseRequest* request, bool* is_empty) {
  if (rank < 0 || rank > FLOWK_MAX_RANK)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "rank = %d, must be in 0 ... %d", rank, FLOWK_MAX_RANK);
  if (rank > 0 && shape == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "shape = NULL, must not be with rank = %d", rank);
  *is_empty = false;
  Layout layouts[max_operands];
  for (int d = 0; d < rank; ++d) {
    if (shape[d] < 0)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "shape[%d] = %lld, must be >= 0", d,
                             static_cast<long long>(shape[d]));
    if (shape[d] == 0) *is_empty = true;
    for (Layout& layout : layouts) layout.extents[d] = shape[d];
  }
  if (*is_empty) return {};
  request->shape.num_operands = num_operands;
  request->shape.rank = rank;
  for (int k = 0; k < num_operands; ++k) {
    const ElementwiseTensor& operand = tensors[k];
    if (operand.is_number) {
      FLOWK_RETURN_IF_ERROR(take_number(operand, k, request));
      continue;
    }
    const DtypeInfo dtype = dtype_info(operand.dtype);
    Layout& layout = layouts[k];
    layout.rank = rank;
    if (operand.strides != nullptr)
      std::memcpy(layout.strides, operand.strides, sizeof(int64_t) * static_cast<size_t>(rank));
    else
      contiguous_strides(rank, layout.extents, layout.strides);
    FLOWK_RETURN_IF_ERROR(check_size(elementwise_operand_names[k], layout, dtype.element_bytes));
    FLOWK_RETURN_IF_ERROR(check_pointer(elementwise_operand_names[k], operand.pointer, dtype));
    request->pointers[k] = operand.pointer;
    request->dtypes[k] = operand.dtype;
    request->element_shifts[k] = __builtin_ctz(static_cast<unsigned>(dtype.element_bytes));
    for (int d = 0; d < rank; ++d) {
      request->shape.extents[d] = layout.extents[d];
      request->shape.strides[k][d] = layout.strides[d];
    }
  }
  FLOWK_RETURN_IF_ERROR(check_no_self_overlap("out", layouts[0]));
  const ElementwiseTensor& out = tensors[0];
  const Layout out_bytes = layout_in_bytes(layouts[0], dtype_info(out.dtype).element_bytes);
  for (int k = 1; k < num_operands; ++k) {
    const ElementwiseTensor& input = tensors[k];
    if (input.is_number || is_in_place(out, layouts[0], input, layouts[k])) continue;
    FLOWK_RETURN_IF_ERROR(check_no_overlap(elementwise_operand_names[k], input.pointer,
                                           layout_in_bytes(layouts[k], dtype_info(input.dtype).element_bytes), "out",
                                           out.pointer, out_bytes, 1));
  }
  return {};
}

}  // namespace flowk::api
