// SPDX-License-Identifier: Apache-2.0
// The mask of a softmax, and what each function of flowk.hpp does, for a stream or for a text.
#pragma once

#include "flowk/detail/view_calls.hpp"

namespace flowk {
inline namespace v0_1 {

/** The mask and the bias of a softmax, and what else its rows have: flowk::softmax_mask().lengths(lengths).causal(). A
 * view that is set broadcasts to the tensor. `lengths`, `sinks` and `row_scale` broadcast to the tensor without its
 * last dimension. Numbers per row are float, or double for a tensor of double. */
class softmax_mask {
 public:
  /** Nonzero: the column is masked. */
  template <class B, int32_t kRank>
  softmax_mask &dense(const view<B, kRank> &mask) noexcept {
    static_assert(
        dtype_of<std::remove_const_t<B>>::value == FLOWK_BOOL || dtype_of<std::remove_const_t<B>>::value == FLOWK_UINT8,
        "dense is bool or uint8_t");
    dense_ = mask;
    parts_.dense = mask.data();
    return *this;
  }
  /** The number of unmasked columns of each row, its first ones or its last ones. */
  template <class N, int32_t kRank>
  softmax_mask &lengths(const view<N, kRank> &lengths, bool from_right = false) noexcept {
    lengths_ = lengths;
    parts_.lengths = lengths.data();
    parts_.lengths_dtype = lengths.dtype;
    parts_.lengths_from_right = from_right;
    return *this;
  }
  /** Masks the columns after the diagonal, which ends in the last column of the last row if `offset` is 0. */
  softmax_mask &causal(int64_t offset = 0) noexcept {
    parts_.causal = 1;
    return causal_offset(offset);
  }
  /** Moves the diagonal for a window alone. */
  softmax_mask &causal_offset(int64_t offset) noexcept {
    parts_.causal_offset = offset;
    return *this;
  }
  /** Masks the columns `window` and more before the diagonal, and without causal() after it too. */
  softmax_mask &window(int64_t window) noexcept {
    parts_.window = window;
    return *this;
  }
  /** Is added to scale * x. */
  template <class B, int32_t kRank>
  softmax_mask &bias(const view<B, kRank> &bias) noexcept {
    bias_ = bias;
    parts_.bias = bias.data();
    parts_.bias_dtype = bias.dtype;
    return *this;
  }

  /** A logit per row without a column, which takes part in the row's sum and in lse. */
  template <class S, int32_t kRank>
  softmax_mask &sinks(const view<S, kRank> &sinks) noexcept {
    sinks_ = sinks;
    parts_.sinks = sinks.data();
    return *this;
  }
  /** Numbers that multiply the scale. */
  template <class S, int32_t kRank>
  softmax_mask &row_scale(const view<S, kRank> &row_scale) noexcept {
    row_scale_ = row_scale;
    parts_.row_scale = row_scale.data();
    return *this;
  }
  /** c * tanh(scale * x / c) replaces scale * x; 0: not. */
  softmax_mask &softcap(double softcap) noexcept {
    parts_.softcap = softcap;
    return *this;
  }
  /** The log-sum-exp: contiguous, a number per row. masked_softmax() writes it, and masked_softmax_backward() reads it
   * for dsinks. */
  template <class A>
  softmax_mask &lse(A *lse) noexcept {
    parts_.lse = lse;
    return *this;
  }
  /** Of masked_softmax_backward(): the gradient of lse, as lse. */
  template <class A>
  softmax_mask &dlse(const A *dlse) noexcept {
    parts_.dlse = dlse;
    return *this;
  }
  /** Of masked_softmax_backward(): is written with each row's part of the gradient of its sink, as lse. */
  template <class A>
  softmax_mask &dsinks(A *dsinks) noexcept {
    parts_.dsinks = dsinks;
    return *this;
  }
  /** Of masked_softmax_backward() with a softcap: the x of masked_softmax(). */
  template <class X, int32_t kRank>
  softmax_mask &scores(const view<X, kRank> &x) noexcept {
    x_ = x;
    parts_.x = x.data();
    return *this;
  }

  /** The bits of a row's results do not depend on the number of rows, or on addresses. */
  softmax_mask &batch_invariant(bool is_invariant = true) noexcept {
    parts_.batch_invariant = is_invariant ? 1 : 0;
    return *this;
  }
  /** Calls call(const flowk_softmax_mask *) with the mask for a tensor of this shape. */
  template <class X, class Call>
  status for_shape(const X &x, const Call &call) const noexcept {
    flowk_softmax_mask parts = parts_;
    detail::Strides<X::static_rank> dense, lengths, bias, sinks, row_scale, scores;
    status bad;
    const auto broadcast = [&](const char *name, const void *pointer, const detail::Layout<any_rank> &part,
                               int32_t rank, auto *strides, const int64_t **broadcast_strides) {
      if (bad && pointer != nullptr && rank >= 0) bad = strides->broadcast(name, part, rank, x.shape());
      *broadcast_strides = strides->get();
    };
    broadcast("dense", parts.dense, dense_, x.rank(), &dense, &parts.dense_strides);
    broadcast("lengths", parts.lengths, lengths_, x.rank() - 1, &lengths, &parts.lengths_strides);
    broadcast("bias", parts.bias, bias_, x.rank(), &bias, &parts.bias_strides);
    broadcast("sinks", parts.sinks, sinks_, x.rank() - 1, &sinks, &parts.sinks_strides);
    broadcast("row_scale", parts.row_scale, row_scale_, x.rank() - 1, &row_scale, &parts.row_scale_strides);
    broadcast("scores", parts.x, x_, x.rank(), &scores, &parts.x_strides);
    return bad ? call(&parts) : bad;
  }

 private:
  flowk_softmax_mask parts_ = FLOWK_SOFTMAX_MASK_INIT;
  detail::Layout<any_rank> dense_, lengths_, bias_, sinks_, row_scale_, x_;
};

}  // namespace v0_1

namespace detail {

template <class To, class Src, class Dst>
[[gnu::always_inline]] inline status batch_transpose(To to, const Src &src, const Dst &dst) noexcept {
  check_same_type<Src, Dst>();
  const int32_t rank = src.rank();
  if (rank != 2 && rank != 3)
    return fault_of(FLOWK_STATUS_INVALID_ARGUMENT, "src has %d dimension%s, must have 2 or 3", rank, plural(rank));
  if (const status bad = check_permuted(src, dst, rank == 2 ? axes{1, 0} : axes{0, 2, 1}); !bad) return bad;
  if (const status bad = check_contiguous("src", src); !bad) return bad;
  if (const status bad = check_contiguous("dst", dst); !bad) return bad;
  const int64_t *const shape = src.shape() + (rank - 2);
  return call_batch_transpose(to, src.data(), dst.data(), rank == 3 ? src.shape()[0] : int64_t{1}, shape[0], shape[1],
                              src.dtype);
}

template <class To, class Src, class Dst>
[[gnu::always_inline]] inline status permute(To to, const Src &src, const Dst &dst, const axes &order) noexcept {
  check_same_type<Src, Dst>();
  if (const status bad = check_permuted(src, dst, order); !bad) return bad;
  return call_permute(to, src.data(), src.strides(), dst.data(), dst.strides(), src.rank(), src.shape(), order.data(),
                      src.dtype);
}

template <class To, class Src, class Dst>
[[gnu::always_inline]] inline status permute_convert(To to, const Src &src, const Dst &dst, const axes &order,
                                                     double scale) noexcept {
  if (const status bad = check_permuted(src, dst, order); !bad) return bad;
  return call_permute_convert(to, src.data(), src.strides(), src.dtype, dst.data(), dst.strides(), dst.dtype,
                              src.rank(), src.shape(), order.data(), scale);
}

template <class To, class X, class Out>
[[gnu::always_inline]] inline status unary(To to, flowk_unary_op op, const X &x, const Out &out, double a = 0,
                                           double b = 0) noexcept {
  const Input<typename FirstValue<X>::type, X, Out> in("x", x, out);
  if (!in.bad()) return in.bad();
  return call_unary(to, op, in.data(), in.strides(), in.dtype, out.data(), out.strides(), out.dtype, out.rank(),
                    out.shape(), a, b);
}

template <class To, class X, class Y, class Out>
[[gnu::always_inline]] inline status binary(To to, flowk_binary_op op, const X &x, const Y &y,
                                            const Out &out) noexcept {
  using Value = typename FirstValue<X, Y>::type;
  const Input<Value, X, Out> in("x", x, out);
  const Input<Value, Y, Out> in_y("y", y, out);
  if (!in.bad()) return in.bad();
  if (!in_y.bad()) return in_y.bad();
  return call_binary(to, op, in.data(), in.strides(), in.dtype, in_y.data(), in_y.strides(), in_y.dtype, out.data(),
                     out.strides(), out.dtype, out.rank(), out.shape());
}

// A number among y and z of `where` has the type of the other one, or of out.
template <class To, class X, class Y, class Z, class Out>
[[gnu::always_inline]] inline status ternary(To to, flowk_ternary_op op, const X &x, const Y &y, const Z &z,
                                             const Out &out, double a = 0) noexcept {
  constexpr bool is_condition = std::is_same_v<typename ValueOf<X>::type, bool>;
  using Value = typename std::conditional_t<is_condition, FirstValue<Y, Z, Out>, FirstValue<X, Y, Z>>::type;
  const Input<Value, X, Out> in("x", x, out);
  const Input<Value, Y, Out> in_y("y", y, out);
  const Input<Value, Z, Out> in_z("z", z, out);
  if (!in.bad()) return in.bad();
  if (!in_y.bad()) return in_y.bad();
  if (!in_z.bad()) return in_z.bad();
  return call_ternary(to, op, in.data(), in.strides(), in.dtype, in_y.data(), in_y.strides(), in_y.dtype, in_z.data(),
                      in_z.strides(), in_z.dtype, out.data(), out.strides(), out.dtype, out.rank(), out.shape(), a);
}

// x as (outer, channels, inner).
struct Channels {
  int64_t outer = 1, channels = 1, inner = 1;

  template <class X, class A>
  status set(const X &x, const A &alpha, int32_t axis) noexcept {
    if (const status bad = check_contiguous("x", x); !bad) return bad;
    if (const status bad = check_contiguous("alpha", alpha); !bad) return bad;
    if (alpha.size() == 1) {
      inner = x.size();
      return {};
    }
    if (axis < 0 || axis >= x.rank())
      return fault_of(FLOWK_STATUS_INVALID_ARGUMENT, "channel_axis = %d, must be in 0 ... %d: x has %d dimension%s",
                      axis, x.rank() - 1, x.rank(), plural(x.rank()));
    if (const status bad = check_rank("alpha", alpha, 1); !bad) return bad;
    if (status bad; !check_extent("alpha", alpha, 0, x.shape()[axis], &bad)) return bad;
    outer = x.product(0, axis);
    channels = x.shape()[axis];
    inner = x.product(axis + 1, x.rank());
    return {};
  }
};
template <class Y, class X>
status check_like(const char *name, const Y &y, const X &x) noexcept {
  const status bad = check_same_shape(name, y, x);
  return bad ? check_contiguous(name, y) : bad;
}

template <class To, class X, class A, class Y>
[[gnu::always_inline]] inline status prelu(To to, const X &x, const A &alpha, const Y &y, int32_t axis) noexcept {
  check_same_type<X, Y>();
  Channels sizes;
  if (const status bad = sizes.set(x, alpha, axis); !bad) return bad;
  if (const status bad = check_like("y", y, x); !bad) return bad;
  return call_prelu(to, x.data(), alpha.data(), y.data(), sizes.outer, sizes.channels, sizes.inner, x.dtype,
                    alpha.dtype);
}

template <class To, class G, class X, class A, class Dx, class Dalpha>
[[gnu::always_inline]] inline status prelu_backward(To to, const G &dy, const X &x, const A &alpha, const Dx &dx,
                                                    const Dalpha &dalpha, int32_t axis, void *workspace,
                                                    size_t workspace_bytes) noexcept {
  check_same_type<G, Dx>();
  check_same_type<X, Dx>();
  check_same_type<A, Dalpha>();
  Channels sizes;
  if (const status bad = sizes.set(x, alpha, axis); !bad) return bad;
  if (const status bad = check_like("dy", dy, x); !bad) return bad;
  if (dx.data() != nullptr)
    if (const status bad = check_like("dx", dx, x); !bad) return bad;
  if (dalpha.data() != nullptr)
    if (const status bad = check_like("dalpha", dalpha, alpha); !bad) return bad;
  const auto call = [&](auto... workspace_and_bytes) noexcept {
    return call_prelu_backward(to, dy.data(), x.data(), alpha.data(), dx.data(), dalpha.data(), sizes.outer,
                               sizes.channels, sizes.inner, x.dtype, alpha.dtype, workspace_and_bytes...);
  };
  if constexpr (std::is_same_v<To, Text>)
    return call();  // a plan as text needs no workspace
  else
    return call(workspace, workspace_bytes);
}

template <class X, class A>
[[gnu::always_inline]] inline status prelu_backward_workspace_bytes(const X &x, const A &alpha, int32_t axis,
                                                                    size_t *bytes) noexcept {
  Channels sizes;
  if (const status bad = sizes.set(x, alpha, axis); !bad) return bad;
  return ::flowk_prelu_backward_workspace_bytes(sizes.outer, sizes.channels, sizes.inner, x.dtype, alpha.dtype, bytes);
}

template <class To, class X, class Y>
[[gnu::always_inline]] inline status masked_softmax(To to, const X &x, const Y &y, const softmax_mask &mask,
                                                    double scale, bool log_softmax) noexcept {
  if (const status bad = check_same_shape("y", y, x); !bad) return bad;
  return mask.for_shape(x, [&](const flowk_softmax_mask *parts) noexcept {
    return call_masked_softmax(to, x.data(), x.strides(), x.dtype, y.data(), y.strides(), y.dtype, x.rank(), x.shape(),
                               scale, parts, static_cast<int32_t>(log_softmax));
  });
}

template <class To, class Y1, class Y2, class Y, class A>
[[gnu::always_inline]] inline status softmax_merge(To to, const Y1 &y1, const A *lse1, const Y2 &y2, const A *lse2,
                                                   const Y &y, A *lse) noexcept {
  check_same_type<Y1, Y>();
  check_same_type<Y2, Y>();
  const int32_t last = y1.rank() - 1;
  if (last < 0) return check_rank("y1", y1, 1);
  if (const status bad = check_contiguous("y1", y1); !bad) return bad;
  if (const status bad = check_like("y2", y2, y1); !bad) return bad;
  if (const status bad = check_like("y", y, y1); !bad) return bad;
  return call_softmax_merge(to, y1.data(), lse1, y2.data(), lse2, y.data(), lse, y1.product(0, last), y1.shape()[last],
                            y1.dtype);
}

template <class To, class G, class Y, class X>
[[gnu::always_inline]] inline status masked_softmax_backward(To to, const G &dy, const Y &y, const X &dx,
                                                             const softmax_mask &mask, double scale,
                                                             bool log_softmax) noexcept {
  static_assert(std::is_same_v<typename G::value_type, typename Y::value_type>, "dy has y's element type");
  if (const status bad = check_same_shape("dy", dy, y); !bad) return bad;
  if (const status bad = check_same_shape("dx", dx, y); !bad) return bad;
  return mask.for_shape(y, [&](const flowk_softmax_mask *parts) noexcept {
    return call_masked_softmax_backward(to, dy.data(), dy.strides(), y.data(), y.strides(), y.dtype, dx.data(),
                                        dx.strides(), dx.dtype, y.rank(), y.shape(), scale, parts,
                                        static_cast<int32_t>(log_softmax));
  });
}

template <class To, class G, class Y, class X, class B>
[[gnu::always_inline]] inline status masked_softmax_backward_dbias(To to, const G &dy, const Y &y, const X &dx,
                                                                   const B &dbias, void *workspace,
                                                                   size_t workspace_bytes, const softmax_mask &mask,
                                                                   double scale, bool log_softmax) noexcept {
  static_assert(std::is_same_v<typename G::value_type, typename Y::value_type>, "dy has y's element type");
  if (const status bad = check_same_shape("dy", dy, y); !bad) return bad;
  if (dx.data() != nullptr)
    if (const status bad = check_same_shape("dx", dx, y); !bad) return bad;
  Strides<Y::static_rank> of_dbias;
  if (const status bad = of_dbias.broadcast("dbias", dbias, y.rank(), y.shape()); !bad) return bad;
  return mask.for_shape(y, [&](const flowk_softmax_mask *parts) noexcept {
    const auto call = [&](auto... workspace_and_bytes) noexcept {
      return call_masked_softmax_backward_dbias(to, dy.data(), dy.strides(), y.data(), y.strides(), y.dtype, dx.data(),
                                                dx.data() == nullptr ? nullptr : dx.strides(), dx.dtype, dbias.data(),
                                                of_dbias.get(), dbias.dtype, y.rank(), y.shape(), scale, parts,
                                                static_cast<int32_t>(log_softmax), workspace_and_bytes...);
    };
    if constexpr (std::is_same_v<To, Text>)
      return call();  // a plan as text needs no workspace
    else
      return call(workspace, workspace_bytes);
  });
}

template <class Y, class B>
[[gnu::always_inline]] inline status masked_softmax_backward_dbias_workspace_bytes(const Y &y, const B &dbias,
                                                                                   size_t *bytes) noexcept {
  Strides<Y::static_rank> of_dbias;
  if (const status bad = of_dbias.broadcast("dbias", dbias, y.rank(), y.shape()); !bad) return bad;
  return ::flowk_masked_softmax_backward_dbias_workspace_bytes(y.rank(), y.shape(), of_dbias.get(), y.dtype, bytes);
}

}  // namespace detail

}  // namespace flowk
