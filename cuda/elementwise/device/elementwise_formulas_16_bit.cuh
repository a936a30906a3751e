// SPDX-License-Identifier: Apache-2.0
// Formulas<float, true>: results of 16 bits or fewer. They use a hardware approximation if the result is provably
// within 1 ulp of the correctly rounded one:
//   relative errors (PTX ISA): ex2.approx 2^-22, rcp.approx and sqrt.approx 2^-23, tanh.approx 2^-11; lg2.approx 2^-22
//   absolute near 1, which is less than 2^-11 of the least nonzero |log2 x| of a float16, 7.0e-4.
//   A relative error below 2^-11 is less than 1 ulp of a float16 before rounding, so at most 1 ulp after it.
#pragma once

#include "elementwise/device/elementwise_formulas.cuh"

namespace flowk::elementwise {

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
    const float p = polynomial(z, -3.53905648e-07f, 1.96392048e-05f, -0.000454461755f, 0.00579052791f, -0.0459147356f,
                               -0.469886273f, -1.14514303f, -1.00053167f + 24.0f);
    return exp2_approx_ftz(p);
  }

  // Q(z), for the slope of gelu. Its absolute error is 1.3e-6. Up to z = 1.5 that of log2 Q is 4e-6.
  __device__ __forceinline__ static float close_tail(float z) {
    const float p = polynomial(z, 1.72331906e-11f, 4.570839e-08f, -2.69909015e-06f, 6.71607922e-05f, -0.000943148741f,
                               0.00850279257f, -0.0539041087f, -0.458528221f, -1.15123057f, -0.999996185f);
    return exp2_approx_ftz(p);
  }

  // 1.5 * 2^23. x + rounding is rounded to an integer, and the sum's last bit is that integer's.
  static constexpr float rounding = 12582912.0f;
  static constexpr float inverse_pi = 0.318309886183790672f;
  // For larger |x| the multiples of pi below would have too many bits.
  static constexpr float largest_reduced = 100000.0f;
  // sin(x - k pi) for |x - k pi| <= pi / 2. pi is the sum of two floats, so that the first difference is exact. The
  // series has an error of 1e-6.
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

  // 2^(y log2 |x|). Its relative error is the absolute one of y log2 |x|: 2^-18 if the result is finite. An odd y keeps
  // x's sign. For x < 0 only integer powers are real.
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
    return fmaf(-z, scaled_tail(z) * tail_scale, nan_max(x, 0.0f));
  }
  // The difference e^x - 1 loses 7 of 21 bits at -2^-7. Nearer to 0 the series has an error of x^2 / 6, less than
  // 2^-16.
  __device__ __forceinline__ static float elu(float x, float a, float) {
    const float series = x * fmaf(0.5f, x, 1.0f);
    const float below = fabsf(x) < 0.0078125f ? series : exp2_approx(x * log2_e) - 1.0f;
    return x > 0.0f ? x : a * below;
  }
  // max(x, 0) + log(1 + e), e = e^-|x|. The absolute error of log is 2^-22, or 2^-15 of its value if e >= 2^-7. For a
  // smaller e the error of the series is e^2 / 3, less than 2^-15.
  __device__ __forceinline__ static float softplus(float x, float, float) {
    const float e = exp2_approx(-fabsf(x) * log2_e);
    return nan_max(x, 0.0f) + (e < 0.0078125f ? e * fmaf(-0.5f, e, 1.0f) : __logf(1.0f + e));
  }

  __device__ __forceinline__ static float gelu_backward(float x, float y) {
    constexpr float log2_inverse_sqrt_2pi = -1.3257480647361593f;
    y = bounded(y, tail_end);
    const float tail = close_tail(fabsf(y));
    const float density = exp2_approx_ftz(fmaf(y * y, -half * log2_e, log2_inverse_sqrt_2pi));
    return x * fmaf(y, density, y < 0.0f ? tail : 1.0f - tail);
  }
  __device__ __forceinline__ static float gelu_tanh_backward(float x, float y) {
    y = bounded(y, 40.0f);
    const float square = y * y;
    const float e =
        exp2_approx_ftz(-fabsf(y * fmaf(two_sqrt_2_over_pi * cubic * log2_e, square, two_sqrt_2_over_pi * log2_e)));
    const float r = reciprocal_approx_ftz(1.0f + e);
    const float er = e * r;
    const float slope = y * fmaf(3.0f * cubic * two_sqrt_2_over_pi, square, two_sqrt_2_over_pi);
    return x * fmaf(slope, er * r, y < 0.0f ? er : r);
  }
  __device__ __forceinline__ static float silu_backward(float x, float y) {
    y = bounded(y, 1000.0f);
    const float e = exp2_approx_ftz(-fabsf(y) * log2_e);
    const float r = reciprocal_approx_ftz(1.0f + e);
    const float er = e * r;
    return x * fmaf(y, er * r, y < 0.0f ? er : r);
  }
  __device__ __forceinline__ static float softplus_backward(float x, float y) {
    const float root = exp2_approx_ftz(fabsf(y) * (-half * log2_e));
    const float factor = y < 0.0f ? root : 1.0f;
    return x * factor * reciprocal_approx_ftz(fmaf(root, root, 1.0f)) * factor;
  }
  __device__ __forceinline__ static float silu_mul(float x, float y) {
    float out[1];
    silu_mul(out, {x}, {y});
    return out[0];
  }
  // The same for a pack, with one rare branch if an x is below -80: silu is then near the least normal float, and y may
  // raise it. There e^x is taken as two factors, so that only the result may be denormal, and 1 + e^x is 1.
  template <int kN>
  __device__ __forceinline__ static void silu_mul(float (&out)[kN], const float (&x)[kN], const float (&y)[kN]) {
    constexpr float bound = -80.0f;
    bool has_small = false;
#pragma unroll
    for (int i = 0; i < kN; ++i) has_small |= x[i] < bound;
    const auto result = [&](int i) {
      return x[i] * (reciprocal_approx_ftz(1.0f + exp2_approx_ftz(x[i] * -log2_e)) * y[i]);
    };
    if (has_small) {
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        const float root = exp2_approx(x[i] * (half * log2_e));
        const float product = bounded_below(x[i]) * root * (root * y[i]);
        const float of_infinity = x[i] - x[i] - y[i];  // if the root is 0; for x = -infinity it is NaN
        out[i] = x[i] < bound ? (product != product ? of_infinity : product) : result(i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kN; ++i) out[i] = result(i);
    }
  }
};

}  // namespace flowk::elementwise
