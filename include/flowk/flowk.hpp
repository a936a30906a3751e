// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * flowk for C++17: the functions of flowk.h with views in place of pointers, extents and types. Header only.
 *
 *   flowk::permute(flowk::view{src, {2, 3}}, flowk::view{dst, {3, 2}}, {1, 0}, stream);
 *   flowk::add(x, y, out);                                          // broadcasts x and y to out, as NumPy does
 *   flowk::masked_softmax(x, y, flowk::softmax_mask().causal());
 *
 * Each function is the C function of its name, whose comment in flowk.h holds: conventions, shapes, numerics.
 * flowk_permute_many(), which takes arrays of pointers, is used as it is. A function has three forms:
 *
 *   flowk::permute(src, dst, axes);                                 throws flowk::error
 *   flowk::status status = flowk::permute(std::nothrow, ...);       does not
 *   std::string plan = flowk::permute_explain(src, dst, axes);      the plan as text; launches nothing
 *
 * A view's constructor throws flowk::error in every form. Shapes are compared before the call; a scalar in place of an
 * input of an elementwise operation is converted to the first input view's type. flowk_functor_plan() has its form in
 * flowk/elementwise_views.cuh.
 */
#pragma once

#include <new>
#include <string>

#include "flowk/detail/view_functions.hpp"

namespace flowk {
inline namespace v0_1 {

/** dst[b, c, r] = src[b, r, c]: contiguous views of 3 dimensions, or of 2. */
template <class Src, class Dst>
status batch_transpose(std::nothrow_t, const Src &src, const Dst &dst, flowk_stream stream = nullptr) noexcept {
  return detail::batch_transpose(stream, src, dst);
}
template <class Src, class Dst>
void batch_transpose(const Src &src, const Dst &dst, flowk_stream stream = nullptr) {
  detail::check(detail::batch_transpose(stream, src, dst));
}
template <class Src, class Dst>
std::string batch_transpose_explain(const Src &src, const Dst &dst) {
  return detail::explained([&](auto to) { return detail::batch_transpose(to, src, dst); });
}

/** dst[i[axes[0]], i[axes[1]], ...] = src[i[0], i[1], ...] */
template <class Src, class Dst>
status permute(std::nothrow_t, const Src &src, const Dst &dst, const axes &axes,
               flowk_stream stream = nullptr) noexcept {
  return detail::permute(stream, src, dst, axes);
}
template <class Src, class Dst>
void permute(const Src &src, const Dst &dst, const axes &axes, flowk_stream stream = nullptr) {
  detail::check(detail::permute(stream, src, dst, axes));
}
template <class Src, class Dst>
std::string permute_explain(const Src &src, const Dst &dst, const axes &axes) {
  return detail::explained([&](auto to) { return detail::permute(to, src, dst, axes); });
}

/** permute() that converts to dst's type: (D)(scale * src) */
template <class Src, class Dst>
status permute_convert(std::nothrow_t, const Src &src, const Dst &dst, const axes &axes, double scale = 1.0,
                       flowk_stream stream = nullptr) noexcept {
  return detail::permute_convert(stream, src, dst, axes, scale);
}
template <class Src, class Dst>
void permute_convert(const Src &src, const Dst &dst, const axes &axes, double scale = 1.0,
                     flowk_stream stream = nullptr) {
  detail::check(detail::permute_convert(stream, src, dst, axes, scale));
}
template <class Src, class Dst>
std::string permute_convert_explain(const Src &src, const Dst &dst, const axes &axes, double scale = 1.0) {
  return detail::explained([&](auto to) { return detail::permute_convert(to, src, dst, axes, scale); });
}

/** out = op(x): an operation that is known at run time; below, each has a function of its name. */
template <class X, class Out>
status unary(std::nothrow_t, flowk_unary_op op, const X &x, const Out &out, double a = 0, double b = 0,
             flowk_stream stream = nullptr) noexcept {
  return detail::unary(stream, op, x, out, a, b);
}
template <class X, class Out>
void unary(flowk_unary_op op, const X &x, const Out &out, double a = 0, double b = 0, flowk_stream stream = nullptr) {
  detail::check(detail::unary(stream, op, x, out, a, b));
}
template <class X, class Out>
std::string unary_explain(flowk_unary_op op, const X &x, const Out &out, double a = 0, double b = 0) {
  return detail::explained([&](auto to) { return detail::unary(to, op, x, out, a, b); });
}

/** out = op(x, y), as unary(). */
template <class X, class Y, class Out>
status binary(std::nothrow_t, flowk_binary_op op, const X &x, const Y &y, const Out &out,
              flowk_stream stream = nullptr) noexcept {
  return detail::binary(stream, op, x, y, out);
}
template <class X, class Y, class Out>
void binary(flowk_binary_op op, const X &x, const Y &y, const Out &out, flowk_stream stream = nullptr) {
  detail::check(detail::binary(stream, op, x, y, out));
}
template <class X, class Y, class Out>
std::string binary_explain(flowk_binary_op op, const X &x, const Y &y, const Out &out) {
  return detail::explained([&](auto to) { return detail::binary(to, op, x, y, out); });
}

/** out = op(x, y, z), as unary(). */
template <class X, class Y, class Z, class Out>
status ternary(std::nothrow_t, flowk_ternary_op op, const X &x, const Y &y, const Z &z, const Out &out, double a = 0,
               flowk_stream stream = nullptr) noexcept {
  return detail::ternary(stream, op, x, y, z, out, a);
}
template <class X, class Y, class Z, class Out>
void ternary(flowk_ternary_op op, const X &x, const Y &y, const Z &z, const Out &out, double a = 0,
             flowk_stream stream = nullptr) {
  detail::check(detail::ternary(stream, op, x, y, z, out, a));
}
template <class X, class Y, class Z, class Out>
std::string ternary_explain(flowk_ternary_op op, const X &x, const Y &y, const Z &z, const Out &out, double a = 0) {
  return detail::explained([&](auto to) { return detail::ternary(to, op, x, y, z, out, a); });
}

// For each row of flowk/elementwise_ops.h a function of its name: relu(x, out), clamp(x, out, a, b), add(x, y, out),
// ...
#define FLOWK_DECLARED_0_
#define FLOWK_DECLARED_1_ , double a
#define FLOWK_DECLARED_2_ , double a, double b
#define FLOWK_UNARY_0_ 0, 0
#define FLOWK_UNARY_1_ a, 0
#define FLOWK_UNARY_2_ a, b
#define FLOWK_TERNARY_0_ 0
#define FLOWK_TERNARY_1_ a
#define FLOWK_UNARY_FUNCTION_(NAME, value, name, takes, result, num_parameters, formula)                    \
  template <class X, class Out>                                                                             \
  status name(std::nothrow_t, const X &x, const Out &out FLOWK_DECLARED_##num_parameters##_,                \
              flowk_stream stream = nullptr) noexcept {                                                     \
    return detail::unary(stream, FLOWK_UNARY_##NAME, x, out, FLOWK_UNARY_##num_parameters##_);              \
  }                                                                                                         \
  template <class X, class Out>                                                                             \
  void name(const X &x, const Out &out FLOWK_DECLARED_##num_parameters##_, flowk_stream stream = nullptr) { \
    detail::check(detail::unary(stream, FLOWK_UNARY_##NAME, x, out, FLOWK_UNARY_##num_parameters##_));      \
  }
#define FLOWK_BINARY_FUNCTION_(NAME, value, name, takes, result, num_parameters, formula)                       \
  template <class X, class Y, class Out>                                                                        \
  status name(std::nothrow_t, const X &x, const Y &y, const Out &out, flowk_stream stream = nullptr) noexcept { \
    return detail::binary(stream, FLOWK_BINARY_##NAME, x, y, out);                                              \
  }                                                                                                             \
  template <class X, class Y, class Out>                                                                        \
  void name(const X &x, const Y &y, const Out &out, flowk_stream stream = nullptr) {                            \
    detail::check(detail::binary(stream, FLOWK_BINARY_##NAME, x, y, out));                                      \
  }
#define FLOWK_TERNARY_FUNCTION_(NAME, value, name, takes, result, num_parameters, formula)                           \
  template <class X, class Y, class Z, class Out>                                                                    \
  status name(std::nothrow_t, const X &x, const Y &y, const Z &z, const Out &out FLOWK_DECLARED_##num_parameters##_, \
              flowk_stream stream = nullptr) noexcept {                                                              \
    return detail::ternary(stream, FLOWK_TERNARY_##NAME, x, y, z, out, FLOWK_TERNARY_##num_parameters##_);           \
  }                                                                                                                  \
  template <class X, class Y, class Z, class Out>                                                                    \
  void name(const X &x, const Y &y, const Z &z, const Out &out FLOWK_DECLARED_##num_parameters##_,                   \
            flowk_stream stream = nullptr) {                                                                         \
    detail::check(detail::ternary(stream, FLOWK_TERNARY_##NAME, x, y, z, out, FLOWK_TERNARY_##num_parameters##_));   \
  }
FLOWK_UNARY_OPS(FLOWK_UNARY_FUNCTION_)
FLOWK_BINARY_OPS(FLOWK_BINARY_FUNCTION_)
FLOWK_TERNARY_OPS(FLOWK_TERNARY_FUNCTION_)
#undef FLOWK_UNARY_FUNCTION_
#undef FLOWK_BINARY_FUNCTION_
#undef FLOWK_TERNARY_FUNCTION_
#undef FLOWK_DECLARED_0_
#undef FLOWK_DECLARED_1_
#undef FLOWK_DECLARED_2_
#undef FLOWK_UNARY_0_
#undef FLOWK_UNARY_1_
#undef FLOWK_UNARY_2_
#undef FLOWK_TERNARY_0_
#undef FLOWK_TERNARY_1_

/** y = x > 0 ? x : alpha * x. x and y have any shape, contiguous; alpha has one element, or one per index of dimension
 * `channel_axis`. */
template <class X, class A, class Y>
status prelu(std::nothrow_t, const X &x, const A &alpha, const Y &y, int32_t channel_axis = 1,
             flowk_stream stream = nullptr) noexcept {
  return detail::prelu(stream, x, alpha, y, channel_axis);
}
template <class X, class A, class Y>
void prelu(const X &x, const A &alpha, const Y &y, int32_t channel_axis = 1, flowk_stream stream = nullptr) {
  detail::check(detail::prelu(stream, x, alpha, y, channel_axis));
}
template <class X, class A, class Y>
std::string prelu_explain(const X &x, const A &alpha, const Y &y, int32_t channel_axis = 1) {
  return detail::explained([&](auto to) { return detail::prelu(to, x, alpha, y, channel_axis); });
}

/** The bytes of workspace that prelu_backward() needs. */
template <class X, class A>
size_t prelu_backward_workspace_bytes(const X &x, const A &alpha, int32_t channel_axis = 1) {
  size_t bytes = 0;
  detail::check(detail::prelu_backward_workspace_bytes(x, alpha, channel_axis, &bytes));
  return bytes;
}

/** The gradients of prelu(). A dx or dalpha of `{}` is not computed. */
template <class G, class X, class A, class Dx = view<typename X::value_type>,
          class Dalpha = view<typename A::value_type>>
status prelu_backward(std::nothrow_t, const G &dy, const X &x, const A &alpha, const Dx &dx, const Dalpha &dalpha,
                      void *workspace, size_t workspace_bytes, int32_t channel_axis = 1,
                      flowk_stream stream = nullptr) noexcept {
  return detail::prelu_backward(stream, dy, x, alpha, dx, dalpha, channel_axis, workspace, workspace_bytes);
}
template <class G, class X, class A, class Dx = view<typename X::value_type>,
          class Dalpha = view<typename A::value_type>>
void prelu_backward(const G &dy, const X &x, const A &alpha, const Dx &dx, const Dalpha &dalpha, void *workspace,
                    size_t workspace_bytes, int32_t channel_axis = 1, flowk_stream stream = nullptr) {
  detail::check(detail::prelu_backward(stream, dy, x, alpha, dx, dalpha, channel_axis, workspace, workspace_bytes));
}
template <class G, class X, class A, class Dx = view<typename X::value_type>,
          class Dalpha = view<typename A::value_type>>
std::string prelu_backward_explain(const G &dy, const X &x, const A &alpha, const Dx &dx, const Dalpha &dalpha,
                                   void *workspace, size_t workspace_bytes, int32_t channel_axis = 1) {
  return detail::explained([&](auto to) {
    return detail::prelu_backward(to, dy, x, alpha, dx, dalpha, channel_axis, workspace, workspace_bytes);
  });
}

/** The softmax of scale * x + bias over the unmasked columns of the last dimension, or its logarithm. */
template <class X, class Y>
status masked_softmax(std::nothrow_t, const X &x, const Y &y, const softmax_mask &mask = {}, double scale = 1.0,
                      bool log_softmax = false, flowk_stream stream = nullptr) noexcept {
  return detail::masked_softmax(stream, x, y, mask, scale, log_softmax);
}
template <class X, class Y>
void masked_softmax(const X &x, const Y &y, const softmax_mask &mask = {}, double scale = 1.0, bool log_softmax = false,
                    flowk_stream stream = nullptr) {
  detail::check(detail::masked_softmax(stream, x, y, mask, scale, log_softmax));
}
template <class X, class Y>
std::string masked_softmax_explain(const X &x, const Y &y, const softmax_mask &mask = {}, double scale = 1.0,
                                   bool log_softmax = false) {
  return detail::explained([&](auto to) { return detail::masked_softmax(to, x, y, mask, scale, log_softmax); });
}

/** The gradient of masked_softmax() with respect to x, from its output y and y's gradient. */
template <class G, class Y, class X>
status masked_softmax_backward(std::nothrow_t, const G &dy, const Y &y, const X &dx, const softmax_mask &mask = {},
                               double scale = 1.0, bool log_softmax = false, flowk_stream stream = nullptr) noexcept {
  return detail::masked_softmax_backward(stream, dy, y, dx, mask, scale, log_softmax);
}
template <class G, class Y, class X>
void masked_softmax_backward(const G &dy, const Y &y, const X &dx, const softmax_mask &mask = {}, double scale = 1.0,
                             bool log_softmax = false, flowk_stream stream = nullptr) {
  detail::check(detail::masked_softmax_backward(stream, dy, y, dx, mask, scale, log_softmax));
}
template <class G, class Y, class X>
std::string masked_softmax_backward_explain(const G &dy, const Y &y, const X &dx, const softmax_mask &mask = {},
                                            double scale = 1.0, bool log_softmax = false) {
  return detail::explained(
      [&](auto to) { return detail::masked_softmax_backward(to, dy, y, dx, mask, scale, log_softmax); });
}

}  // namespace v0_1
}  // namespace flowk
