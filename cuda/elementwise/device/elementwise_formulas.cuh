// SPDX-License-Identifier: Apache-2.0
// The formulas of flowk/elementwise_ops.h by their names: Formulas<T, kNarrow>::name(...). T is the type that is
// computed in: float, double, int32_t or int64_t. kNarrow: the result has 16 bits or fewer. Formulas then use a
// hardware approximation if the result is provably within 1 ulp of the correctly rounded one:
//   relative errors (PTX ISA): ex2.approx 2^-22, rcp.approx and sqrt.approx 2^-23, tanh.approx 2^-11; lg2.approx 2^-22
//   absolute near 1, which is less than 2^-11 of the least nonzero |log2 x| of a float16, 7.0e-4.
//   A relative error below 2^-11 is less than 1 ulp of a float16 before rounding, so at most 1 ulp after it.
#pragma once

#include <type_traits>

#include "flowk/detail/target.cuh"

namespace flowk::elementwise {

// Hardware approximations; the executor computes them exactly.
#ifdef FLOWK_SIMT
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
FLOWK_APPROXIMATION(exp2_approx, "ex2.approx.f32", exp2f(x))          // denormal results are kept
FLOWK_APPROXIMATION(exp2_approx_ftz, "ex2.approx.ftz.f32", exp2f(x))  // denormal results are 0
FLOWK_APPROXIMATION(reciprocal_approx, "rcp.approx.f32", 1.0f / x)
FLOWK_APPROXIMATION(reciprocal_approx_ftz, "rcp.approx.ftz.f32", 1.0f / x)
FLOWK_APPROXIMATION(sqrt_approx, "sqrt.approx.f32", sqrtf(x))
FLOWK_APPROXIMATION(tanh_approx, "tanh.approx.f32", tanhf(x))
#undef FLOWK_APPROXIMATION

// The larger and the smaller of two numbers; NaN if one is NaN.
template <class T>
__device__ __forceinline__ T maximum(T x, T y) {
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
__device__ __forceinline__ T minimum(T x, T y) {
#ifndef FLOWK_SIMT
  if constexpr (std::is_same_v<T, float>) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
  }
#endif
  return x < y || x != x ? x : y;
}

// Integers, modulo 2^bits. T is signed. For unsigned values of T's width `sign_flip` is the sign bit, so that
// x ^ sign_flip has the order of x; else it is 0. kNarrow: no element type has T's width.
template <class T, bool kNarrow>
struct Formulas {
  using U = std::make_unsigned_t<T>;
  T sign_flip;
  __device__ __forceinline__ bool is_unsigned() const { return !kNarrow && sign_flip != 0; }
  __device__ __forceinline__ T ordered(T x) const { return kNarrow ? x : x ^ sign_flip; }

  __device__ __forceinline__ T copy(T x, T, T) const { return x; }
  __device__ __forceinline__ T abs(T x, T, T) const { return x < T{0} && !is_unsigned() ? neg(x, 0, 0) : x; }
  __device__ __forceinline__ T neg(T x, T, T) const { return static_cast<T>(U{0} - static_cast<U>(x)); }
  __device__ __forceinline__ T square(T x, T, T) const { return mul(x, x); }
  __device__ __forceinline__ T relu(T x, T, T) const { return max(x, T{0}); }
  __device__ __forceinline__ T clamp(T x, T a, T b) const { return min(max(x, a), b); }
  __device__ __forceinline__ T scale(T x, T a, T b) const { return add(mul(a, x), b); }
  __device__ __forceinline__ T logical_not(T x, T, T) const { return x == T{0}; }

  __device__ __forceinline__ T add(T x, T y) const { return static_cast<T>(static_cast<U>(x) + static_cast<U>(y)); }
  __device__ __forceinline__ T sub(T x, T y) const { return static_cast<T>(static_cast<U>(x) - static_cast<U>(y)); }
  __device__ __forceinline__ T mul(T x, T y) const { return static_cast<T>(static_cast<U>(x) * static_cast<U>(y)); }
  __device__ __forceinline__ T div(T x, T y) const {
    if constexpr (kNarrow) {
      // (|x| + 1/2) / |y| is at least 1 / 2|y| from an integer, which is 2^-17 of it: more than the two errors of
      // 2^-23.
      const float biased = static_cast<float>(x) + (x < T{0} ? -0.5f : 0.5f);
      const float quotient = biased * reciprocal_approx_ftz(static_cast<float>(y));
      return static_cast<T>(y == T{0} ? 0.0f : quotient);
    }
    if (y == T{0}) return T{0};
    if (is_unsigned()) return static_cast<T>(static_cast<U>(x) / static_cast<U>(y));
    return y == static_cast<T>(-1) ? neg(x, 0, 0) : x / y;
  }
  __device__ __forceinline__ T min(T x, T y) const { return ordered(x) < ordered(y) ? x : y; }
  __device__ __forceinline__ T max(T x, T y) const { return ordered(x) > ordered(y) ? x : y; }
  __device__ __forceinline__ T equal(T x, T y) const { return x == y; }
  __device__ __forceinline__ T not_equal(T x, T y) const { return x != y; }
  __device__ __forceinline__ T less(T x, T y) const { return ordered(x) < ordered(y); }
  __device__ __forceinline__ T less_equal(T x, T y) const { return ordered(x) <= ordered(y); }
  __device__ __forceinline__ T greater(T x, T y) const { return ordered(x) > ordered(y); }
  __device__ __forceinline__ T greater_equal(T x, T y) const { return ordered(x) >= ordered(y); }
  __device__ __forceinline__ T bitwise_and(T x, T y) const { return x & y; }
  __device__ __forceinline__ T bitwise_or(T x, T y) const { return x | y; }
  __device__ __forceinline__ T bitwise_xor(T x, T y) const { return x ^ y; }

  __device__ __forceinline__ T fma(T x, T y, T z, T) const { return add(mul(x, y), z); }
  __device__ __forceinline__ T where(T x, T y, T z, T) const { return x != T{0} ? y : z; }
  __device__ __forceinline__ T clamp_by(T x, T y, T z, T) const { return min(max(x, y), z); }
  __device__ __forceinline__ T add_multiply(T x, T y, T z, T a) const { return add(x, mul(a, mul(y, z))); }
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

  // sigmoid(x) = numerator / denominator; neither overflows, and small results stay exact.
  struct Fraction {
    T numerator, denominator;
  };
  __device__ __forceinline__ static Fraction sigmoid_fraction(T x) {
    const T e = exp_of(-fabs(x));
    return {x < T(0) ? e : T(1), T(1) + e};
  }
  // max(x, the least finite number), because -infinity * 0 is NaN.
  __device__ __forceinline__ static T bounded_below(T x) { return maximum(x, -largest); }
  __device__ __forceinline__ static T bounded(T x, T bound) { return minimum(maximum(x, -bound), bound); }

  __device__ __forceinline__ static T copy(T x, T, T) { return x; }
  __device__ __forceinline__ static T relu(T x, T, T) { return maximum(x, T(0)); }
  __device__ __forceinline__ static T clamp(T x, T a, T b) { return minimum(maximum(x, a), b); }
  __device__ __forceinline__ static T logical_not(T x, T, T) { return x == T(0); }
  __device__ __forceinline__ static T abs(T x, T, T) { return fabs(x); }
  __device__ __forceinline__ static T neg(T x, T, T) { return -x; }
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
  __device__ __forceinline__ static T sigmoid(T x, T, T) {
    const Fraction f = sigmoid_fraction(x);
    return f.numerator / f.denominator;
  }
  __device__ __forceinline__ static T leaky_relu(T x, T a, T) { return x > T(0) ? x : a * x; }
  __device__ __forceinline__ static T elu(T x, T a, T) { return x > T(0) ? x : a * ::expm1(x); }
  __device__ __forceinline__ static T gelu(T x, T, T) { return bounded_below(x) * normcdf_of(x); }
  // (1 + tanh(u)) / 2 = sigmoid(2 u)
  __device__ __forceinline__ static T gelu_tanh(T x, T, T) { return gated(x, gelu_tanh_argument(x), T(1)); }
  __device__ __forceinline__ static T silu(T x, T, T) { return gated(x, x, T(1)); }
  __device__ __forceinline__ static T softplus(T x, T, T) { return maximum(x, T(0)) + ::log1p(exp_of(-fabs(x))); }
  __device__ __forceinline__ static T floor(T x, T, T) { return ::floor(x); }
  __device__ __forceinline__ static T ceil(T x, T, T) { return ::ceil(x); }
  __device__ __forceinline__ static T round(T x, T, T) { return ::rint(x); }
  __device__ __forceinline__ static T scale(T x, T a, T b) { return ::fma(a, x, b); }
  __device__ __forceinline__ static T is_nan(T x, T, T) { return x != x; }

  __device__ __forceinline__ static T min(T x, T y) { return minimum(x, y); }
  __device__ __forceinline__ static T max(T x, T y) { return maximum(x, y); }
  __device__ __forceinline__ static T equal(T x, T y) { return x == y; }
  __device__ __forceinline__ static T not_equal(T x, T y) { return x != y; }
  __device__ __forceinline__ static T less(T x, T y) { return x < y; }
  __device__ __forceinline__ static T less_equal(T x, T y) { return x <= y; }
  __device__ __forceinline__ static T greater(T x, T y) { return x > y; }
  __device__ __forceinline__ static T greater_equal(T x, T y) { return x >= y; }
  __device__ __forceinline__ static T add(T x, T y) { return x + y; }
  __device__ __forceinline__ static T sub(T x, T y) { return x - y; }
  __device__ __forceinline__ static T mul(T x, T y) { return x * y; }
  __device__ __forceinline__ static T div(T x, T y) { return x / y; }
  __device__ __forceinline__ static T pow(T x, T y) {
    return y == T(0) || x == T(1) ? T(1) : ::pow(x, y);  // of a signaling NaN too
  }
  __device__ __forceinline__ static T relu_grad(T x, T y) { return y > T(0) ? x : T(0); }
  // Phi(y) + y phi(y); past +-40 the limits.
  __device__ __forceinline__ static T gelu_grad(T x, T y) {
    y = bounded(y, T(40));
    return x * (normcdf_of(y) + y * (inverse_sqrt_2pi * exp_of(-half * y * y)));
  }
  // With s = sigmoid(2 u) and s (1 - s) = e / (1 + e)^2: s + y s (1 - s) (2 u)'; past +-40 the limits.
  __device__ __forceinline__ static T gelu_tanh_grad(T x, T y) {
    y = bounded(y, T(40));
    const T e = exp_of(-fabs(gelu_tanh_argument(y)));
    const T r = T(1) / (T(1) + e);
    const T slope = two_sqrt_2_over_pi * (T(1) + T(3) * cubic * y * y);
    return x * ((y < T(0) ? e * r : r) + y * slope * (e * r * r));
  }
  // s + y s (1 - s); past +-1000 the limits.
  __device__ __forceinline__ static T silu_grad(T x, T y) {
    y = bounded(y, T(1000));
    const T e = exp_of(-fabs(y));
    const T r = T(1) / (T(1) + e);
    return x * ((y < T(0) ? e * r : r) + y * (e * r * r));
  }
  __device__ __forceinline__ static T silu_mul(T x, T y) { return gated(x, x, y); }

  __device__ __forceinline__ static T where(T x, T y, T z, T) { return x != T(0) ? y : z; }
  __device__ __forceinline__ static T clamp_by(T x, T y, T z, T) { return minimum(maximum(x, y), z); }
  __device__ __forceinline__ static T fma(T x, T y, T z, T) { return ::fma(x, y, z); }
  // Branches, not selections: they keep eight elements in 64 registers.
  __device__ __forceinline__ static T lerp(T x, T y, T z, T) {
    const T difference = y - x;
    if (!(fabs(difference) <= largest)) {
      const bool overflows = fabs(x) <= largest && fabs(y) <= largest;
      return ::fma(z, overflows ? y : difference, overflows ? ::fma(-z, x, x) : x);
    }
    const T result = ::fma(z, difference, x);
    if (!(fabs(result) <= largest)) return result;
    // What the difference lost by rounding, which is much of a result that cancels.
    const T minus_x = difference - y;
    return ::fma(z, (y - (difference - minus_x)) - (x + minus_x), result);
  }
  __device__ __forceinline__ static T add_multiply(T x, T y, T z, T a) {
    const T product = y * z;  // exact for 16 bits
    const bool is_in_range = fabs(product) >= least_normal && fabs(product) <= largest;
    if (is_in_range || y == T(0) || z == T(0)) return ::fma(a, product, x);
    // The product is out of the range to which a may return it: its factors are scaled, and a twice the other way.
    const bool is_large = fabs(product) > T(1);
    const T scale = is_large ? scale_down : T(1) / scale_down, back = is_large ? T(1) / scale_down : scale_down;
    return ::fma(bounded(a * back, largest * scale_down) * back, (y * scale) * (z * scale), x);
  }

 protected:
  // bounded_below(x) * sigmoid(u) * y. sigmoid(u < 0) is e^u / (1 + e^u), whose numerator is taken as two factors, so
  // that only the result may be denormal.
  __device__ __forceinline__ static T gated(T x, T u, T y) {
    const T root = exp_of(-half * fabs(u));
    const T factor = u < T(0) ? root : T(1);
    return bounded_below(x) * factor / ::fma(root, root, T(1)) * (factor * y);
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
    float p = -0.029159496f;
    p = fmaf(p, t, 0.14403889f);
    p = fmaf(p, t, -0.2558558f);
    p = fmaf(p, t, 0.15933926f);
    p = fmaf(p, t, -0.023226134f);
    p = fmaf(p, t, 0.10555848f);
    p = fmaf(p, t, 0.11981973f);
    p = fmaf(p, t, 0.13986373f);
    p = fmaf(p, t, 0.13962129f);
    return p * t;
  }
  // max(x, 0) - |x| Q(|x|)
  __device__ __forceinline__ static float gelu(float x, float, float) {
    const float z = fminf(fabsf(x), tail_end);
    return fmaf(-z * tail_over_bell(z), bell(z), maximum(x, 0.0f));
  }
  __device__ __forceinline__ static float gelu_grad(float x, float y) {
    y = bounded(y, tail_end);
    const float z = fabsf(y), density = bell(z), tail = tail_over_bell(z) * density;
    return x * fmaf(y, inverse_sqrt_2pi * density, y < 0.0f ? tail : 1.0f - tail);
  }
};

// Results of 16 bits or fewer.
template <>
struct Formulas<float, true> : FloatFormulas<float, true> {
  static constexpr float log2_e = 1.4426950408889634f;

  // sigmoid(x) = 2^-60 / (2^-60 + 2^(-60 - x log2 e)): scaled so that the reciprocal is normal wherever the
  // result is; the approximation flushes denormals.
  __device__ __forceinline__ static float sigmoid_of_log2(float minus_x_log2_e_minus_60) {
    constexpr float scale = 8.673617379884035e-19f;  // 2^-60
    return reciprocal_approx_ftz(scale + exp2_approx_ftz(minus_x_log2_e_minus_60)) * scale;
  }
  // Q(z) = Phi(-z) for 0 <= z <= 14.2, times 2^24: 2^polynomial, fitted to log2 Q with an error of 5.4e-4, which is
  // 3.7e-4 of Q, to z = 6, where gelu is below a float16's least denormal, and of 3.6e-3 beyond.
  static constexpr float tail_end = 14.2f;
  static constexpr float tail_scale = 5.9604644775390625e-8f;  // 2^-24
  __device__ __forceinline__ static float scaled_tail(float z) {
    float p = -3.53905648e-07f;
    p = fmaf(p, z, 1.96392048e-05f);
    p = fmaf(p, z, -0.000454461755f);
    p = fmaf(p, z, 0.00579052791f);
    p = fmaf(p, z, -0.0459147356f);
    p = fmaf(p, z, -0.469886273f);
    p = fmaf(p, z, -1.14514303f);
    p = fmaf(p, z, -1.00053167f + 24.0f);
    return exp2_approx_ftz(p);
  }

  // Q(z) with an absolute error of 1.3e-6, as a summand of the slope of gelu: 4e-6 in log2 Q up to z = 1.5.
  __device__ __forceinline__ static float close_tail(float z) {
    float p = 1.72331906e-11f;
    p = fmaf(p, z, 4.570839e-08f);
    p = fmaf(p, z, -2.69909015e-06f);
    p = fmaf(p, z, 6.71607922e-05f);
    p = fmaf(p, z, -0.000943148741f);
    p = fmaf(p, z, 0.00850279257f);
    p = fmaf(p, z, -0.0539041087f);
    p = fmaf(p, z, -0.458528221f);
    p = fmaf(p, z, -1.15123057f);
    p = fmaf(p, z, -0.999996185f);
    return exp2_approx_ftz(p);
  }

  // 1.5 2^23: x + rounding is rounded to an integer, and its last bit is that integer's.
  static constexpr float rounding = 12582912.0f;
  static constexpr float inverse_pi = 0.318309886183790672f;
  // Beyond this the multiples of pi below have too many bits.
  static constexpr float largest_reduced = 100000.0f;
  // sin(x - k pi) of |x - k pi| <= pi / 2. pi is its float and the float of the rest, so that the first difference is
  // exact; the series errs by 1e-6.
  __device__ __forceinline__ static float sin_past(float x, float k) {
    const float r = fmaf(k, 8.74227766e-8f, fmaf(k, -3.14159274f, x));
    const float square = r * r;
    float p = fmaf(square, -0.000184879304f, 0.00831189286f);
    p = fmaf(square, p, -0.16665554f);
    return fmaf(square * r, p, r);
  }
  __device__ __forceinline__ static float negated_if_odd(float x, float rounded) {
    return __uint_as_float(__float_as_uint(x) ^ __float_as_uint(rounded) << 31);
  }
  // (-1)^k sin(x - k pi)
  __device__ __forceinline__ static float sin(float x, float, float) {
    if (fabsf(x) > largest_reduced) return sinf(x);
    const float rounded = fmaf(x, inverse_pi, rounding);
    const float k = rounded - rounding;
    return x == 0.0f ? x : negated_if_odd(sin_past(x, k), rounded);
  }
  // -(-1)^j sin(x - (j + 1/2) pi)
  __device__ __forceinline__ static float cos(float x, float, float) {
    if (fabsf(x) > largest_reduced) return cosf(x);
    const float rounded = fmaf(x, inverse_pi, -0.5f) + rounding;
    return -negated_if_odd(sin_past(x, rounded - rounding + 0.5f), rounded);
  }

  // 2^(y log2 |x|), whose error is that of y log2 |x|: 2^-18 where the result is finite. An odd y keeps x's sign;
  // for x < 0 only integer powers are real.
  __device__ __forceinline__ static float pow(float x, float y) {
    const float magnitude = x == 1.0f || y == 0.0f ? 1.0f : exp2_approx(bounded(y, largest) * log2f(fabsf(x)));
    if (!(__float_as_uint(x) >> 31)) return magnitude;
    constexpr float all_even = 4194304.0f;  // 2^22: all bfloat16 numbers from here on are even
    const float rounded = y + rounding;
    const bool is_even = fabsf(y) >= all_even;
    if (!is_even && rounded - rounding != y && x != 0.0f && fabsf(x) <= largest && y == y) return nan_value();
    const bool is_odd = !is_even && rounded - rounding == y && (__float_as_uint(rounded) & 1u) != 0;
    return is_odd ? -magnitude : magnitude;
  }
  __device__ __forceinline__ static float nan_value() { return __uint_as_float(0x7fc00000u); }

  __device__ __forceinline__ static float sqrt(float x, float, float) { return sqrt_approx(x); }
  __device__ __forceinline__ static float reciprocal(float x, float, float) { return reciprocal_approx(x); }
  __device__ __forceinline__ static float exp(float x, float, float) { return exp2_approx(x * log2_e); }
  __device__ __forceinline__ static float log(float x, float, float) { return __logf(x); }
  __device__ __forceinline__ static float tanh(float x, float, float) { return tanh_approx(x); }
  __device__ __forceinline__ static float sigmoid(float x, float, float) {
    return sigmoid_of_log2(fmaf(x, -log2_e, -60.0f));
  }
  __device__ __forceinline__ static float silu(float x, float, float) { return bounded_below(x) * sigmoid(x, 0, 0); }
  __device__ __forceinline__ static float gelu_tanh(float x, float, float) {
    constexpr float factor = -two_sqrt_2_over_pi * log2_e;
    return bounded_below(x) * sigmoid_of_log2(fmaf(x, fmaf(factor * cubic, x * x, factor), -60.0f));
  }
  // max(x, 0) - |x| Q(|x|)
  __device__ __forceinline__ static float gelu(float x, float, float) {
    const float z = fminf(fabsf(x), tail_end);
    return fmaf(-z, scaled_tail(z) * tail_scale, maximum(x, 0.0f));
  }
  // The difference e^x - 1 loses 7 bits of 21 at -2^-7; nearer to 0 the series errs by x^2 / 6, less than 2^-16.
  __device__ __forceinline__ static float elu(float x, float a, float) {
    const float series = x * fmaf(0.5f, x, 1.0f);
    const float below = fabsf(x) < 0.0078125f ? series : exp2_approx(x * log2_e) - 1.0f;
    return x > 0.0f ? x : a * below;
  }
  // max(x, 0) + log(1 + e), e = e^-|x|: log errs by 2^-22 absolute, 2^-15 of it from e = 2^-7 on; below that the series
  // errs by e^2 / 3, less than 2^-15.
  __device__ __forceinline__ static float softplus(float x, float, float) {
    const float e = exp2_approx(-fabsf(x) * log2_e);
    return maximum(x, 0.0f) + (e < 0.0078125f ? e * fmaf(-0.5f, e, 1.0f) : __logf(1.0f + e));
  }

  __device__ __forceinline__ static float gelu_grad(float x, float y) {
    constexpr float log2_inverse_sqrt_2pi = -1.3257480647361593f;
    y = bounded(y, tail_end);
    const float tail = close_tail(fabsf(y));
    const float density = exp2_approx_ftz(fmaf(y * y, -half * log2_e, log2_inverse_sqrt_2pi));
    return x * fmaf(y, density, y < 0.0f ? tail : 1.0f - tail);
  }
  __device__ __forceinline__ static float gelu_tanh_grad(float x, float y) {
    y = bounded(y, 40.0f);
    const float square = y * y;
    const float e =
        exp2_approx_ftz(-fabsf(y * fmaf(two_sqrt_2_over_pi * cubic * log2_e, square, two_sqrt_2_over_pi * log2_e)));
    const float r = reciprocal_approx_ftz(1.0f + e);
    const float er = e * r;
    const float slope = y * fmaf(3.0f * cubic * two_sqrt_2_over_pi, square, two_sqrt_2_over_pi);
    return x * fmaf(slope, er * r, y < 0.0f ? er : r);
  }
  __device__ __forceinline__ static float silu_grad(float x, float y) {
    y = bounded(y, 1000.0f);
    const float e = exp2_approx_ftz(-fabsf(y) * log2_e);
    const float r = reciprocal_approx_ftz(1.0f + e);
    const float er = e * r;
    return x * fmaf(y, er * r, y < 0.0f ? er : r);
  }
  // As gated(), because y may raise a result of silu that is below the least normal float.
  __device__ __forceinline__ static float silu_mul(float x, float y) {
    const float root = exp2_approx(fabsf(x) * (-half * log2_e));
    const float factor = x < 0.0f ? root : 1.0f;
    return bounded_below(x) * factor * reciprocal_approx_ftz(fmaf(root, root, 1.0f)) * (factor * y);
  }
};

}  // namespace flowk::elementwise
