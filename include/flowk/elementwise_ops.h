/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of flowk_unary(), flowk_binary() and flowk_ternary(): the one list from which the enums, the functions
 * that name them, the kernels' switches and the tests follow. Part of flowk.h, which says what holds for all of them.
 *
 * A row is OP(ENUMERATOR, value, name, takes, result, num_parameters, formula):
 *   takes           the element types of x: B bool, I the integers, F the floats (float16, bfloat16, float32, float64,
 *                   float8_e4m3, float8_e5m2), or several of them
 *   result          SAME: integers and bool give their own type, floats any float (float64 only float64);
 *                   BOOL: bool; ANY: whatever the caller asks for
 *   num_parameters  how many of the doubles a, b the formula uses, a first
 * Values are never renumbered, and run from 1 without a gap.
 */
#ifndef FLOWK_ELEMENTWISE_OPS_H
#define FLOWK_ELEMENTWISE_OPS_H

#define FLOWK_UNARY_OPS(OP)                                                                           \
  OP(COPY, 1, copy, BIF, ANY, 0, "x, converted to the output's type")                                 \
  OP(ABS, 2, abs, IF, SAME, 0, "|x|")                                                                 \
  OP(NEGATIVE, 3, negative, IF, SAME, 0, "-x")                                                        \
  OP(SQUARE, 4, square, IF, SAME, 0, "x * x")                                                         \
  OP(SQRT, 5, sqrt, F, SAME, 0, "sqrt(x)")                                                            \
  OP(RSQRT, 6, rsqrt, F, SAME, 0, "1 / sqrt(x)")                                                      \
  OP(RECIPROCAL, 7, reciprocal, F, SAME, 0, "1 / x")                                                  \
  OP(EXP, 8, exp, F, SAME, 0, "e^x")                                                                  \
  OP(LOG, 9, log, F, SAME, 0, "ln(x)")                                                                \
  OP(SIN, 10, sin, F, SAME, 0, "sin(x)")                                                              \
  OP(COS, 11, cos, F, SAME, 0, "cos(x)")                                                              \
  OP(TANH, 12, tanh, F, SAME, 0, "tanh(x)")                                                           \
  OP(SIGMOID, 13, sigmoid, F, SAME, 0, "1 / (1 + e^-x)")                                              \
  OP(RELU, 14, relu, IF, SAME, 0, "max(x, 0)")                                                        \
  OP(LEAKY_RELU, 15, leaky_relu, F, SAME, 1, "x > 0 ? x : a * x")                                     \
  OP(ELU, 16, elu, F, SAME, 1, "x > 0 ? x : a * (e^x - 1)")                                           \
  OP(GELU, 17, gelu, F, SAME, 0, "x * (1 + erf(x / sqrt(2))) / 2")                                    \
  OP(GELU_TANH, 18, gelu_tanh, F, SAME, 0, "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2") \
  OP(SILU, 19, silu, F, SAME, 0, "x / (1 + e^-x)")                                                    \
  OP(SOFTPLUS, 20, softplus, F, SAME, 0, "ln(1 + e^x)")                                               \
  OP(FLOOR, 21, floor, F, SAME, 0, "the largest integer <= x")                                        \
  OP(CEIL, 22, ceil, F, SAME, 0, "the smallest integer >= x")                                         \
  OP(ROUND, 23, round, F, SAME, 0, "the nearest integer, half to even")                               \
  OP(CLIP, 24, clip, IF, SAME, 2, "min(max(x, a), b)")                                                \
  OP(SCALE, 25, scale, IF, SAME, 2, "a * x + b")                                                      \
  OP(ISNAN, 26, isnan, F, BOOL, 0, "x != x")                                                          \
  OP(LOGICAL_NOT, 27, logical_not, BIF, BOOL, 0, "x == 0")                                            \
  OP(ISINF, 28, isinf, F, BOOL, 0, "|x| == infinity")                                                 \
  OP(ISFINITE, 29, isfinite, F, BOOL, 0, "|x| < infinity")                                            \
  OP(SIGNBIT, 30, signbit, F, BOOL, 0, "x has a minus sign")                                          \
  OP(SIGN, 31, sign, IF, SAME, 0, "x > 0 ? 1 : x < 0 ? -1 : 0")                                       \
  OP(TRUNC, 32, trunc, F, SAME, 0, "x rounded toward zero")                                           \
  OP(EXP2, 33, exp2, F, SAME, 0, "2^x")                                                               \
  OP(EXPM1, 34, expm1, F, SAME, 0, "e^x - 1")                                                         \
  OP(LOG1P, 35, log1p, F, SAME, 0, "ln(1 + x)")                                                       \
  OP(LOG2, 36, log2, F, SAME, 0, "log2(x)")                                                           \
  OP(LOG10, 37, log10, F, SAME, 0, "log10(x)")                                                        \
  OP(ERF, 38, erf, F, SAME, 0, "erf(x)")                                                              \
  OP(TAN, 39, tan, F, SAME, 0, "tan(x)")                                                              \
  OP(ASIN, 40, asin, F, SAME, 0, "asin(x)")                                                           \
  OP(ACOS, 41, acos, F, SAME, 0, "acos(x)")                                                           \
  OP(ATAN, 42, atan, F, SAME, 0, "atan(x)")                                                           \
  OP(SINH, 43, sinh, F, SAME, 0, "sinh(x)")                                                           \
  OP(COSH, 44, cosh, F, SAME, 0, "cosh(x)")                                                           \
  OP(ASINH, 45, asinh, F, SAME, 0, "asinh(x)")                                                        \
  OP(ACOSH, 46, acosh, F, SAME, 0, "acosh(x)")                                                        \
  OP(ATANH, 47, atanh, F, SAME, 0, "atanh(x)")                                                        \
  OP(BITWISE_INVERT, 48, bitwise_invert, I, SAME, 0, "~x, bit by bit")

#define FLOWK_BINARY_OPS(OP)                                                                                 \
  OP(ADD, 1, add, IF, SAME, 0, "x + y")                                                                      \
  OP(SUBTRACT, 2, subtract, IF, SAME, 0, "x - y")                                                            \
  OP(MULTIPLY, 3, multiply, IF, SAME, 0, "x * y")                                                            \
  OP(DIVIDE, 4, divide, F, SAME, 0, "x / y")                                                                 \
  OP(POW, 5, pow, IF, SAME, 0, "x^y")                                                                        \
  OP(MINIMUM, 6, minimum, BIF, SAME, 0, "min(x, y)")                                                         \
  OP(MAXIMUM, 7, maximum, BIF, SAME, 0, "max(x, y)")                                                         \
  OP(EQUAL, 8, equal, BIF, BOOL, 0, "x == y")                                                                \
  OP(NOT_EQUAL, 9, not_equal, BIF, BOOL, 0, "x != y")                                                        \
  OP(LESS, 10, less, BIF, BOOL, 0, "x < y")                                                                  \
  OP(LESS_EQUAL, 11, less_equal, BIF, BOOL, 0, "x <= y")                                                     \
  OP(GREATER, 12, greater, BIF, BOOL, 0, "x > y")                                                            \
  OP(GREATER_EQUAL, 13, greater_equal, BIF, BOOL, 0, "x >= y")                                               \
  OP(BITWISE_AND, 14, bitwise_and, BI, SAME, 0, "x & y, bit by bit")                                         \
  OP(BITWISE_OR, 15, bitwise_or, BI, SAME, 0, "x | y, bit by bit")                                           \
  OP(BITWISE_XOR, 16, bitwise_xor, BI, SAME, 0, "x ^ y, bit by bit")                                         \
  OP(RELU_BACKWARD, 17, relu_backward, F, SAME, 0, "y > 0 ? x : 0, with x = dL/drelu(y)")                    \
  OP(GELU_BACKWARD, 18, gelu_backward, F, SAME, 0, "x * gelu'(y), with x = dL/dgelu(y)")                     \
  OP(GELU_TANH_BACKWARD, 19, gelu_tanh_backward, F, SAME, 0, "x * gelu_tanh'(y), with x = dL/dgelu_tanh(y)") \
  OP(SILU_BACKWARD, 20, silu_backward, F, SAME, 0, "x * silu'(y), with x = dL/dsilu(y)")                     \
  OP(SILU_MUL, 21, silu_mul, F, SAME, 0, "silu(x) * y")                                                      \
  OP(LOGICAL_AND, 22, logical_and, BIF, BOOL, 0, "x != 0 and y != 0")                                        \
  OP(LOGICAL_OR, 23, logical_or, BIF, BOOL, 0, "x != 0 or y != 0")                                           \
  OP(LOGICAL_XOR, 24, logical_xor, BIF, BOOL, 0, "(x != 0) != (y != 0)")                                     \
  OP(FLOOR_DIVIDE, 25, floor_divide, IF, SAME, 0, "floor(x / y)")                                            \
  OP(REMAINDER, 26, remainder, IF, SAME, 0, "x - y * floor(x / y)")                                          \
  OP(ATAN2, 27, atan2, F, SAME, 0, "the angle of the point (y, x)")                                          \
  OP(HYPOT, 28, hypot, F, SAME, 0, "sqrt(x * x + y * y)")                                                    \
  OP(COPYSIGN, 29, copysign, F, SAME, 0, "|x| with the sign of y")                                           \
  OP(BITWISE_LEFT_SHIFT, 30, bitwise_left_shift, I, SAME, 0, "x * 2^y")                                      \
  OP(BITWISE_RIGHT_SHIFT, 31, bitwise_right_shift, I, SAME, 0, "floor(x / 2^y)")                             \
  OP(LOGADDEXP, 32, logaddexp, F, SAME, 0, "ln(e^x + e^y)")                                                  \
  OP(TRUNC_DIVIDE, 33, trunc_divide, I, SAME, 0, "x / y, rounded toward zero")                               \
  OP(SIGMOID_BACKWARD, 34, sigmoid_backward, F, SAME, 0, "x * y * (1 - y), with x = dL/dy, y = sigmoid(u)")  \
  OP(TANH_BACKWARD, 35, tanh_backward, F, SAME, 0, "x * (1 - y * y), with x = dL/dy, y = tanh(u)")           \
  OP(SOFTPLUS_BACKWARD, 36, softplus_backward, F, SAME, 0, "x / (1 + e^-y), with x = dL/dsoftplus(y)")

#define FLOWK_TERNARY_OPS(OP)                                                                                  \
  OP(FMA, 1, fma, IF, SAME, 0, "x * y + z, rounded once")                                                      \
  OP(WHERE, 2, where, BIF, SAME, 0, "x ? y : z, with x of type bool")                                          \
  OP(CLIP_BY, 3, clip_by, IF, SAME, 0, "min(max(x, y), z)")                                                    \
  OP(LERP, 4, lerp, F, SAME, 0, "x + z * (y - x)")                                                             \
  OP(ADD_MULTIPLY, 5, add_multiply, IF, SAME, 1, "x + a * y * z")                                              \
  OP(LEAKY_RELU_BACKWARD, 6, leaky_relu_backward, F, SAME, 0, "y > 0 ? x : z * x, with x = dL/dleaky_relu(y)") \
  OP(ELU_BACKWARD, 7, elu_backward, F, SAME, 0, "y > 0 ? x : x * z * e^y, with x = dL/delu(y)")

#endif /* FLOWK_ELEMENTWISE_OPS_H */
