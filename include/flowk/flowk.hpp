// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * flowk for C++17: the functions of flowk.h with views instead of pointers, extents and types. Header only.
 *
 *   flowk::permute(flowk::view{src, {2, 3}}, flowk::view{dst, {3, 2}}, {1, 0}, stream);
 *   flowk::add(x, y, out);                                          // broadcasts x and y to out, as NumPy does
 *   flowk::masked_softmax(x, y, flowk::softmax_mask().causal());
 *
 * Each function calls the C function of its name, and the comment of that one in flowk.h holds: conventions, shapes,
 * numerics. The functions of cross-entropy and of measured plans, and flowk_permute_many(), which takes arrays of
 * pointers, have no such form: call the C functions. A function has three forms:
 *
 *   flowk::permute(src, dst, axes, stream);                                throws flowk::error
 *   flowk::status status = flowk::permute(std::nothrow, src, dst, axes);   does not
 *   std::string plan = flowk::permute(flowk::explain, src, dst, axes);     returns the plan as text; launches nothing
 *
 * The last parameter of the first two is `flowk_stream stream = nullptr`. A view's constructor throws flowk::error in
 * every form. Shapes are compared before the call. An input of an elementwise operation may be a scalar: it is
 * converted to the first input view's type. The C++ form of flowk_functor_plan() is in flowk/elementwise_views.cuh.
 */
#pragma once

#include <new>
#include <string>

#include "flowk/detail/view_functions.hpp"

namespace flowk {
inline namespace v0_1 {

/** The first argument of a call that returns its plan as text. */
struct explain_t {};
inline constexpr explain_t explain{};

// The three forms of a function, made of its template parameters, its parameters and its call. In the last form,
// `stream` is the buffer that receives the plan.
#define FLOWK_LIST_(...) __VA_ARGS__
#define FLOWK_FUNCTION_(name, types, parameters, ...)                                           \
  template <FLOWK_LIST_ types>                                                                  \
  void name(FLOWK_LIST_ parameters, flowk_stream stream = nullptr) {                            \
    detail::check(__VA_ARGS__);                                                                 \
  }                                                                                             \
  template <FLOWK_LIST_ types>                                                                  \
  status name(std::nothrow_t, FLOWK_LIST_ parameters, flowk_stream stream = nullptr) noexcept { \
    return __VA_ARGS__;                                                                         \
  }                                                                                             \
  template <FLOWK_LIST_ types>                                                                  \
  std::string name(explain_t, FLOWK_LIST_ parameters) {                                         \
    return detail::explained([&](detail::Text stream) { return __VA_ARGS__; });                 \
  }

/** dst[b, c, r] = src[b, r, c]: contiguous views of 3 dimensions, or of 2. */
FLOWK_FUNCTION_(batch_transpose, (class Src, class Dst), (const Src &src, const Dst &dst),
                detail::batch_transpose(stream, src, dst))

/** dst[i[axes[0]], i[axes[1]], ...] = src[i[0], i[1], ...] */
FLOWK_FUNCTION_(permute, (class Src, class Dst), (const Src &src, const Dst &dst, const axes &axes),
                detail::permute(stream, src, dst, axes))

/** permute() that converts to dst's type: (D)(scale * src) */
FLOWK_FUNCTION_(permute_convert, (class Src, class Dst),
                (const Src &src, const Dst &dst, const axes &axes, double scale = 1.0),
                detail::permute_convert(stream, src, dst, axes, scale))

/** out = op(x): an operation that is known at run time; below, each has a function of its name. */
FLOWK_FUNCTION_(unary, (class X, class Out),
                (flowk_unary_op op, const X &x, const Out &out, double a = 0, double b = 0),
                detail::unary(stream, op, x, out, a, b))

/** out = op(x, y), as unary(). */
FLOWK_FUNCTION_(binary, (class X, class Y, class Out), (flowk_binary_op op, const X &x, const Y &y, const Out &out),
                detail::binary(stream, op, x, y, out))

/** out = op(x, y, z), as unary(). */
FLOWK_FUNCTION_(ternary, (class X, class Y, class Z, class Out),
                (flowk_ternary_op op, const X &x, const Y &y, const Z &z, const Out &out, double a = 0),
                detail::ternary(stream, op, x, y, z, out, a))

// For each row of flowk/elementwise_ops.h a function of its name: relu(x, out), clip(x, out, a, b), add(x, y, out),
// ...
#define FLOWK_DECLARED_0_
#define FLOWK_DECLARED_1_ , double a
#define FLOWK_DECLARED_2_ , double a, double b
#define FLOWK_PASSED_0_
#define FLOWK_PASSED_1_ , a
#define FLOWK_PASSED_2_ , a, b
#define FLOWK_UNARY_FUNCTION_(NAME, value, name, takes, result, num_parameters, formula)                       \
  FLOWK_FUNCTION_(name, (class X, class Out), (const X &x, const Out &out FLOWK_DECLARED_##num_parameters##_), \
                  detail::unary(stream, FLOWK_UNARY_##NAME, x, out FLOWK_PASSED_##num_parameters##_))
#define FLOWK_BINARY_FUNCTION_(NAME, value, name, takes, result, num_parameters, formula)        \
  FLOWK_FUNCTION_(name, (class X, class Y, class Out), (const X &x, const Y &y, const Out &out), \
                  detail::binary(stream, FLOWK_BINARY_##NAME, x, y, out))
#define FLOWK_TERNARY_FUNCTION_(NAME, value, name, takes, result, num_parameters, formula)                 \
  FLOWK_FUNCTION_(name, (class X, class Y, class Z, class Out),                                            \
                  (const X &x, const Y &y, const Z &z, const Out &out FLOWK_DECLARED_##num_parameters##_), \
                  detail::ternary(stream, FLOWK_TERNARY_##NAME, x, y, z, out FLOWK_PASSED_##num_parameters##_))
FLOWK_UNARY_OPS(FLOWK_UNARY_FUNCTION_)
FLOWK_BINARY_OPS(FLOWK_BINARY_FUNCTION_)
FLOWK_TERNARY_OPS(FLOWK_TERNARY_FUNCTION_)
#undef FLOWK_UNARY_FUNCTION_
#undef FLOWK_BINARY_FUNCTION_
#undef FLOWK_TERNARY_FUNCTION_
#undef FLOWK_DECLARED_0_
#undef FLOWK_DECLARED_1_
#undef FLOWK_DECLARED_2_
#undef FLOWK_PASSED_0_
#undef FLOWK_PASSED_1_
#undef FLOWK_PASSED_2_

/** y = x > 0 ? x : alpha * x. x and y have any shape, contiguous; alpha has one element, or one per index of dimension
 * `channel_axis`. */
FLOWK_FUNCTION_(prelu, (class X, class A, class Y), (const X &x, const A &alpha, const Y &y, int32_t channel_axis = 1),
                detail::prelu(stream, x, alpha, y, channel_axis))

/** The bytes of workspace that prelu_backward() needs. */
template <class X, class A>
size_t prelu_backward_workspace_bytes(const X &x, const A &alpha, int32_t channel_axis = 1) {
  size_t bytes = 0;
  detail::check(detail::prelu_backward_workspace_bytes(x, alpha, channel_axis, &bytes));
  return bytes;
}

/** The gradients of prelu(). A dx or dalpha of `{}` is not computed. */
FLOWK_FUNCTION_(prelu_backward,
                (class G, class X, class A, class Dx = view<typename X::value_type>,
                 class Dalpha = view<typename A::value_type>),
                (const G &dy, const X &x, const A &alpha, const Dx &dx, const Dalpha &dalpha, void *workspace,
                 size_t workspace_bytes, int32_t channel_axis = 1),
                detail::prelu_backward(stream, dy, x, alpha, dx, dalpha, channel_axis, workspace, workspace_bytes))

/** The softmax of scale * x + bias over the unmasked columns of the last dimension, or its logarithm. */
FLOWK_FUNCTION_(masked_softmax, (class X, class Y),
                (const X &x, const Y &y, const softmax_mask &mask = {}, double scale = 1.0, bool log_softmax = false),
                detail::masked_softmax(stream, x, y, mask, scale, log_softmax))

/** The gradient of masked_softmax() with respect to x, from its output y and y's gradient. */
FLOWK_FUNCTION_(masked_softmax_backward, (class G, class Y, class X),
                (const G &dy, const Y &y, const X &dx, const softmax_mask &mask = {}, double scale = 1.0,
                 bool log_softmax = false),
                detail::masked_softmax_backward(stream, dy, y, dx, mask, scale, log_softmax))

/** The bytes of workspace that masked_softmax_backward_dbias() needs. */
template <class Y, class B>
size_t masked_softmax_backward_dbias_workspace_bytes(const Y &y, const B &dbias) {
  size_t bytes = 0;
  detail::check(detail::masked_softmax_backward_dbias_workspace_bytes(y, dbias, &bytes));
  return bytes;
}

/** The gradient of a bias of masked_softmax() that broadcasts to y as `dbias` does, and dx in the same pass; a dx of
 * `{}` is not computed. */
FLOWK_FUNCTION_(masked_softmax_backward_dbias,
                (class G, class Y, class X = view<typename Y::value_type>, class B = view<typename Y::value_type>),
                (const G &dy, const Y &y, const X &dx, const B &dbias, void *workspace, size_t workspace_bytes,
                 const softmax_mask &mask = {}, double scale = 1.0, bool log_softmax = false),
                detail::masked_softmax_backward_dbias(stream, dy, y, dx, dbias, workspace, workspace_bytes, mask, scale,
                                                      log_softmax))

/** Merges the softmax of two sets of columns into that of both: y1, y2 and y have one shape and are contiguous; a row
 * of the last dimension has one number of lse1, lse2 and lse. */
FLOWK_FUNCTION_(softmax_merge, (class Y1, class Y2, class Y, class A),
                (const Y1 &y1, const A *lse1, const Y2 &y2, const A *lse2, const Y &y, A *lse),
                detail::softmax_merge(stream, y1, lse1, y2, lse2, y, lse))

#undef FLOWK_FUNCTION_
#undef FLOWK_LIST_

}  // namespace v0_1
}  // namespace flowk
