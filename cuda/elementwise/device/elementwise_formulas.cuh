// SPDX-License-Identifier: Apache-2.0
// The formulas of flowk/elementwise_ops.h by their names: Formulas<T, kNarrow>::name(...). T is the type that is
// computed in: float, double, int32_t or int64_t. kNarrow: the result has 16 bits or fewer; those of float are in
// elementwise_formulas_16_bit.cuh.
#pragma once

#include <type_traits>

#include "flowk/detail/target.cuh"

namespace flowk::elementwise {

// Hardware approximations. The executor computes the same functions exactly, and flushes denormals to 0 like the
// hardware.
#ifdef FLOWK_SIMT
inline float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
#define FLOWK_APPROXIMATION(name, instruction, exact) \
  inline float name(float x) { return exact; }
#else
#define FLOWK_APPROXIMATION(name, instruction, exact)    \
  __device__ __forceinline__ float name(float x) {       \
    float result;                                        \
    asm(instruction " %0, %1;" : "=f"(result) : "f"(x)); \
    return result;                                       \
  }
#endif
FLOWK_APPROXIMATION(exp2_approx, "ex2.approx.f32", exp2f(x))                   // denormal results are kept
FLOWK_APPROXIMATION(exp2_approx_ftz, "ex2.approx.ftz.f32", flushed(exp2f(x)))  // denormal results are 0
FLOWK_APPROXIMATION(reciprocal_approx, "rcp.approx.f32", 1.0f / x)
FLOWK_APPROXIMATION(reciprocal_approx_ftz, "rcp.approx.ftz.f32", flushed(1.0f / flushed(x)))
FLOWK_APPROXIMATION(sqrt_approx, "sqrt.approx.f32", sqrtf(x))
FLOWK_APPROXIMATION(tanh_approx, "tanh.approx.f32", tanhf(x))
#undef FLOWK_APPROXIMATION

// The larger and the smaller of two numbers; NaN if one is NaN.
template <class T>
__device__ __forceinline__ T nan_max(T x, T y) {
#ifndef FLOWK_SIMT
  if constexpr (std::is_same_v<T, float>) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
  }
#endif
  return x > y || x != x ? x : y;
}
template <class T>
__device__ __forceinline__ T nan_min(T x, T y) {
#ifndef FLOWK_SIMT
  if constexpr (std::is_same_v<T, float>) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
  }
#endif
  return x < y || x != x ? x : y;
}

// A polynomial in z by Horner's rule, from the coefficient of the highest power to the constant.
template <class T, class... Rest>
__device__ __forceinline__ T polynomial(T z, T first, Rest... rest) {
  ((first = ::fma(first, z, rest)), ...);
  return first;
}

// Integers, modulo 2^bits. T is signed. `sign_flip` is 0, or for unsigned values of T's width the sign bit, so that
// x ^ sign_flip has the order of x. kNarrow: all element types are narrower than T.
template <class T, bool kNarrow>
struct Formulas {
  using U = std::make_unsigned_t<T>;
  T sign_flip;
  __device__ __forceinline__ bool is_unsigned() const { return !kNarrow && sign_flip != 0; }
  __device__ __forceinline__ T ordered(T x) const { return kNarrow ? x : x ^ sign_flip; }

  __device__ __forceinline__ T copy(T x, T, T) const { return x; }
  __device__ __forceinline__ T abs(T x, T, T) const { return x < T{0} && !is_unsigned() ? negative(x, 0, 0) : x; }
  __device__ __forceinline__ T negative(T x, T, T) const { return static_cast<T>(U{0} - static_cast<U>(x)); }
  __device__ __forceinline__ T square(T x, T, T) const { return multiply(x, x); }
  __device__ __forceinline__ T relu(T x, T, T) const { return maximum(x, T{0}); }
  __device__ __forceinline__ T clip(T x, T a, T b) const { return minimum(maximum(x, a), b); }
  __device__ __forceinline__ T scale(T x, T a, T b) const { return add(multiply(a, x), b); }
  __device__ __forceinline__ T logical_not(T x, T, T) const { return x == T{0}; }
  __device__ __forceinline__ T sign(T x, T, T) const { return x < T{0} && !is_unsigned() ? T{-1} : T{x != T{0}}; }
  __device__ __forceinline__ T bitwise_invert(T x, T, T) const { return ~x; }

  __device__ __forceinline__ T add(T x, T y) const { return static_cast<T>(static_cast<U>(x) + static_cast<U>(y)); }
  __device__ __forceinline__ T subtract(T x, T y) const {
    return static_cast<T>(static_cast<U>(x) - static_cast<U>(y));
  }
  __device__ __forceinline__ T multiply(T x, T y) const {
    return static_cast<T>(static_cast<U>(x) * static_cast<U>(y));
  }
  __device__ __forceinline__ T trunc_divide(T x, T y) const {
    if constexpr (kNarrow) {
      // (|x| + 1/2) / |y| is at least 1 / 2|y| from an integer, which is 2^-17 of it: more than the two errors of
      // 2^-23.
      const float biased = static_cast<float>(x) + (x < T{0} ? -0.5f : 0.5f);
      const float quotient = biased * reciprocal_approx_ftz(static_cast<float>(y));
      return static_cast<T>(y == T{0} ? 0.0f : quotient);
    }
    if (y == T{0}) return T{0};
    if (is_unsigned()) return static_cast<T>(static_cast<U>(x) / static_cast<U>(y));
    return y == static_cast<T>(-1) ? negative(x, 0, 0) : x / y;
  }
  __device__ __forceinline__ T minimum(T x, T y) const { return ordered(x) < ordered(y) ? x : y; }
  __device__ __forceinline__ T maximum(T x, T y) const { return ordered(x) > ordered(y) ? x : y; }
  __device__ __forceinline__ T equal(T x, T y) const { return x == y; }
  __device__ __forceinline__ T not_equal(T x, T y) const { return x != y; }
  __device__ __forceinline__ T less(T x, T y) const { return ordered(x) < ordered(y); }
  __device__ __forceinline__ T less_equal(T x, T y) const { return ordered(x) <= ordered(y); }
  __device__ __forceinline__ T greater(T x, T y) const { return ordered(x) > ordered(y); }
  __device__ __forceinline__ T greater_equal(T x, T y) const { return ordered(x) >= ordered(y); }
  __device__ __forceinline__ T bitwise_and(T x, T y) const { return x & y; }
  __device__ __forceinline__ T bitwise_or(T x, T y) const { return x | y; }
  __device__ __forceinline__ T bitwise_xor(T x, T y) const { return x ^ y; }
  __device__ __forceinline__ T logical_and(T x, T y) const { return x != T{0} && y != T{0}; }
  __device__ __forceinline__ T logical_or(T x, T y) const { return (x | y) != T{0}; }
  __device__ __forceinline__ T logical_xor(T x, T y) const { return (x != T{0}) != (y != T{0}); }
  // trunc_divide() rounds toward zero. If the signs differ and something remains, the floor is one less.
  __device__ __forceinline__ T floor_divide(T x, T y) const {
    const T quotient = trunc_divide(x, y);
    return goes_below(subtract(x, multiply(quotient, y)), y) ? subtract(quotient, T{1}) : quotient;
  }
  __device__ __forceinline__ T remainder(T x, T y) const {
    const T rest = subtract(x, multiply(trunc_divide(x, y), y));
    return y == T{0} ? T{0} : goes_below(rest, y) ? add(rest, y) : rest;
  }
  __device__ __forceinline__ T pow(T x, T y) const {
    return y < T{0} && !is_unsigned() ? inverse_power(x, y) : power(x, static_cast<U>(y));
  }
  // 1 / x^-y, rounded toward zero, for y < 0. It is 0 for x = 0.
  __device__ __forceinline__ static T inverse_power(T x, T y) {
    const bool is_one = x == T{1} || x == T{-1};
    return is_one ? (y & T{1} ? x : T{1}) : T{0};
  }
  __device__ __forceinline__ T power(T x, U y) const {
    T result = T{1};
#pragma unroll 1  // a loop that ends with `y` takes more registers than the kernel has
    for (int bit = 0; bit < (kNarrow ? 16 : bits); ++bit, y >>= 1, x = multiply(x, x))
      result = multiply(result, y & 1 ? x : T{1});
    return result;
  }
  // Elements of narrower types are extended to T, so T's bound of y is right for them too.
  __device__ __forceinline__ T bitwise_left_shift(T x, T y) const {
    return is_past(y) ? T{0} : static_cast<T>(static_cast<U>(x) << y);
  }
  __device__ __forceinline__ T bitwise_right_shift(T x, T y) const {
    if (is_unsigned()) return is_past(y) ? T{0} : static_cast<T>(static_cast<U>(x) >> y);
    return x >> (is_past(y) ? T{bits - 1} : y);
  }

  __device__ __forceinline__ T fma(T x, T y, T z, T) const { return add(multiply(x, y), z); }
  __device__ __forceinline__ T where(T x, T y, T z, T) const { return x != T{0} ? y : z; }
  __device__ __forceinline__ T clip_by(T x, T y, T z, T) const { return minimum(maximum(x, y), z); }
  __device__ __forceinline__ T add_multiply(T x, T y, T z, T a) const { return add(x, multiply(a, multiply(y, z))); }

 private:
  static constexpr int bits = 8 * sizeof(T);
  __device__ __forceinline__ bool is_past(T y) const { return static_cast<U>(y) >= U{bits}; }
  __device__ __forceinline__ bool goes_below(T rest, T y) const {
    return rest != T{0} && (rest ^ y) < T{0} && y != T{0} && !is_unsigned();
  }
};

// The formulas of float and double.
template <class T, bool kNarrow>
struct FloatFormulas {
  static constexpr T half = T(0.5);
  static constexpr T largest = std::is_same_v<T, float> ? T(3.402823466e38) : T(1.7976931348623157e308);
  static constexpr T least_normal = std::is_same_v<T, float> ? T(1.17549435e-38) : T(2.2250738585072014e-308);
  static constexpr T scale_down = std::is_same_v<T, float> ? T(0x1p-64) : T(0x1p-512);
  static constexpr T two_sqrt_2_over_pi = T(1.59576912160573071176);  // 2 sqrt(2 / pi)
  static constexpr T cubic = T(0.044715);
  static constexpr T inverse_sqrt_2pi = T(0.39894228040143267794);

  __device__ __forceinline__ static T exp_of(T x) { return ::exp(x); }

  // max(x, the least finite number), because -infinity * 0 is NaN.
  __device__ __forceinline__ static T bounded_below(T x) { return nan_max(x, -largest); }
  __device__ __forceinline__ static T bounded(T x, T bound) { return nan_min(nan_max(x, -bound), bound); }

  __device__ __forceinline__ static T copy(T x, T, T) { return x; }
  __device__ __forceinline__ static T relu(T x, T, T) { return nan_max(x, T(0)); }
  __device__ __forceinline__ static T clip(T x, T a, T b) { return nan_min(nan_max(x, a), b); }
  __device__ __forceinline__ static T logical_not(T x, T, T) { return x == T(0); }
  __device__ __forceinline__ static T abs(T x, T, T) { return fabs(x); }
  __device__ __forceinline__ static T negative(T x, T, T) { return -x; }
  __device__ __forceinline__ static T square(T x, T, T) { return x * x; }
  __device__ __forceinline__ static T sqrt(T x, T, T) { return ::sqrt(x); }
  __device__ __forceinline__ static T rsqrt(T x, T, T) {
    if constexpr (std::is_same_v<T, float>)
      return rsqrtf(x);
    else
      return ::rsqrt(x);
  }
  __device__ __forceinline__ static T reciprocal(T x, T, T) { return T(1) / x; }
  __device__ __forceinline__ static T exp(T x, T, T) { return exp_of(x); }
  __device__ __forceinline__ static T log(T x, T, T) { return ::log(x); }
  __device__ __forceinline__ static T sin(T x, T, T) { return ::sin(x); }
  __device__ __forceinline__ static T cos(T x, T, T) { return ::cos(x); }
  __device__ __forceinline__ static T tanh(T x, T, T) { return ::tanh(x); }
  // Neither term of the quotient overflows, and small results stay exact.
  __device__ __forceinline__ static T sigmoid(T x, T, T) {
    const T e = exp_of(-fabs(x));
    return (x < T(0) ? e : T(1)) / (T(1) + e);
  }
  __device__ __forceinline__ static T leaky_relu(T x, T a, T) { return x > T(0) ? x : a * x; }
  __device__ __forceinline__ static T elu(T x, T a, T) { return x > T(0) ? x : a * ::expm1(x); }
  __device__ __forceinline__ static T gelu(T x, T, T) {
    if (x < T(-36)) return small_gelu(x);
    return x * normcdf_of(x);
  }
  // (1 + tanh(u)) / 2 = sigmoid(2 u)
  __device__ __forceinline__ static T gelu_tanh(T x, T, T) { return gated(x, gelu_tanh_argument(x), T(1)); }
  __device__ __forceinline__ static T silu(T x, T, T) { return gated(x, x, T(1)); }
  __device__ __forceinline__ static T softplus(T x, T, T) { return nan_max(x, T(0)) + ::log1p(exp_of(-fabs(x))); }
  __device__ __forceinline__ static T floor(T x, T, T) { return ::floor(x); }
  __device__ __forceinline__ static T ceil(T x, T, T) { return ::ceil(x); }
  __device__ __forceinline__ static T round(T x, T, T) { return ::rint(x); }
  __device__ __forceinline__ static T scale(T x, T a, T b) { return ::fma(a, x, b); }
  __device__ __forceinline__ static T isnan(T x, T, T) { return x != x; }
  __device__ __forceinline__ static T isinf(T x, T, T) { return fabs(x) > largest; }
  __device__ __forceinline__ static T isfinite(T x, T, T) { return fabs(x) <= largest; }
  __device__ __forceinline__ static T signbit(T x, T, T) { return ::copysign(T(1), x) < T(0); }
  __device__ __forceinline__ static T sign(T x, T, T) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x + T(0); }
  __device__ __forceinline__ static T trunc(T x, T, T) { return ::trunc(x); }
  __device__ __forceinline__ static T exp2(T x, T, T) { return ::exp2(x); }
  __device__ __forceinline__ static T expm1(T x, T, T) { return ::expm1(x); }
  __device__ __forceinline__ static T log1p(T x, T, T) { return ::log1p(x); }
  __device__ __forceinline__ static T log2(T x, T, T) { return ::log2(x); }
  __device__ __forceinline__ static T log10(T x, T, T) { return ::log10(x); }
  __device__ __forceinline__ static T erf(T x, T, T) { return ::erf(x); }
  __device__ __forceinline__ static T tan(T x, T, T) { return ::tan(x); }
  __device__ __forceinline__ static T asin(T x, T, T) { return ::asin(x); }
  __device__ __forceinline__ static T acos(T x, T, T) { return ::acos(x); }
  __device__ __forceinline__ static T atan(T x, T, T) { return ::atan(x); }
  __device__ __forceinline__ static T sinh(T x, T, T) { return ::sinh(x); }
  __device__ __forceinline__ static T cosh(T x, T, T) { return ::cosh(x); }
  __device__ __forceinline__ static T asinh(T x, T, T) { return ::asinh(x); }
  __device__ __forceinline__ static T acosh(T x, T, T) { return ::acosh(x); }
  __device__ __forceinline__ static T atanh(T x, T, T) { return ::atanh(x); }

  __device__ __forceinline__ static T minimum(T x, T y) { return nan_min(x, y); }
  __device__ __forceinline__ static T maximum(T x, T y) { return nan_max(x, y); }
  __device__ __forceinline__ static T equal(T x, T y) { return x == y; }
  __device__ __forceinline__ static T not_equal(T x, T y) { return x != y; }
  __device__ __forceinline__ static T less(T x, T y) { return x < y; }
  __device__ __forceinline__ static T less_equal(T x, T y) { return x <= y; }
  __device__ __forceinline__ static T greater(T x, T y) { return x > y; }
  __device__ __forceinline__ static T greater_equal(T x, T y) { return x >= y; }
  __device__ __forceinline__ static T add(T x, T y) { return x + y; }
  __device__ __forceinline__ static T subtract(T x, T y) { return x - y; }
  __device__ __forceinline__ static T multiply(T x, T y) { return x * y; }
  __device__ __forceinline__ static T divide(T x, T y) { return x / y; }
  __device__ __forceinline__ static T pow(T x, T y) {
    return y == T(0) || x == T(1) ? T(1) : ::pow(x, y);  // of a signaling NaN too
  }
  __device__ __forceinline__ static T relu_backward(T x, T y) { return y > T(0) ? x : T(0); }
  // Phi(y) + y phi(y); past +-40 the limits.
  __device__ __forceinline__ static T gelu_backward(T x, T y) {
    y = bounded(y, T(40));
    return x * (normcdf_of(y) + y * (inverse_sqrt_2pi * exp_of(-half * y * y)));
  }
  // With s = sigmoid(2 u) and s (1 - s) = e / (1 + e)^2: s + y s (1 - s) (2 u)'; past +-40 the limits.
  __device__ __forceinline__ static T gelu_tanh_backward(T x, T y) {
    y = bounded(y, T(40));
    const T e = exp_of(-fabs(gelu_tanh_argument(y)));
    const T r = T(1) / (T(1) + e);
    const T slope = two_sqrt_2_over_pi * (T(1) + T(3) * cubic * y * y);
    return x * ((y < T(0) ? e * r : r) + y * slope * (e * r * r));
  }
  // x (s + y s (1 - s)) with s = sigmoid(y). Past +-1000 it has reached its limits.
  __device__ __forceinline__ static T silu_backward(T x, T y) {
    y = bounded(y, T(1000));
    const T e = exp_of(-fabs(y));
    const T r = T(1) / (T(1) + e);
    return x * ((y < T(0) ? e * r : r) + y * (e * r * r));
  }
  __device__ __forceinline__ static T sigmoid_backward(T x, T y) { return x * (y * (T(1) - y)); }
  __device__ __forceinline__ static T tanh_backward(T x, T y) { return x * ::fma(-y, y, T(1)); }
  // x sigmoid(y), whose numerator is taken as two factors, so that only the result may be denormal.
  __device__ __forceinline__ static T softplus_backward(T x, T y) {
    const T root = exp_of(-half * fabs(y));
    const T factor = y < T(0) ? root : T(1);
    return x * factor / ::fma(root, root, T(1)) * factor;
  }
  // e^x rounds to 0 for some finite x, and 0 * infinity is NaN. A small x is scaled, so that x / 2 is not denormal.
  __device__ __forceinline__ static T silu_mul(T x, T y) {
    const bool is_infinite = fabs(y) > largest && x >= -largest, is_small = fabs(x) < scale_down;
    const T result = gated(is_small ? x * (T(1) / scale_down) : x, x, y);
    return is_infinite ? x * y : is_small ? result * scale_down : result;
  }
  __device__ __forceinline__ static T logical_and(T x, T y) { return x != T(0) && y != T(0); }
  __device__ __forceinline__ static T logical_or(T x, T y) { return x != T(0) || y != T(0); }
  __device__ __forceinline__ static T logical_xor(T x, T y) { return (x != T(0)) != (y != T(0)); }
  // fmod() is exact, so x - fmod(x, y) is a multiple of y. The quotient is an integer except for two roundings, which
  // rint() removes if they are less than 1/2.
  __device__ __forceinline__ static T floor_divide(T x, T y) {
    if (y == T(0)) return x / y;
    const T rest = ::fmod(x, y);
    const T floored = ::rint((x - rest) / y - T(rest != T(0) && (rest < T(0)) != (y < T(0))));
    return floored == T(0) ? ::copysign(floored, x / y) : floored;
  }
  __device__ __forceinline__ static T remainder(T x, T y) {
    const T rest = ::fmod(x, y);
    if (rest == T(0)) return ::copysign(rest, y);
    return (rest < T(0)) != (y < T(0)) ? rest + y : rest;
  }
  __device__ __forceinline__ static T atan2(T x, T y) { return ::atan2(x, y); }
  __device__ __forceinline__ static T hypot(T x, T y) { return ::hypot(x, y); }
  __device__ __forceinline__ static T copysign(T x, T y) { return ::copysign(x, y); }
  // Equal infinities have no difference.
  __device__ __forceinline__ static T logaddexp(T x, T y) {
    const T difference = x == y ? T(0) : x - y;
    return nan_max(x, y) + ::log1p(::exp(-fabs(difference)));
  }

  __device__ __forceinline__ static T where(T x, T y, T z, T) { return x != T(0) ? y : z; }
  __device__ __forceinline__ static T clip_by(T x, T y, T z, T) { return nan_min(nan_max(x, y), z); }
  __device__ __forceinline__ static T fma(T x, T y, T z, T) { return ::fma(x, y, z); }
  __device__ __forceinline__ static T leaky_relu_backward(T x, T y, T z, T) { return y > T(0) ? x : z * x; }
  // e^y is taken as two factors, so that only the result may be denormal. elu_root() is such a factor, -1 for y > 0.
  __device__ __forceinline__ static T elu_root(T y) { return y > T(0) ? T(-1) : exp_of(half * y); }
  __device__ __forceinline__ static T elu_backward(T x, T root, T z) { return root < T(0) ? x : x * root * (z * root); }
  __device__ __forceinline__ static T elu_backward(T x, T y, T z, T) { return elu_backward(x, elu_root(y), z); }
  // Branches, not selections: they keep eight elements in 64 registers.
  __device__ __forceinline__ static T lerp(T x, T y, T z, T) {
    const T difference = y - x;
    if (!(fabs(difference) <= largest)) {
      const bool overflows = fabs(x) <= largest && fabs(y) <= largest;
      return ::fma(z, overflows ? y : difference, overflows ? ::fma(-z, x, x) : x);
    }
    const T result = ::fma(z, difference, x);
    if (!(fabs(result) <= largest)) return result;
    // Adds what the difference lost by rounding. If the terms nearly cancel, that is a large part of the result.
    const T minus_x = difference - y;
    return ::fma(z, (y - (difference - minus_x)) - (x + minus_x), result);
  }
  __device__ __forceinline__ static T add_multiply(T x, T y, T z, T a) {
    const T product = y * z;  // exact for 16 bits
    const bool is_in_range = fabs(product) >= least_normal && fabs(product) <= largest;
    if (is_in_range || y == T(0) || z == T(0) || nan_max(fabs(y), fabs(z)) > largest) return ::fma(a, product, x);
    // The product is out of range, and a may bring it back: its factors are scaled, and a twice in the other direction.
    const bool is_large = fabs(product) > T(1);
    const T scale = is_large ? scale_down : T(1) / scale_down, back = is_large ? T(1) / scale_down : scale_down;
    return ::fma(bounded(a * back, largest * scale_down) * back, (y * scale) * (z * scale), x);
  }

 protected:
  // bounded_below(x) * sigmoid(u) * y. sigmoid(u < 0) is e^u / (1 + e^u), whose numerator is taken as two factors, so
  // that only the result may be denormal.
  __device__ __forceinline__ static T gated(T x, T u, T y) {
    if constexpr (std::is_same_v<T, float>) {
      // The approximations have errors of 2^-22 and 2^-23, and the exponent one of 2^-24 of itself: 7.5 + |u| units in
      // all. A root below 2^-100 is scaled so that it is not denormal. Its denominator is 1.
      const float exponent = fabsf(u) * -0.72134752f;
      const bool is_scaled = exponent < -100.0f;
      const float root = exp2_approx_ftz(is_scaled ? exponent + 32.0f : exponent);
      const float factor = u < 0.0f ? root : 1.0f;
      const float result = bounded_below(x) * factor * reciprocal_approx_ftz(fmaf(root, root, 1.0f)) * (factor * y);
      return is_scaled && u < 0.0f ? result * 0x1p-64f : result;
    } else {
      const T root = exp_of(-half * fabs(u));
      const T factor = u < T(0) ? root : T(1);
      return bounded_below(x) * factor / ::fma(root, root, T(1)) * (factor * y);
    }
  }
  // x Phi(x) = -phi(x) (1 - w + 3 w^2 - 15 w^3 + ...), w = 1 / x^2, for x < -36. Phi(x) may be denormal there, so
  // phi(x) is taken as two factors. The first term that is left out is 10395 w^6, 5e-15.
  __device__ __forceinline__ static T small_gelu(T x) {
    const T w = T(1) / (x * x), root = exp_of(T(-0.25) * x * x);
    const T series = polynomial(w, T(-945), T(105), T(-15), T(3), T(-1), T(1));
    return -inverse_sqrt_2pi * series * root * root;
  }
  __device__ __forceinline__ static T normcdf_of(T x) {
    if constexpr (std::is_same_v<T, float>)
      return normcdff(x);
    else
      return normcdf(x);
  }
  // 2 u = 2 sqrt(2 / pi) (x + 0.044715 x^3)
  __device__ __forceinline__ static T gelu_tanh_argument(T x) {
    return x * ::fma(two_sqrt_2_over_pi * cubic, x * x, two_sqrt_2_over_pi);
  }
};

template <>
struct Formulas<double, false> : FloatFormulas<double, false> {};
template <>
struct Formulas<float, false> : FloatFormulas<float, false> {
  // Q(z) = Phi(-z) for 0 <= z <= tail_end, as bell(z) * tail_over_bell(z): e^(-z^2 / 2) times a polynomial in
  // 1 / (1 + 0.35 z), fitted with a relative error of 3.2e-8. Rounded, gelu is within 0.5 of its bound, 8 + 2 x^2
  // units.
  static constexpr float tail_end = 14.6f;  // gelu is 0 there
  __device__ __forceinline__ static float bell(float z) { return exp2_approx(z * z * -0.72134752f); }
  __device__ __forceinline__ static float tail_over_bell(float z) {
    const float t = reciprocal_approx_ftz(fmaf(0.35f, z, 1.0f));
    const float p = polynomial(t, -0.029159496f, 0.14403889f, -0.2558558f, 0.15933926f, -0.023226134f, 0.10555848f,
                               0.11981973f, 0.13986373f, 0.13962129f);
    return p * t;
  }
  // max(x, 0) - |x| Q(|x|)
  __device__ __forceinline__ static float gelu(float x, float, float) {
    const float z = fminf(fabsf(x), tail_end);
    return fmaf(-z * tail_over_bell(z), bell(z), nan_max(x, 0.0f));
  }
  __device__ __forceinline__ static float gelu_backward(float x, float y) {
    y = bounded(y, tail_end);
    const float z = fabsf(y), density = bell(z), tail = tail_over_bell(z) * density;
    return x * fmaf(y, inverse_sqrt_2pi * density, y < 0.0f ? tail : 1.0f - tail);
  }
};

}  // namespace flowk::elementwise
