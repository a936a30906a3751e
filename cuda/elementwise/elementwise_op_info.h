// SPDX-License-Identifier: Apache-2.0
// The rows of flowk/elementwise_ops.h as values.
#pragma once

#include <cstdint>

#include "elementwise/elementwise.h"
#include "flowk/flowk.h"

namespace flowk::elementwise {

enum class OpResult : int32_t { SAME, BOOL, ANY };

struct OpInfo {
  const char* name = nullptr;  // nullptr: not an operation
  const char* formula = nullptr;
  bool takes_bool = false;
  bool takes_integers = false;
  bool takes_floats = false;
  OpResult result = OpResult::SAME;
  int32_t num_parameters = 0;
};

OpInfo unary_op_info(int32_t op);
OpInfo binary_op_info(int32_t op);
OpInfo ternary_op_info(int32_t op);

bool is_float(flowk_dtype dtype);
bool is_complex(flowk_dtype dtype);
bool takes_dtype(const OpInfo& info, flowk_dtype dtype);

// The input that the other operands must have the type of: 1 is x, 2 is y.
int typed_input_of(ElementwiseArity arity, int32_t op);

// The cost of a request's operation.
OpCost cost_of(const ElementwiseRequest& request);

// What a request, whose types are not complex, is computed in.
ComputeClass compute_class_of(const ElementwiseRequest& request);

// The type as which a selection moves elements of `dtype`: an integer of the same size, or bool.
flowk_dtype bits_of(flowk_dtype dtype);

}  // namespace flowk::elementwise
