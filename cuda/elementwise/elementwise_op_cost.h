// SPDX-License-Identifier: Apache-2.0
// The cost of a float operation in registers, which decides what shares a kernel with it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/divide.h"  // FLOWK_HOST_DEVICE
#include "flowk/flowk.h"

namespace flowk::elementwise {

// An SM holds 6 blocks with at most 40 registers per thread, 5 with 48, and 4 with 64.
enum class OpCost : int32_t {
  light,     // a few instructions
  medium,    // at most 40 registers
  heavy,     // at most 48
  heaviest,  // at most 64
};

// The operations of an arity as a C++ type: flowk.h's are all int32_t.
enum UnaryOp : int32_t {};
enum BinaryOp : int32_t {};

FLOWK_HOST_DEVICE constexpr OpCost cost_of(UnaryOp op, bool is_double = false) {
  switch (op) {
    case FLOWK_UNARY_SQRT:
    case FLOWK_UNARY_RSQRT:
    case FLOWK_UNARY_RECIPROCAL:
    case FLOWK_UNARY_LOG:
    case FLOWK_UNARY_LOG2:
    case FLOWK_UNARY_LOG10:
    case FLOWK_UNARY_EXPM1:
    case FLOWK_UNARY_ELU: return OpCost::medium;
    case FLOWK_UNARY_TANH: return is_double ? OpCost::medium : OpCost::heavy;
    case FLOWK_UNARY_LOG1P:
    case FLOWK_UNARY_SOFTPLUS: return is_double ? OpCost::heavy : OpCost::medium;
    case FLOWK_UNARY_EXP2: return is_double ? OpCost::heaviest : OpCost::medium;
    case FLOWK_UNARY_ERF:
    case FLOWK_UNARY_TAN:
    case FLOWK_UNARY_ASIN:
    case FLOWK_UNARY_ACOS:
    case FLOWK_UNARY_ATAN:
    case FLOWK_UNARY_SINH:
    case FLOWK_UNARY_COSH:
    case FLOWK_UNARY_ASINH:
    case FLOWK_UNARY_ACOSH:
    case FLOWK_UNARY_ATANH: return OpCost::heaviest;
    case FLOWK_UNARY_SIN:
    case FLOWK_UNARY_COS: return is_double ? OpCost::heavy : OpCost::heaviest;
    case FLOWK_UNARY_EXP:
    case FLOWK_UNARY_GELU: return is_double ? OpCost::heaviest : OpCost::heavy;
    case FLOWK_UNARY_SIGMOID:
    case FLOWK_UNARY_GELU_TANH:
    case FLOWK_UNARY_SILU: return OpCost::heavy;
    default: return OpCost::light;
  }
}
FLOWK_HOST_DEVICE constexpr OpCost cost_of(BinaryOp op, bool is_double = false) {
  switch (op) {
    case FLOWK_BINARY_FLOOR_DIVIDE:
    case FLOWK_BINARY_REMAINDER:
    case FLOWK_BINARY_ATAN2:
    case FLOWK_BINARY_HYPOT:
    case FLOWK_BINARY_LOGADDEXP:
    case FLOWK_BINARY_SIGMOID_BACKWARD:  // short, but the light operations would have fewer registers
    case FLOWK_BINARY_TANH_BACKWARD:
    case FLOWK_BINARY_SOFTPLUS_BACKWARD:
    case FLOWK_BINARY_POW: return OpCost::heaviest;
    case FLOWK_BINARY_GELU_BACKWARD: return is_double ? OpCost::heaviest : OpCost::heavy;
    case FLOWK_BINARY_DIVIDE:
    case FLOWK_BINARY_TRUNC_DIVIDE:
    case FLOWK_BINARY_GELU_TANH_BACKWARD:
    case FLOWK_BINARY_SILU_BACKWARD:
    case FLOWK_BINARY_SILU_MUL: return OpCost::heavy;
    default: return OpCost::light;
  }
}

// gelu and heavy operations of two inputs have a contiguous kernel each for float32, and for float16 and bfloat16; all
// others share one per cost.
FLOWK_HOST_DEVICE constexpr bool has_own_kernel(UnaryOp op, bool is_double) {
  return !is_double && op == UnaryOp{FLOWK_UNARY_GELU};
}
FLOWK_HOST_DEVICE constexpr bool has_own_kernel(BinaryOp op, bool is_double) {
  return !is_double && cost_of(op) == OpCost::heavy && op != BinaryOp{FLOWK_BINARY_TRUNC_DIVIDE};
}

}  // namespace flowk::elementwise
