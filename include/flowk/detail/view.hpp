// SPDX-License-Identifier: Apache-2.0
// What flowk.hpp's functions take and give: status, error, dtype_of<T>, view<T>, axes.
#pragma once

#include <complex>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <iterator>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "flowk/flowk.h"

struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e4m3;
struct __nv_fp8_e5m2;

namespace flowk {
inline namespace v0_1 {

/** The result of a call in the form that does not throw. True: success. */
class [[nodiscard]] status {
 public:
  constexpr status() noexcept = default;
  constexpr status(flowk_status code, const char *text = nullptr) noexcept : code_(code), text_(text) {}

  constexpr flowk_status code() const noexcept { return code_; }
  constexpr explicit operator bool() const noexcept { return code_ == FLOWK_STATUS_SUCCESS; }
  /** The parameter, its value and the bound; "" after success. Valid until this thread's next flowk call. */
  const char *text() const noexcept { return text_ != nullptr ? text_ : *this ? "" : flowk_last_error(); }

 private:
  flowk_status code_ = FLOWK_STATUS_SUCCESS;
  const char *text_ = nullptr;  // of a fault that flowk.hpp finds itself
};

/** What every function throws: what() is the parameter, its value and the bound. */
class error : public std::runtime_error {
 public:
  explicit error(const flowk::status &status) : std::runtime_error(status.text()), code_(status.code()) {}
  /** A constant FLOWK_STATUS_... */
  flowk_status status() const noexcept { return code_; }

 private:
  flowk_status code_;
};

template <flowk_dtype kDtype>
using dtype_constant = std::integral_constant<flowk_dtype, kDtype>;

/** The flowk_dtype of an element type. Specialise it for a type of your own:
 *
 *   template <> struct flowk::dtype_of<my::half> : flowk::dtype_constant<FLOWK_FLOAT16> {};
 */
template <class T, class = void>
struct dtype_of {
  static_assert(sizeof(T) == 0, "flowk has no element type for this C++ type: specialise flowk::dtype_of");
};
template <class T>
struct dtype_of<T, std::enable_if_t<std::is_integral_v<T> && sizeof(T) <= sizeof(int64_t)>>
    : dtype_constant<(std::is_signed_v<T> ? FLOWK_INT8 : FLOWK_UINT8) + (sizeof(T) > 1) + (sizeof(T) > 2) +
                     (sizeof(T) > 4)> {};
// clang-format off
template <> struct dtype_of<bool> : dtype_constant<FLOWK_BOOL> {};
template <> struct dtype_of<float> : dtype_constant<FLOWK_FLOAT32> {};
template <> struct dtype_of<double> : dtype_constant<FLOWK_FLOAT64> {};
template <> struct dtype_of<std::complex<float>> : dtype_constant<FLOWK_COMPLEX64> {};
template <> struct dtype_of<std::complex<double>> : dtype_constant<FLOWK_COMPLEX128> {};
template <> struct dtype_of<__half> : dtype_constant<FLOWK_FLOAT16> {};
template <> struct dtype_of<__nv_bfloat16> : dtype_constant<FLOWK_BFLOAT16> {};
template <> struct dtype_of<__nv_fp8_e4m3> : dtype_constant<FLOWK_FLOAT8_E4M3> {};
template <> struct dtype_of<__nv_fp8_e5m2> : dtype_constant<FLOWK_FLOAT8_E5M2> {};
// clang-format on

/** The rank of a view that is known at run time. */
inline constexpr int32_t any_rank = -1;

}  // namespace v0_1

namespace detail {

// The text of this thread's last fault that flowk.hpp found itself.
inline thread_local char fault_text[160];

[[gnu::cold, gnu::noinline, gnu::format(printf, 2, 3)]] inline status fault_of(flowk_status code, const char *format,
                                                                               ...) noexcept {
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(fault_text, sizeof fault_text, format, values);
  va_end(values);
  return {code, fault_text};
}
// "s" after a count of things, but not after 1.
constexpr const char *plural(int64_t count) noexcept { return count == 1 ? "" : "s"; }
[[gnu::cold, gnu::noinline]] inline status wrong_size(const char *name, int64_t size, int32_t wanted) noexcept {
  return fault_of(FLOWK_STATUS_INVALID_ARGUMENT, "%s has %lld %s, must have %d", name, static_cast<long long>(size),
                  size == 1 ? "entry" : "entries", wanted);
}
[[gnu::cold, gnu::noinline, noreturn]] inline void raise(const status &status) { throw error(status); }
[[gnu::always_inline]] inline void check(const status &status) {
  if (!status) raise(status);
}

// An integer of any type in a braced list.
struct Index {
  int64_t value;
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
  constexpr Index(T integer) noexcept : value(static_cast<int64_t>(integer)) {}
};
template <class Range>
using IfIntegersIn = std::enable_if_t<std::is_integral_v<std::decay_t<decltype(*std::begin(std::declval<Range &>()))>>>;

// Copies a list, which must have `size` integers.
template <class Integer, class Range>
[[gnu::always_inline]] inline void copy_integers(const char *name, const Range &list, int32_t size, Integer *to) {
  if (std::size(list) != static_cast<size_t>(size))
    raise(wrong_size(name, static_cast<int64_t>(std::size(list)), size));
  int32_t i = 0;
  for (const Index index : list) {
    to[i] = static_cast<Integer>(index.value);
    if (to[i] != index.value)
      raise(fault_of(FLOWK_STATUS_INVALID_ARGUMENT, "%s[%d] = %lld, must fit %d bits", name, i,
                     static_cast<long long>(index.value), static_cast<int>(8 * sizeof(Integer))));
    ++i;
  }
}
template <class Range>
[[gnu::always_inline]] inline int32_t rank_of(const char *name, const Range &list) {
  if (std::size(list) > FLOWK_MAX_RANK)
    raise(fault_of(FLOWK_STATUS_INVALID_ARGUMENT, "%s has %lld entries, must have <= %d", name,
                   static_cast<long long>(std::size(list)), FLOWK_MAX_RANK));
  return static_cast<int32_t>(std::size(list));
}

// Calls visit(d) for d = 0, 1, ... while it returns true; without a loop if the rank is in the type. Returns whether
// all calls returned true.
template <int32_t... kD, class Visit>
[[gnu::always_inline]] inline bool all_of(std::integer_sequence<int32_t, kD...>, const Visit &visit) {
  return (visit(kD) && ...);
}
template <int32_t kRank, class Visit>
[[gnu::always_inline]] inline bool all_dims(int32_t rank, const Visit &visit) {
  if constexpr (kRank != any_rank) {
    return all_of(std::make_integer_sequence<int32_t, kRank>(), visit);
  } else {
    for (int32_t d = 0; d < rank; ++d)
      if (!visit(d)) return false;
    return true;
  }
}

// a * b, or INT64_MAX, which every bound of the library refuses.
inline int64_t product_of(int64_t a, int64_t b) noexcept {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

// Shape and strides. A copy of a layout without a rank in its type copies only the dimensions that it has.
template <int32_t kRank>
class Layout {
  static_assert(kRank <= FLOWK_MAX_RANK, "a view has at most FLOWK_MAX_RANK dimensions");

 public:
  static constexpr int32_t static_rank = kRank;

  constexpr int32_t rank() const noexcept { return kRank == any_rank ? rank_ : kRank; }
  const int64_t *shape() const noexcept { return shape_; }
  /** Per dimension, in elements; nullptr: C order. */
  const int64_t *strides() const noexcept { return has_strides_ ? strides_ : nullptr; }
  /** The number of elements. */
  int64_t size() const noexcept { return product(0, rank()); }
  int64_t product(int32_t first, int32_t last) const noexcept {
    int64_t count = 1;
    for (int32_t d = first; d < last; ++d) count = product_of(count, shape_[d]);
    return count;
  }

  Layout() noexcept : rank_(0) {}
  Layout(const Layout &other) noexcept { copy(other); }
  template <int32_t kOther, class = std::enable_if_t<kOther != kRank && kRank == any_rank>>
  Layout(const Layout<kOther> &other) noexcept {
    copy(other);
  }
  Layout &operator=(const Layout &other) noexcept {
    copy(other);
    return *this;
  }

 protected:
  template <class Shape>
  [[gnu::always_inline]] explicit Layout(const Shape &shape)
      : rank_(kRank == any_rank ? rank_of("shape", shape) : kRank) {
    copy_integers("shape", shape, rank(), shape_);
  }
  template <class Shape, class Strides>
  [[gnu::always_inline]] Layout(const Shape &shape, const Strides &strides) : Layout(shape) {
    copy_integers("strides", strides, rank(), strides_);
    has_strides_ = true;
  }

 private:
  template <class Other>
  [[gnu::always_inline]] void copy(const Other &other) noexcept {
    rank_ = other.rank();
    has_strides_ = other.strides() != nullptr;
    const auto copy_dim = [&](int32_t d) {
      shape_[d] = other.shape()[d];
      if (has_strides_) strides_[d] = other.strides()[d];
      return true;
    };
    all_dims<Other::static_rank>(rank_, copy_dim);
  }

  static constexpr size_t capacity = kRank == any_rank ? FLOWK_MAX_RANK : kRank == 0 ? 1 : kRank;
  int32_t rank_;
  bool has_strides_ = false;
  int64_t shape_[capacity];
  int64_t strides_[capacity];
};

// Views have size() and data() too.
template <class Array, class = void>
inline constexpr bool is_view = false;
template <class Array>
inline constexpr bool is_view<Array, std::void_t<decltype(std::decay_t<Array>::static_rank)>> = true;

// Arrays that a view is made of: a std::mdspan, or a contiguous range as std::span, std::vector, std::array.
template <class Array>
auto pointer_of(Array &array, int) -> decltype(array.extent(0), array.data_handle());
template <class Array>
auto pointer_of(Array &array, long) -> decltype(std::size(array), std::data(array));
template <class Array, class = std::enable_if_t<!is_view<Array>>>
using ElementOf = std::remove_pointer_t<std::decay_t<decltype(pointer_of(std::declval<Array &>(), 0))>>;

template <class Array, class = void>
struct ArrayRank : std::integral_constant<int32_t, 1> {};
template <class Array>
struct ArrayRank<Array, std::void_t<decltype(std::declval<Array &>().data_handle())>>
    : std::integral_constant<int32_t, static_cast<int32_t>(Array::rank())> {};

// Do the elements outlive the expression `Array`? Not if it is a temporary that owns them. std::span and std::mdspan
// own none, which their member element_type shows.
template <class Array, class = void>
inline constexpr bool outlives = std::is_lvalue_reference_v<Array>;
template <class Array>
inline constexpr bool outlives<Array, std::void_t<typename std::remove_reference_t<Array>::element_type>> = true;

}  // namespace detail

inline namespace v0_1 {

/**
 * A tensor that the caller owns: pointer, shape, and strides in elements (without them: C order). `const T` for a
 * tensor that is only read. Shape and strides are braced lists of integers, or containers of them; a view holds copies.
 *
 *   flowk::view x{data, {2, 3}};                     // the rank is in the type: view<float, 2>
 *   flowk::view<float> x{data, shape, strides};      // any rank
 *   flowk::view x{span};                             // one dimension of a std::span or a std::vector; a std::mdspan
 *
 * flowk::view<float>() is no tensor, for a parameter that may be left out.
 */
template <class T, int32_t kRank = any_rank>
class view : public detail::Layout<kRank> {
  using Layout = detail::Layout<kRank>;

 public:
  using element_type = T;
  using value_type = std::remove_const_t<T>;
  static constexpr flowk_dtype dtype = dtype_of<value_type>::value;

  view() noexcept = default;
  template <size_t n>
  [[gnu::always_inline]] view(T *data, const detail::Index (&shape)[n]) : Layout(shape), data_(data) {
    static_assert(kRank == any_rank || kRank == n, "one extent per dimension of the view");
  }
  template <size_t n>
  [[gnu::always_inline]] view(T *data, const detail::Index (&shape)[n], const detail::Index (&strides)[n])
      : Layout(shape, strides), data_(data) {
    static_assert(kRank == any_rank || kRank == n, "one extent per dimension of the view");
  }
  template <class Shape, class = detail::IfIntegersIn<const Shape>>
  view(T *data, const Shape &shape) : Layout(shape), data_(data) {}
  template <class Shape, class Strides, class = detail::IfIntegersIn<const Shape>,
            class = detail::IfIntegersIn<const Strides>>
  view(T *data, const Shape &shape, const Strides &strides) : Layout(shape, strides), data_(data) {}

  template <class Array, class Element = detail::ElementOf<std::remove_reference_t<Array>>,
            class = std::enable_if_t<std::is_convertible_v<Element (*)[], T (*)[]> && detail::outlives<Array>>>
  view(Array &&array)
      : view(array, std::make_index_sequence<static_cast<size_t>(detail::ArrayRank<std::decay_t<Array>>::value)>()) {}
  /** view<const T> of view<T>; a view of any rank of one whose type has a rank. */
  template <class U, int32_t kOther,
            class = std::enable_if_t<(std::is_same_v<U, T> || std::is_same_v<const U, T>) &&
                                     (kRank == kOther || kRank == any_rank)>>
  view(const view<U, kOther> &other) noexcept
      : Layout(static_cast<const detail::Layout<kOther> &>(other)), data_(other.data()) {}

  T *data() const noexcept { return data_; }

 private:
  template <class Array, size_t... kD>
  view(Array &array, std::index_sequence<kD...>)
      : Layout(std::initializer_list<detail::Index>{extent_of(array, kD, 0)...},
               std::initializer_list<detail::Index>{stride_of(array, kD, 0)...}),
        data_(pointer_to(array, 0)) {}
  template <class Array>
  static auto extent_of(const Array &array, size_t d, int) -> decltype(array.data_handle(), array.extent(d)) {
    return array.extent(d);
  }
  template <class Array>
  static auto extent_of(const Array &array, size_t, long) {
    return std::size(array);
  }
  template <class Array>
  static auto stride_of(const Array &array, size_t d, int) -> decltype(array.data_handle(), array.stride(d)) {
    return array.stride(d);
  }
  template <class Array>
  static int64_t stride_of(const Array &, size_t, long) {
    return 1;
  }
  template <class Array>
  static auto pointer_to(Array &array, int) -> decltype(array.data_handle()) {
    return array.data_handle();
  }
  template <class Array>
  static auto pointer_to(Array &array, long) {
    return std::data(array);
  }

  T *data_ = nullptr;
};

template <class T, size_t n>
view(T *, const detail::Index (&)[n]) -> view<T, static_cast<int32_t>(n)>;
template <class T, size_t n>
view(T *, const detail::Index (&)[n], const detail::Index (&)[n]) -> view<T, static_cast<int32_t>(n)>;
template <class T, class Shape>
view(T *, const Shape &) -> view<T>;
template <class T, class Shape, class Strides>
view(T *, const Shape &, const Strides &) -> view<T>;
template <class Array, class Element = detail::ElementOf<std::remove_reference_t<Array>>>
view(Array &&) -> view<Element, detail::ArrayRank<std::decay_t<Array>>::value>;
template <class T, int32_t kRank>
view(const view<T, kRank> &) -> view<T, kRank>;

/** The axes of a permute: a braced list of integers, or a container of them. */
class axes {
 public:
  [[gnu::always_inline]] axes(std::initializer_list<detail::Index> list) : size_(detail::rank_of("axes", list)) {
    detail::copy_integers("axes", list, size_, data_);
  }
  template <class List, class = detail::IfIntegersIn<const List>>
  axes(const List &list) : size_(detail::rank_of("axes", list)) {
    detail::copy_integers("axes", list, size_, data_);
  }
  const int32_t *data() const noexcept { return data_; }
  int32_t size() const noexcept { return size_; }
  int32_t operator[](int32_t i) const noexcept { return data_[i]; }

 private:
  int32_t size_;
  int32_t data_[FLOWK_MAX_RANK];
};

}  // namespace v0_1
}  // namespace flowk
