// SPDX-License-Identifier: Apache-2.0
// The C ABI of elementwise operations: check, plan, run.
#include <cmath>

#include "api/call.h"
#include "api/elementwise_check.h"
#include "elementwise/elementwise.h"
#include "elementwise/elementwise_op_info.h"
#include "flowk/flowk.h"
#include "permute/permute.h"

namespace flowk::api {
using namespace elementwise;
using permute::PermutePlan;
using permute::PermuteRequest;
namespace {

constexpr const char* dtype_names[max_operands] = {"out_dtype", "x_dtype", "y_dtype", "z_dtype"};

struct Arguments {
  ElementwiseArity arity;
  int32_t op;
  OpInfo info;
  int num_operands;
  Operand operands[max_operands];  // out, then the inputs
  int32_t rank;
  const int64_t* shape;
  double a, b;
};

Status unsupported(const Arguments& arguments, int k, const char* wanted) {
  return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "%s = %s, must be %s for %s", dtype_names[k],
                         dtype_info(arguments.operands[k].dtype).name, wanted, arguments.info.name);
}

bool is_narrow_float(flowk_dtype dtype) { return is_float(dtype) && dtype != FLOWK_FLOAT64; }
bool is_64_bit_integer(flowk_dtype dtype) { return dtype == FLOWK_INT64 || dtype == FLOWK_UINT64; }

const char* types_taken_by(const OpInfo& info) {
  if (!info.takes_integers) return "a float";
  if (!info.takes_floats) return "bool or an integer";
  return info.takes_bool ? "bool, an integer or a float" : "an integer or a float";
}

// The rules of flowk.h under Types.
Status check_types(const Arguments& arguments) {
  DtypeInfo infos[max_operands];
  for (int k = 0; k < arguments.num_operands; ++k)
    FLOWK_RETURN_IF_ERROR(check_dtype(dtype_names[k], arguments.operands[k].dtype, &infos[k]));
  const int typed_input = typed_input_of(arguments.arity, arguments.op);
  if (typed_input > 1 && arguments.operands[1].dtype != FLOWK_BOOL) return unsupported(arguments, 1, "bool");
  const flowk_dtype dtype = arguments.operands[typed_input].dtype;
  if (!takes_dtype(arguments.info, dtype)) return unsupported(arguments, typed_input, types_taken_by(arguments.info));
  for (int k = typed_input + 1; k < arguments.num_operands; ++k) {
    const flowk_dtype other = arguments.operands[k].dtype;
    if (arguments.arity == ElementwiseArity::binary && arguments.info.result == OpResult::BOOL &&
        is_64_bit_integer(dtype) && is_64_bit_integer(other))
      continue;
    if (other != dtype && !(is_narrow_float(other) && is_narrow_float(dtype)))
      return unsupported(arguments, k,
                         is_narrow_float(dtype) ? "a float of 8, 16 or 32 bits" : infos[typed_input].name);
  }
  const flowk_dtype out = arguments.operands[0].dtype;
  if (arguments.info.result == OpResult::ANY) {
    if (is_complex(out)) return unsupported(arguments, 0, "bool, an integer or a float");
  } else if (arguments.info.result == OpResult::BOOL) {
    if (out != FLOWK_BOOL) return unsupported(arguments, 0, "bool");
  } else if (out != dtype && !(is_narrow_float(out) && is_narrow_float(dtype))) {
    return unsupported(arguments, 0, is_narrow_float(dtype) ? "a float of 8, 16 or 32 bits" : infos[typed_input].name);
  }
  return {};
}

// A selection between elements of one type moves them as integers.
void select_bits(const Arguments& arguments, ElementwiseRequest* request) {
  const bool selects = arguments.arity == ElementwiseArity::ternary && arguments.op == FLOWK_TERNARY_WHERE;
  const bool is_one_type = request->dtypes[0] == request->dtypes[2] && request->dtypes[2] == request->dtypes[3];
  if (selects && is_one_type)
    request->dtypes[0] = request->dtypes[2] = request->dtypes[3] = bits_of(request->dtypes[0]);
}

// The parameter of an operation on integers: converted as flowk_unary() converts float64.
double parameter_of(flowk_dtype dtype, double value) {
  if (is_float(dtype)) return value;
  if (value != value) return 0;
  const int bits = 8 * dtype_info(dtype).element_bytes;
  const bool is_signed = dtype == FLOWK_INT8 || dtype == FLOWK_INT16 || dtype == FLOWK_INT32 || dtype == FLOWK_INT64;
  const double end = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  const double lowest = is_signed ? -end : 0.0;
  value = std::trunc(value);
  // float64 does not hold end - 1 of 64 bits; the kernel's own conversion saturates.
  if (value >= end) return bits == 64 ? end : end - 1;
  return value < lowest ? lowest : value;
}

bool is_same_type_copy(const ElementwiseRequest& request) {
  return request.arity == ElementwiseArity::unary && request.op == FLOWK_UNARY_COPY &&
         request.dtypes[0] == request.dtypes[1] && !request.is_number[1];
}

// A copy without a conversion is a permute that keeps the order of the dimensions. False: src and dst are the same.
bool make_permute(const ElementwiseRequest& request, PermuteRequest* permute) {
  permute->src = request.pointers[1];
  permute->dst = const_cast<void*>(request.pointers[0]);
  permute->element_bytes = 1 << request.element_shifts[0];
  permute->shape = request.shape;
  return permute->src != permute->dst;
}

// Checks a call and fills in `request`, or sets `is_empty` if there is nothing to do.
Status check(const Arguments& arguments, ElementwiseRequest* request, bool* is_empty) {
  constexpr int num_ops[] = {0, FLOWK_NUM_UNARY_OPS, FLOWK_NUM_BINARY_OPS, FLOWK_NUM_TERNARY_OPS};  // by arity
  if (arguments.info.name == nullptr)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "op = %d, must be in 1 ... %d (flowk/elementwise_ops.h)",
                           arguments.op, num_ops[static_cast<int>(arguments.arity)]);
  FLOWK_RETURN_IF_ERROR(check_types(arguments));
  FLOWK_RETURN_IF_ERROR(
      check_operands(arguments.operands, arguments.num_operands, arguments.rank, arguments.shape, request, is_empty));
  if (*is_empty) return {};
  request->arity = arguments.arity;
  request->op = arguments.op;
  select_bits(arguments, request);
  request->a = parameter_of(arguments.operands[1].dtype, arguments.a);
  request->b = parameter_of(arguments.operands[1].dtype, arguments.b);
  if (!is_same_type_copy(*request)) simplify(&request->shape);
  return {};
}

Status plan_and_use_elementwise(const ElementwiseRequest& request, const Device& device, const PlanUse& use) {
  if (needs_split(request)) {
    ElementwiseRequest first, second;
    split_request(request, &first, &second);
    FLOWK_RETURN_IF_ERROR(plan_and_use_elementwise(first, device, use));
    if (use.explains) return {};  // the other parts have the same plan for fewer elements
    return plan_and_use_elementwise(second, device, use);
  }
  ElementwisePlan plan;
  plan_elementwise(request, device, 0, &plan);
  FLOWK_RETURN_IF_ERROR(check_grid("out", plan.launch));
  if (!use.explains) return run_elementwise(plan, use.stream);
  explain_elementwise(plan, request, use.text, use.text_bytes);
  return {};
}

Status plan_and_use_copy(const ElementwiseRequest& request, const Device& device, const PlanUse& use) {
  PermuteRequest permute;
  const bool moves = make_permute(request, &permute);
  if (!moves && !use.explains) return {};
  const PermutePlan* plan = nullptr;
  FLOWK_RETURN_IF_ERROR(cached_plan(permute, device, &plan));
  FLOWK_RETURN_IF_ERROR(check_grid("out", plan->launch));
  if (!use.explains) return run_permute(*plan, use.stream);
  explain_permute(*plan, permute, use.text, use.text_bytes);
  return {};
}

flowk_status call(const Arguments& arguments, const PlanUse& use) {
  return check_plan_run<ElementwiseRequest>(
      use, [&](ElementwiseRequest* request, bool* is_empty) { return check(arguments, request, is_empty); },
      [&](const ElementwiseRequest& request, const Device& device) {
        return (is_same_type_copy(request) ? plan_and_use_copy : plan_and_use_elementwise)(request, device, use);
      });
}

flowk_dtype result_of(const OpInfo& info, flowk_dtype dtype) {
  if (!takes_dtype(info, dtype)) return 0;
  return info.result == OpResult::BOOL ? flowk_dtype{FLOWK_BOOL} : dtype;
}

Arguments unary_arguments(flowk_unary_op op, const Operand& x, const Operand& out, int32_t rank, const int64_t* shape,
                          double a, double b) {
  return {ElementwiseArity::unary, op, unary_op_info(op), 2, {out, x}, rank, shape, a, b};
}

Arguments binary_arguments(flowk_binary_op op, const Operand& x, const Operand& y, const Operand& out, int32_t rank,
                           const int64_t* shape) {
  return {ElementwiseArity::binary, op, binary_op_info(op), 3, {out, x, y}, rank, shape, 0, 0};
}

Arguments ternary_arguments(flowk_ternary_op op, const Operand& x, const Operand& y, const Operand& z,
                            const Operand& out, int32_t rank, const int64_t* shape, double a) {
  return {ElementwiseArity::ternary, op, ternary_op_info(op), 4, {out, x, y, z}, rank, shape, a, 0};
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

const char* flowk_unary_op_name(flowk_unary_op op) { return unary_op_info(op).name; }
const char* flowk_binary_op_name(flowk_binary_op op) { return binary_op_info(op).name; }
const char* flowk_ternary_op_name(flowk_ternary_op op) { return ternary_op_info(op).name; }

const char* flowk_unary_op_formula(flowk_unary_op op) { return unary_op_info(op).formula; }
const char* flowk_binary_op_formula(flowk_binary_op op) { return binary_op_info(op).formula; }
const char* flowk_ternary_op_formula(flowk_ternary_op op) { return ternary_op_info(op).formula; }

int32_t flowk_unary_op_num_parameters(flowk_unary_op op) { return unary_op_info(op).num_parameters; }
int32_t flowk_ternary_op_num_parameters(flowk_ternary_op op) { return ternary_op_info(op).num_parameters; }

flowk_dtype flowk_unary_op_result(flowk_unary_op op, flowk_dtype dtype) { return result_of(unary_op_info(op), dtype); }
flowk_dtype flowk_binary_op_result(flowk_binary_op op, flowk_dtype dtype) {
  return result_of(binary_op_info(op), dtype);
}
flowk_dtype flowk_ternary_op_result(flowk_ternary_op op, flowk_dtype dtype) {
  return result_of(ternary_op_info(op), dtype);
}

flowk_status flowk_unary(flowk_unary_op op, const void* x, const int64_t* x_strides, flowk_dtype x_dtype, void* out,
                         const int64_t* out_strides, flowk_dtype out_dtype, int32_t rank, const int64_t* shape,
                         double a, double b, flowk_stream stream) {
  return call(unary_arguments(op, input_of("x", x, x_strides, x_dtype), {"out", out, out_strides, out_dtype}, rank,
                              shape, a, b),
              stream);
}

flowk_status flowk_binary(flowk_binary_op op, const void* x, const int64_t* x_strides, flowk_dtype x_dtype,
                          const void* y, const int64_t* y_strides, flowk_dtype y_dtype, void* out,
                          const int64_t* out_strides, flowk_dtype out_dtype, int32_t rank, const int64_t* shape,
                          flowk_stream stream) {
  return call(binary_arguments(op, input_of("x", x, x_strides, x_dtype), input_of("y", y, y_strides, y_dtype),
                               {"out", out, out_strides, out_dtype}, rank, shape),
              stream);
}

flowk_status flowk_ternary(flowk_ternary_op op, const void* x, const int64_t* x_strides, flowk_dtype x_dtype,
                           const void* y, const int64_t* y_strides, flowk_dtype y_dtype, const void* z,
                           const int64_t* z_strides, flowk_dtype z_dtype, void* out, const int64_t* out_strides,
                           flowk_dtype out_dtype, int32_t rank, const int64_t* shape, double a, flowk_stream stream) {
  return call(
      ternary_arguments(op, input_of("x", x, x_strides, x_dtype), input_of("y", y, y_strides, y_dtype),
                        input_of("z", z, z_strides, z_dtype), {"out", out, out_strides, out_dtype}, rank, shape, a),
      stream);
}

flowk_status flowk_unary_explain(flowk_unary_op op, const void* x, const int64_t* x_strides, flowk_dtype x_dtype,
                                 void* out, const int64_t* out_strides, flowk_dtype out_dtype, int32_t rank,
                                 const int64_t* shape, double a, double b, char* text, size_t text_bytes) {
  return call(unary_arguments(op, input_of("x", x, x_strides, x_dtype), {"out", out, out_strides, out_dtype}, rank,
                              shape, a, b),
              {text, text_bytes});
}

flowk_status flowk_binary_explain(flowk_binary_op op, const void* x, const int64_t* x_strides, flowk_dtype x_dtype,
                                  const void* y, const int64_t* y_strides, flowk_dtype y_dtype, void* out,
                                  const int64_t* out_strides, flowk_dtype out_dtype, int32_t rank, const int64_t* shape,
                                  char* text, size_t text_bytes) {
  return call(binary_arguments(op, input_of("x", x, x_strides, x_dtype), input_of("y", y, y_strides, y_dtype),
                               {"out", out, out_strides, out_dtype}, rank, shape),
              {text, text_bytes});
}

flowk_status flowk_ternary_explain(flowk_ternary_op op, const void* x, const int64_t* x_strides, flowk_dtype x_dtype,
                                   const void* y, const int64_t* y_strides, flowk_dtype y_dtype, const void* z,
                                   const int64_t* z_strides, flowk_dtype z_dtype, void* out, const int64_t* out_strides,
                                   flowk_dtype out_dtype, int32_t rank, const int64_t* shape, double a, char* text,
                                   size_t text_bytes) {
  return call(
      ternary_arguments(op, input_of("x", x, x_strides, x_dtype), input_of("y", y, y_strides, y_dtype),
                        input_of("z", z, z_strides, z_dtype), {"out", out, out_strides, out_dtype}, rank, shape, a),
      {text, text_bytes});
}

}  // extern "C"
