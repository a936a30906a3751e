// SPDX-License-Identifier: Apache-2.0
// Sums of exponentials, the results that a row's maximum and sum make of its scores, and the terms of gradients.
#pragma once

#include "softmax/kernels/softmax_reduce.cuh"

namespace flowk::softmax {

// A thread's sum of values in 0 ... kLargest. In float32 with the rounding error of every addition beside it: `high`
// starts at kLargest, so it is never the smaller operand and the error is exact (Dekker's fast two-sum). Three more
// additions a value keep a row's largest value within 2 units of its last place.
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

// The result in a row that has a NaN among its kept scores: NaN where the column is kept, else 0 (-infinity). Such rows
// are rare, so that no thread keeps its mask for them.
template <class A, SoftmaxMask kMask>
__device__ __forceinline__ A result_beside_nan(const SoftmaxParams& params, const SoftmaxRow& row, int column) {
  const A infinity = negative_infinity<A>();
  return is_kept<kMask>(row, column) ? infinity - infinity : params.log_softmax ? infinity : A{0};
}

// Writes columns first, first + step, ... before `end` of such a row.
template <class T, SoftmaxMask kMask, bool kConverts = false>
__device__ __forceinline__ void store_nan_columns(const SoftmaxParams& params, const SoftmaxRow& row, int first,
                                                  int end, int step) {
  const RowOutput<T, kConverts> output{params};
#pragma unroll 1
  for (int column = first; column < end; column += step)
    output.store_column(row.out, column, result_beside_nan<ComputeType<T>, kMask>(params, row, column));
}

// What a thread knows of its columns: the largest score so far, and the sum of exponentials less that.
template <class T, SoftmaxMask kMask>
struct RunningSum {
  using A = ComputeType<T>;
  using E = RowValue<T>;
  A scale;
  A max = negative_infinity<A>();
  E sum = 0;
  // What turns scores into exponents: less the maximum, or 0 as long as there is none.
  __device__ __forceinline__ ScoreScale<T, kMask> to_exponent() const {
    return {max == negative_infinity<A>() ? A{0} : max, scale};
  }
  __device__ __forceinline__ void raise(A other) {
    if (!(other > max)) return;
    if (sum != E{0}) sum *= exponential<T>(to_exponent().to_reference(other));
    max = other;
  }
};
// value / sum and the logarithm of sum, for a finite sum >= 1; of a double as rounded once to float.
template <class A>
__device__ __forceinline__ A quotient_of(A value, double sum) {
  if constexpr (sizeof(A) == 8) return value / sum;
  const double inverse = static_cast<double>(__fdividef(1.0f, static_cast<float>(sum)));
  return static_cast<A>(static_cast<double>(value) * fma(inverse, fma(-sum, inverse, 1.0), inverse));
}
template <class A>
__device__ __forceinline__ A quotient_of(A value, float sum) {
  return value * __fdividef(1.0f, sum);
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

// What makes results of exponents z less the row's largest score: y = exp(z) * factor; with log_softmax y = z * factor
// + term. A row that keeps nothing has a sum of 0, and results of 0 or -infinity.
template <class T>
struct ResultFactors {
  using A = ComputeType<T>;
  A factor = static_cast<A>(natural_per_base<T>);
  A term = 0;
  ResultFactors() = default;
  __device__ __forceinline__ ResultFactors(bool log_softmax, RowValue<T> sum) {
    if (!log_softmax)
      factor = sum == RowValue<T>{0} ? A{0} : quotient_of(A{1}, sum);
    else if (sum != RowValue<T>{0})
      term = -log_of<A>(sum);
  }
};

// The factor of exponentials of scores less `max` in place of the row's largest score. Those of -infinity alone are 0,
// that only a row with a NaN turns into NaN.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ ComputeType<T> factor_of_exponentials(ComputeType<T> max,
                                                                 const ScoreScale<T, kMask>& to_row_exponent,
                                                                 RowValue<T> sum) {
  using A = ComputeType<T>;
  if (max == negative_infinity<A>()) return A{0} * static_cast<A>(sum);
  const ScoreScale<T, kMask> to_exponent(max, to_row_exponent.scale);
  return quotient_of(exponential<T>(to_exponent.to_reference(to_row_exponent.reference)), sum);
}

// 2^t of t <= 0.1 or NaN to 0.8 units of the last place: 2^n * p(r) with t = n + r; for n of -127, below the least
// normal number, the power of 2 is 0.
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

// Makes a thread's scores of a row, scaled already where there is a bias, its results; `lanes` threads share the row,
// and `largest` is its largest score. Values are taken kStep at a time, and end where has(i) is false. Returns the
// row's sum of exponentials.
template <class T, int kStep, class Has, int kCount>
__device__ __forceinline__ RowValue<T> scores_to_results(const SoftmaxParams& params, bool has_bias, float largest,
                                                         int lanes, Has has, float (&values)[kCount]) {
  static_assert(kCount % kStep == 0);
  ThreadSum<T> thread_sum;
  // Exponents are score * scale - shift in one instruction. What rounding the shift costs is the same in a whole row,
  // and no result shows it, while it is small; else the largest score is taken off first.
  const auto raise = [&](float scale, auto power_of, auto keeps_exponents) {
    const float reference = largest == negative_infinity<float>() ? 0.0f : largest;
    float shift = reference * scale;
    if (!(fabsf(shift) < 0x1p20f)) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (!has(i)) break;
        values[i] -= reference;
      }
      shift = 0;
    }
#pragma unroll
    for (int i = 0; i < kCount; i += kStep) {
      if (!has(i)) break;
      float p[kStep];
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        const float z = fmaf(values[i + j], scale, -shift);
        p[j] = power_of(z);
        values[i + j] = decltype(keeps_exponents)::value ? z : p[j];
      }
      if constexpr (kStep > 1)
        thread_sum.take(p);
      else
        thread_sum.take_one(p[0]);
    }
    return sum_over_lanes(thread_sum.total(), lanes);
  };
  RowValue<T> sum;
  ResultFactors<T> result;
  if (params.log_softmax) {
    // In the natural base in float32: a result is the exponent itself.
    const float scale =
        has_bias ? static_cast<float>(base_per_natural<T>) : exponent_scale<T, SoftmaxMask::none>(params);
    sum = raise(scale, [](float z) { return exponential<T>(z); }, std::true_type{});
    result = {true, sum};
  } else {
    constexpr float log2_e = static_cast<float>(base_per_natural<Float16>);
    sum = raise(
        has_bias ? log2_e : params.scale32_base_2,
        [](float z) {
          if constexpr (sizeof(T) == 2)
            return exponential<Float16>(z);
          else
            return power_of_2_of(z);
        },
        std::false_type{});
    result = {false, sum};
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (!has(i)) break;
    values[i] = values[i] * result.factor + result.term;
  }
  return sum;
}

// ---- gradients

// What an element adds to its row's sum, and the gradient from that sum.
template <class A>
__device__ __forceinline__ A backward_term(bool log_softmax, A dy, A y) {
  if (!log_softmax) return y * dy;
  return y == negative_infinity<A>() ? A{0} : dy;
}
template <class A>
__device__ __forceinline__ A backward_gradient(bool log_softmax, A dy, A y, A sum, A scale) {
  if (!log_softmax) return scale * y * (dy - sum);
  if (y == negative_infinity<A>()) return A{0};
  if constexpr (sizeof(A) == 8)
    return scale * (dy - exp(y) * sum);
  else
    return scale * (dy - expf(y) * sum);
}

// Makes gradients from `column` on 0 where they are masked, which they are not yet where the sum is not finite.
template <class A, int kWidth>
__device__ __forceinline__ void clear_masked(const SoftmaxRow& row, int column, A (&dx)[kWidth]) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j)
    if (column + j < row.begin || column + j >= row.end) dx[j] = 0;
}

// A vector's terms as a tree, so that a thread adds no more numbers in a row than it has vectors.
template <class T>
__device__ __forceinline__ ComputeType<T> backward_vector_sum(bool log_softmax, const uint4& dy_vector,
                                                              const uint4& y_vector) {
  constexpr int width = vector_width<T>;
  ComputeType<T> terms[width], y[width];
  widen_vector<T>(dy_vector, terms);
  widen_vector<T>(y_vector, y);
#pragma unroll
  for (int j = 0; j < width; ++j) terms[j] = backward_term(log_softmax, terms[j], y[j]);
#pragma unroll
  for (int step = width / 2; step > 0; step /= 2)
#pragma unroll
    for (int j = 0; j < step; ++j) terms[j] += terms[j + step];
  return terms[0];
}

}  // namespace flowk::softmax
