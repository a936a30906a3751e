// SPDX-License-Identifier: Apache-2.0
// From the scores of a row that a few lanes of one warp hold to its results.
#pragma once

#include "softmax/softmax_row_in_registers.cuh"

namespace flowk::softmax {

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

}  // namespace flowk::softmax
