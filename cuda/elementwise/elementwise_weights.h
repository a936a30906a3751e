// SPDX-License-Identifier: Apache-2.0
// What operations weigh: light ones share a kernel, which takes a switch once a thread. Heavy ones have a kernel each
// where out is linear, for registers and code of their own, and elsewhere share two, by their weight.
#pragma once

#include "core/divide.h"  // FLOWK_HOST_DEVICE
#include "flowk/flowk.h"

namespace flowk::elementwise {

enum class OpWeight { light, heavy, heaviest };

FLOWK_HOST_DEVICE constexpr OpWeight weight_of(flowk_unary_op op) {
  switch (op) {
    case FLOWK_UNARY_SIN:
    case FLOWK_UNARY_COS: return OpWeight::heaviest;
    case FLOWK_UNARY_SQRT:
    case FLOWK_UNARY_RSQRT:
    case FLOWK_UNARY_RECIPROCAL:
    case FLOWK_UNARY_EXP:
    case FLOWK_UNARY_LOG:
    case FLOWK_UNARY_TANH:
    case FLOWK_UNARY_SIGMOID:
    case FLOWK_UNARY_ELU:
    case FLOWK_UNARY_GELU:
    case FLOWK_UNARY_GELU_TANH:
    case FLOWK_UNARY_SILU:
    case FLOWK_UNARY_SOFTPLUS: return OpWeight::heavy;
    default: return OpWeight::light;
  }
}

FLOWK_HOST_DEVICE constexpr OpWeight weight_of(flowk_binary_op op) {
  switch (op) {
    case FLOWK_BINARY_POW: return OpWeight::heaviest;
    case FLOWK_BINARY_DIV:
    case FLOWK_BINARY_GELU_GRAD:
    case FLOWK_BINARY_GELU_TANH_GRAD:
    case FLOWK_BINARY_SILU_GRAD:
    case FLOWK_BINARY_SILU_MUL: return OpWeight::heavy;
    default: return OpWeight::light;
  }
}

}  // namespace flowk::elementwise
