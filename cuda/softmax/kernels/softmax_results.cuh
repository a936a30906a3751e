// SPDX-License-Identifier: Apache-2.0
// A row's sum of exponentials, and the results from its largest score and that sum.
#pragma once

#include "softmax/kernels/softmax_reduce.cuh"

namespace flowk::softmax {

// A thread's sum of values between 0 and kLargest. In float32 it also sums the rounding error of every addition: `high`
// starts at kLargest, so it is never the smaller operand and the error is exact (Dekker's fast two-sum). Three more
// additions per value keep a row's largest result within 2 units in the last place.
template <class T, int kLargest = 1>
struct ThreadSum {
  using A = ComputeType<T>;
  A high = std::is_same_v<T, float> ? kLargest : 0;
  A low = 0;

  template <int kWidth>
  __device__ __forceinline__ void take(A (&values)[kWidth]) {
    if constexpr (std::is_same_v<T, float>) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) take_one(values[j]);
    } else {
#pragma unroll
      for (int step = kWidth / 2; step > 0; step /= 2)
#pragma unroll
        for (int j = 0; j < step; ++j) values[j] += values[j + step];
      high += values[0];
    }
  }
  __device__ __forceinline__ void take_one(A value) {
    if constexpr (std::is_same_v<T, float>) {
      const A sum = high + value;
      low += value - (sum - high);
      high = sum;
    } else {
      high += value;
    }
  }
  __device__ __forceinline__ RowValue<T> total() const {
    if constexpr (std::is_same_v<T, float>)
      return static_cast<double>(high - static_cast<float>(kLargest)) + static_cast<double>(low);
    else
      return high;
  }
};

// The result in a row with an unmasked NaN: NaN if the column is unmasked, else 0 (log: -infinity). Such rows are rare:
// the mask is read again, so that no thread holds it in registers.
template <class A, SoftmaxMask kMask>
__device__ __forceinline__ A result_with_nan(const SoftmaxParams& params, const SoftmaxRow& row, int column) {
  const A infinity = negative_infinity<A>();
  return is_unmasked<kMask>(row, column) ? infinity - infinity : params.log_softmax ? infinity : A{0};
}

// Writes the results of such a row for columns first, first + step, ... < end.
template <class T, SoftmaxMask kMask, bool kConverts = false>
__device__ __forceinline__ void store_nan_columns(const SoftmaxParams& params, const SoftmaxRow& row, int first,
                                                  int end, int step) {
  const RowOutput<T, kConverts> output{params};
#pragma unroll 1
  for (int column = first; column < end; column += step)
    output.store_column(row.out, column, result_with_nan<ComputeType<T>, kMask>(params, row, column));
}

// A thread's running maximum and sum: max = largest score so far, sum = sum of exp((score - max) * scale).
template <class T, SoftmaxMask kMask>
struct RunningSum {
  using A = ComputeType<T>;
  using E = RowValue<T>;
  A scale;
  A max = negative_infinity<A>();
  E sum = 0;
  // score -> (score - max) * scale; the reference is 0 while there is no maximum.
  __device__ __forceinline__ ScoreScale<T, kMask> to_exponent() const {
    return {max == negative_infinity<A>() ? A{0} : max, scale};
  }
  __device__ __forceinline__ void raise(A other) {
    if (!(other > max)) return;
    if (sum != E{0}) sum *= exponential<T>(to_exponent().to_reference(other));
    max = other;
  }
};

// 1 / value to 2^-44, for a value from 2^-126 to 2^126.
__device__ __forceinline__ double inverse_of(double value) {
  const double inverse = static_cast<double>(__fdividef(1.0f, static_cast<float>(value)));
  return fma(inverse, fma(-value, inverse, 1.0), inverse);
}
// value / sum and log(sum) for a finite sum >= 1. Results from a double sum are rounded to float once.
template <class A>
__device__ __forceinline__ A quotient_of(A value, double sum) {
  if constexpr (sizeof(A) == 8) return value / sum;
  return static_cast<A>(static_cast<double>(value) * inverse_of(sum));
}
template <class A>
__device__ __forceinline__ A quotient_of(A value, float sum) {
  return value * reciprocal_of(sum);
}
template <class A>
__device__ __forceinline__ A log_of(double sum) {
  if constexpr (sizeof(A) == 8) return log(sum);
  const float rounded = static_cast<float>(sum);
  return logf(rounded) + __fdividef(static_cast<float>(sum - static_cast<double>(rounded)), rounded);
}
template <class A>
__device__ __forceinline__ A log_of(float sum) {
  return logf(sum);
}

// Results of exponents z relative to the row's largest score: y = exp(z) * factor; with log_softmax y = difference *
// factor + term, see ScoreScale. A fully masked row has a sum of 0; its results are 0 or -infinity.
template <class T>
struct ResultFactors {
  using A = ComputeType<T>;
  A factor = 0;
  A term = 0;
  ResultFactors() = default;
  __device__ __forceinline__ ResultFactors(bool log_softmax, RowValue<T> sum, A log_factor) : factor(log_factor) {
    if (!log_softmax)
      factor = sum == RowValue<T>{0} ? A{0} : quotient_of(A{1}, sum);
    else if (sum != RowValue<T>{0})
      term = -log_of<A>(sum);
  }
};

// The factor that turns exponentials relative to `max` into results. If max is -infinity, all exponentials are 0, and
// the results are NaN only if the sum is.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ ComputeType<T> factor_of_exponentials(ComputeType<T> max,
                                                                 const ScoreScale<T, kMask>& to_row_exponent,
                                                                 RowValue<T> sum) {
  using A = ComputeType<T>;
  if (max == negative_infinity<A>()) return A{0} * static_cast<A>(sum);
  const ScoreScale<T, kMask> to_exponent(max, to_row_exponent.scale);
  return quotient_of(exponential<T>(to_exponent.to_reference(to_row_exponent.reference)), sum);
}

// A row's results from its largest score and its sum of exponentials.
template <class T, SoftmaxMask kMask>
struct RowResults {
  using A = ComputeType<T>;
  ScoreScale<T, kMask> to_exponent;
  ResultFactors<T> factors;
  bool log_softmax;
  __device__ __forceinline__ RowResults(const SoftmaxParams& params, const RowPartial<T>& row)
      : to_exponent(row.max == negative_infinity<A>() ? A{0} : row.max, exponent_scale<T, kMask>(params)),
        factors(params.log_softmax, row.sum, to_exponent.log_factor()),
        log_softmax(params.log_softmax) {}
  __device__ __forceinline__ A of(A score) const {
    const A difference = to_exponent.difference(score);
    return log_softmax ? difference * factors.factor + factors.term
                       : exponential<T>(to_exponent.exponent(difference)) * factors.factor;
  }
  __device__ __forceinline__ A of(const A (&inputs)[1]) const { return of(inputs[0]); }
  __device__ __forceinline__ A of_column(const SoftmaxRow&, int, const A (&inputs)[1]) const { return of(inputs[0]); }
  __device__ __forceinline__ void of_vector(const SoftmaxRow&, int, const uint4 (&inputs)[1],
                                            A (&y)[vector_width<T>]) const {
    widen_vector<T>(inputs[0], y);
#pragma unroll
    for (int j = 0; j < vector_width<T>; ++j) y[j] = of(y[j]);
  }
};

// A vector's results from what a thread holds of it: its exponentials, or its scores.
enum class HeldAs { exponentials, scores, scores_for_logarithms };

template <HeldAs kHeldAs, class T, SoftmaxMask kMask>
__device__ __forceinline__ void vector_results(const uint4& vector, const ScoreScale<T, kMask>& to_exponent,
                                               const ResultFactors<T>& factors, ComputeType<T> (&y)[vector_width<T>]) {
  widen_vector<T>(vector, y);
#pragma unroll
  for (int j = 0; j < vector_width<T>; ++j)
    y[j] = kHeldAs == HeldAs::exponentials ? y[j] * factors.factor
           : kHeldAs == HeldAs::scores     ? exponential<T>(to_exponent(y[j])) * factors.factor
                                           : to_exponent.difference(y[j]) * factors.factor + factors.term;
}

}  // namespace flowk::softmax
