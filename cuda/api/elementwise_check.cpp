// SPDX-License-Identifier: Apache-2.0
#include "api/elementwise_check.h"

#include <algorithm>
#include <cstring>

namespace flowk::api {
using namespace elementwise;

namespace {

// Fills in input k of `request`, which is a number in host memory.
Status take_number(const Operand& operand, int k, ElementwiseRequest* request) {
  FLOWK_RETURN_IF_ERROR(check_not_null(operand.name, operand.pointer));
  const int32_t element_bytes = dtype_info(operand.dtype).element_bytes;
  request->is_number[k] = true;
  std::memcpy(request->numbers[k], operand.pointer, static_cast<size_t>(element_bytes));
  std::fill_n(request->shape.strides[k], request->shape.rank, int64_t{0});
  return {};
}

}  // namespace

Operand input_of(const char* name, const void* pointer, const int64_t* strides, flowk_dtype dtype) {
  const flowk_dtype element_dtype = dtype & ~FLOWK_HOST_SCALAR;
  if (element_dtype == dtype || dtype_info(element_dtype).name == nullptr) return {name, pointer, strides, dtype};
  return {name, pointer, nullptr, element_dtype, true};
}

Status check_operands(const Operand* operands, int num_operands, int32_t rank, const int64_t* shape,
                      ElementwiseRequest* request, bool* is_empty) {
  FLOWK_RETURN_IF_ERROR(check_shape(0, rank, shape, is_empty));
  if (*is_empty) return {};
  request->shape.num_operands = num_operands;
  request->shape.rank = rank;
  std::copy_n(shape, rank, request->shape.extents);
  Layout layouts[max_operands];
  for (int k = 0; k < num_operands; ++k) {
    const Operand& operand = operands[k];
    const DtypeInfo dtype = dtype_info(operand.dtype);
    request->dtypes[k] = operand.dtype;
    request->element_shifts[k] = __builtin_ctz(static_cast<unsigned>(dtype.element_bytes));
    if (operand.is_number) {
      FLOWK_RETURN_IF_ERROR(take_number(operand, k, request));
      continue;
    }
    layouts[k] = layout_of(rank, shape, operand.strides);
    FLOWK_RETURN_IF_ERROR(check_size(operand.name, layouts[k], dtype.element_bytes));
    FLOWK_RETURN_IF_ERROR(check_pointer(operand.name, operand.pointer, dtype));
    request->pointers[k] = operand.pointer;
    std::copy_n(layouts[k].strides, rank, request->shape.strides[k]);
  }
  FLOWK_RETURN_IF_ERROR(check_no_self_overlap("out", layouts[0]));
  for (int k = 1; k < num_operands; ++k)
    if (!operands[k].is_number)
      FLOWK_RETURN_IF_ERROR(check_same_or_apart(operands[k], layouts[k], operands[0], layouts[0]));
  return {};
}

}  // namespace flowk::api
