// SPDX-License-Identifier: Apache-2.0
// What flowk.hpp's functions do before the C call: shapes are compared, inputs broadcast, numbers converted.
#pragma once

#include <cstring>
#include <string>
#include <type_traits>

#include "flowk/detail/view.hpp"

namespace flowk {
namespace detail {

// Where a call goes: to a stream, or as text to a buffer.
struct Text {
  char *text;
  size_t bytes;
};
#define FLOWK_CALL_(function)                                                                                  \
  template <class... Arguments>                                                                                \
  [[gnu::always_inline]] inline status call_##function(flowk_stream stream, Arguments... arguments) noexcept { \
    return ::flowk_##function(arguments..., stream);                                                           \
  }                                                                                                            \
  template <class... Arguments>                                                                                \
  [[gnu::always_inline]] inline status call_##function(Text text, Arguments... arguments) noexcept {           \
    return ::flowk_##function##_explain(arguments..., text.text, text.bytes);                                  \
  }
FLOWK_CALL_(batch_transpose)
FLOWK_CALL_(permute)
FLOWK_CALL_(permute_convert)
FLOWK_CALL_(unary)
FLOWK_CALL_(binary)
FLOWK_CALL_(ternary)
FLOWK_CALL_(prelu)
FLOWK_CALL_(prelu_backward)
FLOWK_CALL_(masked_softmax)
FLOWK_CALL_(masked_softmax_backward)
FLOWK_CALL_(masked_softmax_backward_dbias)
FLOWK_CALL_(softmax_merge)
#undef FLOWK_CALL_

// The whole text that `call(Text)` writes.
template <class Call>
std::string explained(const Call &call) {
  std::string text(1024, '\0');
  for (;;) {
    check(call(Text{text.data(), text.size()}));
    const size_t length = std::strlen(text.c_str());
    if (length + 1 < text.size()) return text.substr(0, length);
    text.resize(2 * text.size());
  }
}

template <class X>
[[gnu::always_inline]] inline status check_rank(const char *name, const X &x, int32_t rank) noexcept {
  if (x.rank() == rank) return {};
  return fault_of(FLOWK_STATUS_INVALID_ARGUMENT, "%s has %d dimension%s, must have %d", name, x.rank(),
                  plural(x.rank()), rank);
}
[[gnu::cold, gnu::noinline]] inline status wrong_extent(const char *name, int64_t extent, int32_t d,
                                                        int64_t wanted) noexcept {
  return fault_of(FLOWK_STATUS_INVALID_ARGUMENT, "%s has extent %lld in dimension %d, must be %lld", name,
                  static_cast<long long>(extent), d, static_cast<long long>(wanted));
}
template <class X>
[[gnu::always_inline]] inline bool check_extent(const char *name, const X &x, int32_t d, int64_t wanted,
                                                status *bad) noexcept {
  if (x.shape()[d] == wanted) return true;
  *bad = wrong_extent(name, x.shape()[d], d, wanted);
  return false;
}
template <class X, class Wanted>
[[gnu::always_inline]] inline status check_same_shape(const char *name, const X &x, const Wanted &wanted) noexcept {
  status bad = check_rank(name, x, wanted.rank());
  if (bad)
    all_dims<X::static_rank>(x.rank(), [&](int32_t d) { return check_extent(name, x, d, wanted.shape()[d], &bad); });
  return bad;
}
template <class X>
status check_contiguous(const char *name, const X &x) noexcept {
  int64_t stride = 1;
  for (int32_t d = x.rank() - 1; x.strides() != nullptr && d >= 0; --d) {
    if (x.shape()[d] != 1 && x.strides()[d] != stride)
      return fault_of(FLOWK_STATUS_INVALID_ARGUMENT,
                      "%s has stride %lld in dimension %d, must be contiguous in C order: %lld", name,
                      static_cast<long long>(x.strides()[d]), d, static_cast<long long>(stride));
    stride = product_of(stride, x.shape()[d]);
  }
  return {};
}
// Fails unless dst has src's extents in the order of the axes. The library checks that the axes are a permutation.
template <class Src, class Dst>
[[gnu::always_inline]] inline status check_permuted(const Src &src, const Dst &dst, const axes &order) noexcept {
  if (order.size() != src.rank()) return wrong_size("axes", order.size(), src.rank());
  status bad = check_rank("dst", dst, src.rank());
  if (bad)
    all_dims<Src::static_rank>(src.rank(), [&](int32_t d) {
      const int32_t axis = order[d];
      return axis < 0 || axis >= src.rank() || check_extent("dst", dst, d, src.shape()[axis], &bad);
    });
  return bad;
}

// The strides of x for the first `rank` dimensions of `shape`, as NumPy broadcasts.
template <int32_t kRank>
class Strides {
 public:
  template <class X>
  [[gnu::always_inline]] status broadcast(const char *name, const X &x, int32_t rank, const int64_t *shape) noexcept {
    const bool is_same =
        x.rank() == rank && all_dims<X::static_rank>(rank, [&](int32_t d) { return x.shape()[d] == shape[d]; });
    strides_ = is_same ? x.strides() : buffer_;
    return is_same ? status() : fill(name, x, rank, shape);
  }
  const int64_t *get() const noexcept { return strides_; }

 private:
  template <class X>
  [[gnu::noinline]] status fill(const char *name, const X &x, int32_t rank, const int64_t *shape) noexcept {
    const int32_t num_new_dims = rank - x.rank();
    if (num_new_dims < 0)
      return fault_of(FLOWK_STATUS_INVALID_ARGUMENT, "%s has %d dimension%s, must have <= %d", name, x.rank(),
                      plural(x.rank()), rank);
    for (int32_t d = 0; d < num_new_dims; ++d) buffer_[d] = 0;
    status bad;
    int64_t stride = 1;
    for (int32_t d = x.rank() - 1; d >= 0; --d) {
      const int64_t extent = x.shape()[d];
      buffer_[num_new_dims + d] = extent == 1 && shape[num_new_dims + d] != 1 ? 0
                                  : x.strides() != nullptr                    ? x.strides()[d]
                                                                              : stride;
      if (extent != 1 && !check_extent(name, x, d, shape[num_new_dims + d], &bad)) break;
      stride = product_of(stride, extent);
    }
    return bad;
  }

  const int64_t *strides_ = nullptr;
  int64_t buffer_[static_cast<size_t>(kRank == any_rank ? FLOWK_MAX_RANK : kRank + 1)];
};

// An input of an elementwise operation: a view, or a number, which has the type `Value`.
template <class X>
struct ValueOf {
  using type = void;
};
template <class T, int32_t kRank>
struct ValueOf<view<T, kRank>> {
  using type = std::remove_const_t<T>;
};
template <class First, class... Rest>
struct FirstValue
    : std::conditional_t<std::is_void_v<typename ValueOf<First>::type>, FirstValue<Rest...>, ValueOf<First>> {};
template <class Last>
struct FirstValue<Last> : ValueOf<Last> {
  static_assert(!std::is_void_v<typename ValueOf<Last>::type>,
                "an elementwise operation needs an input that is a view");
};

template <class Value, class X, class Out>
class Input {
  static_assert(!(std::is_integral_v<Value> && std::is_floating_point_v<X>), "a float with views of integers");

 public:
  [[gnu::always_inline]] Input(const char *, const X &number, const Out &) noexcept
      : number_(static_cast<Value>(number)) {}
  status bad() const noexcept { return {}; }
  const void *data() const noexcept { return &number_; }
  const int64_t *strides() const noexcept { return nullptr; }
  static constexpr flowk_dtype dtype = dtype_of<Value>::value | FLOWK_HOST_SCALAR;

 private:
  Value number_;
};
template <class Value, class T, int32_t kRank, class Out>
class Input<Value, view<T, kRank>, Out> {
 public:
  [[gnu::always_inline]] Input(const char *name, const view<T, kRank> &x, const Out &out) noexcept
      : data_(x.data()), bad_(strides_.broadcast(name, x, out.rank(), out.shape())) {}
  status bad() const noexcept { return bad_; }
  const void *data() const noexcept { return data_; }
  const int64_t *strides() const noexcept { return strides_.get(); }
  static constexpr flowk_dtype dtype = dtype_of<std::remove_const_t<T>>::value;

 private:
  const void *data_;
  Strides<Out::static_rank> strides_;
  status bad_;
};

// Src and Dst are views of one type, and Dst's is not const.
template <class Src, class Dst>
constexpr void check_same_type() {
  static_assert(std::is_same_v<typename Src::value_type, typename Dst::element_type>,
                "dst has src's element type, not const");
}

}  // namespace detail
}  // namespace flowk
