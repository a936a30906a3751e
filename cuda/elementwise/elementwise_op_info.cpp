// SPDX-License-Identifier: Apache-2.0
#include "elementwise/elementwise_op_info.h"

#include "core/dtype.h"
#include "elementwise/elementwise_op_cost.h"

namespace flowk::elementwise {
namespace {

constexpr bool has_letter(const char* letters, char letter) {
  for (; *letters != '\0'; ++letters)
    if (*letters == letter) return true;
  return false;
}

}  // namespace

#define FLOWK_INFO(NAME, value, name, kinds, result, num_parameters, formula) \
  case value:                                                                 \
    return {#name,                                                            \
            formula,                                                          \
            has_letter(#kinds, 'B'),                                          \
            has_letter(#kinds, 'I'),                                          \
            has_letter(#kinds, 'F'),                                          \
            OpResult::result,                                                 \
            num_parameters};

OpInfo unary_op_info(int32_t op) {
  switch (op) { FLOWK_UNARY_OPS(FLOWK_INFO) }
  return {};
}

OpInfo binary_op_info(int32_t op) {
  switch (op) { FLOWK_BINARY_OPS(FLOWK_INFO) }
  return {};
}

OpInfo ternary_op_info(int32_t op) {
  switch (op) { FLOWK_TERNARY_OPS(FLOWK_INFO) }
  return {};
}

#undef FLOWK_INFO

bool is_float(flowk_dtype dtype) { return dtype >= FLOWK_FLOAT16 && dtype <= FLOWK_FLOAT8_E5M2; }

bool is_complex(flowk_dtype dtype) { return dtype == FLOWK_COMPLEX64 || dtype == FLOWK_COMPLEX128; }

bool takes_dtype(const OpInfo& info, flowk_dtype dtype) {
  if (info.name == nullptr || dtype_info(dtype).name == nullptr || is_complex(dtype)) return false;
  if (dtype == FLOWK_BOOL) return info.takes_bool;
  return is_float(dtype) ? info.takes_floats : info.takes_integers;
}

OpCost cost_of(const ElementwiseRequest& request) {
  switch (request.arity) {
    case ElementwiseArity::unary: return cost_of(static_cast<UnaryOp>(request.op));
    case ElementwiseArity::binary: return cost_of(static_cast<BinaryOp>(request.op));
    default: return OpCost::light;
  }
}

int typed_input_of(ElementwiseArity arity, int32_t op) {
  return arity == ElementwiseArity::ternary && op == FLOWK_TERNARY_WHERE ? 2 : 1;
}

ComputeClass compute_class_of(const ElementwiseRequest& request) {
  const int typed_input = typed_input_of(request.arity, request.op);
  // If the input or the result has 8 bytes, the type of the computation has them too.
  const bool is_wide = request.element_shifts[typed_input] == 3 || request.element_shifts[0] == 3;
  if (is_float(request.dtypes[typed_input])) return is_wide ? ComputeClass::float64 : ComputeClass::float32;
  return is_wide ? ComputeClass::int64 : ComputeClass::int32;
}

flowk_dtype bits_of(flowk_dtype dtype) {
  switch (dtype_info(dtype).element_bytes) {
    case 1: return dtype == FLOWK_BOOL ? FLOWK_BOOL : FLOWK_UINT8;
    case 2: return FLOWK_UINT16;
    case 4: return FLOWK_INT32;
    default: return FLOWK_INT64;
  }
}

}  // namespace flowk::elementwise
