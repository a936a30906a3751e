// SPDX-License-Identifier: Apache-2.0
// Sums of exponentials, results from a row's maximum and sum, and the terms of gradients.
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

// The result in a row with an unmasked NaN: NaN where unmasked, else 0 (log: -infinity). Such rows are rare: the mask
// is read again, so that no thread holds it in registers.
template <class A, SoftmaxMask kMask>
__device__ __forceinline__ A result_beside_nan(const SoftmaxParams& params, const SoftmaxRow& row, int column) {
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
    output.store_column(row.out, column, result_beside_nan<ComputeType<T>, kMask>(params, row, column));
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
// value / sum and log(sum) for a finite sum >= 1; a double sum as if rounded once to float.
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

// The factor that turns exponentials relative to `max` into results. Where max is -infinity all exponentials are 0;
// only a row with a NaN makes them NaN.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ ComputeType<T> factor_of_exponentials(ComputeType<T> max,
                                                                 const ScoreScale<T, kMask>& to_row_exponent,
                                                                 RowValue<T> sum) {
  using A = ComputeType<T>;
  if (max == negative_infinity<A>()) return A{0} * static_cast<A>(sum);
  const ScoreScale<T, kMask> to_exponent(max, to_row_exponent.scale);
  return quotient_of(exponential<T>(to_exponent.to_reference(to_row_exponent.reference)), sum);
}

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

// Replaces a thread's scores, already scaled where there is a bias, by the results. `lanes` threads share the row;
// `largest` is its largest score. Values are taken kStep at a time, up to the first i for which has(i) is false.
// Returns the row's sum of exponentials.
template <class T, int kStep, class Has, int kCount>
__device__ __forceinline__ RowValue<T> scores_to_results(const SoftmaxParams& params, bool has_bias, float largest,
                                                         int lanes, Has has, float (&values)[kCount]) {
  static_assert(kCount % kStep == 0);
  ThreadSum<T> thread_sum;
  float largest_exponent = 0;
  // The exponent is score * scale - shift in one fma. The rounding error of `shift` is the same in the whole row and
  // cancels while it is small, and it is rounded down, so that the largest exponent is >= 0; otherwise the largest
  // score is subtracted first. Half of that is finite, as logarithms need it; where all of it overflows, the
  // exponential is 0.
  const auto raise = [&](float scale, auto power_of, auto kind) {
    constexpr bool is_log = decltype(kind)::value;
    const float reference = largest == negative_infinity<float>() ? 0.0f : largest;
    float shift = __fmul_rd(reference, scale);
    if (!(fabsf(shift) < 0x1p20f)) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        if (!has(i)) break;
        values[i] = is_log ? fmaf(values[i], 0.5f, -0.5f * reference) : values[i] - reference;
      }
      if constexpr (is_log) scale *= 2;
      shift = 0;
    } else {
      largest_exponent = fmaf(reference, scale, -shift);
    }
#pragma unroll
    for (int i = 0; i < kCount; i += kStep) {
      if (!has(i)) break;
      float p[kStep];
#pragma unroll
      for (int j = 0; j < kStep; ++j) {
        const float z = fmaf(values[i + j], scale, -shift);
        p[j] = power_of(z);
        values[i + j] = is_log ? z : p[j];
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
    // The result is the exponent plus a term. In base 2 an exponent of bfloat16 could overflow where the result does
    // not; one of float16 cannot.
    using Base = std::conditional_t<std::is_same_v<T, Float16>, Float16, float>;
    const float scale =
        has_bias ? static_cast<float>(base_per_natural<Base>) : exponent_scale<Base, SoftmaxMask::none>(params);
    constexpr float to_base = static_cast<float>(base_per_natural<T> / base_per_natural<Base>);
    const auto exponential_of = [](float z) { return exponential<T>(z * to_base); };
    sum = raise(scale, exponential_of, std::true_type{});
    result = {true, sum, static_cast<float>(natural_per_base<Base>)};
    // One column with a score above -infinity: its result is exactly 0.
    if (sum < 1.125f && sum == exponential_of(largest_exponent)) result.term = -largest_exponent * result.factor;
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
    // One column with an exponential p > 0: its result is exactly 1, because p is in 1 ... 1.125, and p times the
    // float32 next to (1 + 2^-26) / p is within 2^-25 below 1 and 2^-24 above it.
    result = {false, sum * static_cast<RowValue<T>>(1 - 0x1p-26), 0.0f};
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (!has(i)) break;
    values[i] = values[i] * result.factor + result.term;
  }
  return sum;
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
};

// A vector's results from what is held of it: exponentials, which the factor is for, or scores.
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

// ---- the terms: what a mechanism needs of softmax, and of its gradient. A column has num_inputs inputs; those of
// masked columns are such that they add nothing to the row.

template <class Input, SoftmaxMask kMask>
struct SoftmaxTerms {
  using T = Input;
  using A = ComputeType<T>;
  static constexpr SoftmaxMask mask = kMask;
  static constexpr bool is_backward = false;
  static constexpr int num_inputs = 1;

  // Scores relative to a row's largest; 0 if all are -infinity.
  static __device__ __forceinline__ ScoreScale<T, kMask> exponents(const SoftmaxParams& params, A largest) {
    return {largest == negative_infinity<A>() ? A{0} : largest, exponent_scale<T, kMask>(params)};
  }
  static __device__ __forceinline__ uint4 masked_vector(const SoftmaxParams&, int) {
    return negative_infinity_vector<T>();
  }
  static __device__ __forceinline__ A masked_result(const SoftmaxParams& params) {
    return params.log_softmax ? negative_infinity<A>() : A{0};
  }
  // The inputs of an outer column, or of a masked one if it is -1.
  static __device__ __forceinline__ void load_outer(const SoftmaxParams& params, const SoftmaxRow& row, int column,
                                                    A (&inputs)[num_inputs]) {
    inputs[0] = negative_infinity<A>();
    if (column >= 0 && is_unmasked<kMask>(row, column)) inputs[0] = load_score<T, kMask>(params, row, column);
  }
};

// dx = scale * y * (dy - sum of y * dy), or of log_softmax scale * (dy - exp(y) * sum of dy). Inputs are dy and y.
template <class Input>
struct GradientTerms {
  using T = Input;
  using A = ComputeType<T>;
  static constexpr SoftmaxMask mask = SoftmaxMask::none;
  static constexpr bool is_backward = true;
  static constexpr int num_inputs = 2, width = vector_width<T>;
  bool log_softmax;
  A scale;

  __device__ __forceinline__ explicit GradientTerms(const SoftmaxParams& params)
      : GradientTerms(params, params.log_softmax) {}
  __device__ __forceinline__ GradientTerms(const SoftmaxParams& params, bool is_log)
      : log_softmax(is_log), scale(signed_scale<A>(params)) {}

  // The y of a masked column: it adds nothing, and its gradient is 0 while the sum is finite.
  static __device__ __forceinline__ uint4 masked_vector(const SoftmaxParams& params, int input) {
    return input == 1 && params.log_softmax ? negative_infinity_vector<T>() : uint4{0, 0, 0, 0};
  }
  static __device__ __forceinline__ A masked_element(const SoftmaxParams& params, int input) {
    return input == 1 && params.log_softmax ? negative_infinity<A>() : A{0};
  }
  static __device__ __forceinline__ A masked_result(const SoftmaxParams&) { return 0; }
  static __device__ __forceinline__ void load_outer(const SoftmaxParams& params, const SoftmaxRow& row, int column,
                                                    A (&inputs)[num_inputs]) {
    inputs[0] = masked_element(params, 0);
    inputs[1] = masked_element(params, 1);
    if (column < 0 || !is_unmasked<mask>(row, column)) return;
    inputs[0] = load_element<T>(row.x, column);
    inputs[1] = load_element<T>(row.side, column);
  }
  // Masks the columns outside the row's interval in the vectors at `column`.
  static __device__ __forceinline__ void cut(const SoftmaxParams& params, const SoftmaxRow& row, int column, uint4* dy,
                                             uint4* y) {
    if (column >= row.begin && column + width <= row.end) return;
    select_interval<T>(dy, column, row.begin, row.end, masked_vector(params, 0));
    select_interval<T>(y, column, row.begin, row.end, masked_vector(params, 1));
  }

  // A column's term of its row's sum, and its gradient from that sum.
  __device__ __forceinline__ A term(const A (&inputs)[num_inputs]) const { return term(inputs[0], inputs[1]); }
  __device__ __forceinline__ A term(A dy, A y) const {
    if (!log_softmax) return y * dy;
    return y == negative_infinity<A>() ? A{0} : dy;
  }
  __device__ __forceinline__ A result(A dy, A y, A sum) const {
    if (!log_softmax) return scale * y * (dy - sum);
    if (y == negative_infinity<A>()) return A{0};
    if constexpr (sizeof(A) == 8)
      return scale * (dy - exp(y) * sum);
    else
      return scale * (dy - expf(y) * sum);
  }
  __device__ __forceinline__ A outer_result(const SoftmaxRow& row, int column, const A (&inputs)[num_inputs],
                                            A sum) const {
    return is_unmasked<mask>(row, column) ? result(inputs[0], inputs[1], sum) : A{0};
  }

  // The sum of a vector's terms, as a tree: the chain of additions of a thread is as long as its number of vectors.
  __device__ __forceinline__ A vector_term(const uint4& dy, const uint4& y) const {
    A terms[width], probabilities[width];
    widen_vector<T>(dy, terms);
    widen_vector<T>(y, probabilities);
#pragma unroll
    for (int j = 0; j < width; ++j) terms[j] = term(terms[j], probabilities[j]);
#pragma unroll
    for (int step = width / 2; step > 0; step /= 2)
#pragma unroll
      for (int j = 0; j < step; ++j) terms[j] += terms[j + step];
    return terms[0];
  }
  __device__ __forceinline__ void vector_results(const uint4& dy, const uint4& y, A sum, A (&dx)[width]) const {
    A probabilities[width];
    widen_vector<T>(dy, dx);
    widen_vector<T>(y, probabilities);
#pragma unroll
    for (int j = 0; j < width; ++j) dx[j] = result(dx[j], probabilities[j], sum);
  }
  // The same for the vector at `column` of a row with masked columns: their gradients are 0 for every sum.
  __device__ __forceinline__ void vector_results(const SoftmaxRow& row, int column, const uint4& dy, const uint4& y,
                                                 A sum, A (&dx)[width]) const {
    vector_results(dy, y, sum, dx);
    if (sum - sum == A{0}) return;
#pragma unroll
    for (int j = 0; j < width; ++j)
      if (column + j < row.begin || column + j >= row.end) dx[j] = 0;
  }
};

}  // namespace flowk::softmax
