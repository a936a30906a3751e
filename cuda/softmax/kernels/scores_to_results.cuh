// SPDX-License-Identifier: Apache-2.0
// Softmax of scores that the threads of a row hold in registers, for short rows.
#pragma once

#include "softmax/kernels/softmax_results.cuh"

namespace flowk::softmax {

// 2^t for t <= 0.1 or NaN, to 0.8 units in the last place. 2^t = 2^n * p(r) with t = n + r; for n = -127, below the
// least normal number, the power of 2 is 0.
__device__ __forceinline__ float power_of_2_of(float exponent) {
  const float t = at_least(exponent, -127.0f);
  const float shifted = t + 12583039.0f;  // 1.5 * 2^23 + 127: n + 127 is in the low bits
  const float r = t - (shifted - 12583039.0f);
  float p = 0x1.417a9cp-13f;
  p = fmaf(p, r, 0x1.5f0948p-10f);
  p = fmaf(p, r, 0x1.3b2dd2p-7f);
  p = fmaf(p, r, 0x1.c6af7ap-5f);
  p = fmaf(p, r, 0x1.ebfbdcp-3f);
  p = fmaf(p, r, 0x1.62e430p-1f);
  p = fmaf(p, r, 1.0f);
  return p * __uint_as_float(__float_as_uint(shifted) << 23);  // a product: NaN stays
}

// A row's sum of exponentials. Its log-sum-exp is largest score * scale + log(sum) - excess.
template <class T>
struct ScoreSum {
  RowValue<T> sum;
  float excess;
};

// The factor of scores in their exponents: the call's scale, or 1 if scores are scaled already, in the exponent's base.
struct ScoreFactor {
  const SoftmaxParams& params;
  bool is_scaled;
  // In base 2 for Base = Float16, in base e for float.
  template <class Base>
  __device__ __forceinline__ float of_base() const {
    return is_scaled ? static_cast<float>(base_per_natural<Base>) : exponent_scale<Base, SoftmaxMask::none>(params);
  }
};

// Exponents of scores: score * scale - shift in one fma. `shift` is rounded down, so that the largest exponent is >= 0.
// Its rounding error is the same in the whole row, and cancels while it is small. If it is not, the largest score is
// subtracted from each score first. That difference may overflow: its exponential is then 0. Logarithms need a finite
// number, and take half of the difference, which is always finite.
template <bool kIsLog, class A = float>
struct ScoreExponents {
  static constexpr bool is_log = kIsLog;
  A reference;
  A scale;
  A shift;
  A largest = 0;  // the exponent of the largest score
  bool is_far;    // from 0

  __device__ __forceinline__ ScoreExponents(A largest_score, A score_scale)
      : reference(largest_score == negative_infinity<A>() ? A{0} : largest_score),
        scale(score_scale),
        shift(__fmul_rd(reference, scale)),
        is_far(!(fabsf(shift) < 0x1p20f)) {
    if (!is_far) {
      largest = fmaf(reference, scale, -shift);
    } else {
      if (kIsLog) scale *= 2;
      shift = 0;
    }
  }
  // Subtracts the largest score, if it is far from 0; called once per score.
  __device__ __forceinline__ A near(A score) const {
    return kIsLog ? fmaf(score, 0.5f, -0.5f * reference) : score - reference;
  }
  __device__ __forceinline__ A operator()(A near_score) const { return fmaf(near_score, scale, -shift); }
};

// Exponentials, and results from a row's sum. Logarithms: the result is the exponent plus a term. In base 2 an exponent
// of bfloat16 could overflow although the result does not; one of float16 cannot.
template <class T, bool kIsLog>
struct ScoreResults {
  using Base = std::conditional_t<!kIsLog || std::is_same_v<T, Float16>, Float16, float>;
  static constexpr float natural = static_cast<float>(natural_per_base<Base>);

  static __device__ __forceinline__ float exponential_of(float z) {
    if constexpr (kIsLog)
      return exponential<T>(z * static_cast<float>(base_per_natural<T> / base_per_natural<Base>));
    else if constexpr (sizeof(T) == 2)
      return exponential<Float16>(z);
    else
      return power_of_2_of(z);
  }
  // If only one column has an exponential p > 0, its result is exactly 1, because p is in 1 ... 1.125, and p times the
  // float32 next to (1 + 2^-26) / p is within 2^-25 below 1 and 2^-24 above it. If only one column has a score above
  // -infinity, its logarithm is exactly 0.
  static __device__ __forceinline__ ResultFactors<T> factors_of(RowValue<T> sum, float largest_exponent) {
    if constexpr (!kIsLog) return {false, sum * static_cast<RowValue<T>>(1 - 0x1p-26), 0.0f};
    ResultFactors<T> factors(true, sum, natural);
    if (sum < 1.125f && sum == exponential_of(largest_exponent)) factors.term = -largest_exponent * factors.factor;
    return factors;
  }
};

// Replaces a thread's scores by the results. `largest` is the row's largest score. sum_over_row() adds a value over the
// row's threads; its second argument is the exponent of the largest score, in base 2 unless results are logarithms.
// Values are taken kStep at a time, up to the first i for which has(i) is false.
template <class T, int kStep, class Factor, class SumOverRow, class Has, int kCount>
__device__ __forceinline__ ScoreSum<T> scores_to_results(const SoftmaxParams& params, const Factor& factor,
                                                         float largest, SumOverRow sum_over_row, Has has,
                                                         float (&values)[kCount]) {
  static_assert(kCount % kStep == 0);
  ScoreSum<T> row;
  ResultFactors<T> result;
  const auto raise = [&](auto kind) {
    constexpr bool is_log = decltype(kind)::value;
    using Results = ScoreResults<T, is_log>;
    const ScoreExponents<is_log> exponents(largest, factor.template of_base<typename Results::Base>());
    if (exponents.is_far) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (!has(i)) break;
        values[i] = exponents.near(values[i]);
      }
    }
    ThreadSum<T> thread_sum;
#pragma unroll
    for (int i = 0; i < kCount; i += kStep) {
      if (!has(i)) break;
      float p[kStep];
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        const float z = exponents(values[i + j]);
        p[j] = Results::exponential_of(z);
        values[i + j] = is_log ? z : p[j];
      }
      if constexpr (kStep > 1)
        thread_sum.take(p);
      else
        thread_sum.take_one(p[0]);
    }
    row.sum = sum_over_row(thread_sum.total(), exponents.largest);
    row.excess = exponents.largest * Results::natural;
    result = Results::factors_of(row.sum, exponents.largest);
  };
  if (params.log_softmax)
    raise(std::true_type{});
  else
    raise(std::false_type{});
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (!has(i)) break;
    values[i] = values[i] * result.factor + result.term;
  }
  return row;
}

}  // namespace flowk::softmax
