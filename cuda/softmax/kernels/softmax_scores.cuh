// SPDX-License-Identifier: Apache-2.0
// The score of a column, which columns are unmasked, and the exponent of a score.
#pragma once

#include "softmax/kernels/softmax_row.cuh"

namespace flowk::softmax {

// The caller's scale, with its sign: for scores with a bias, and for gradients.
template <class A>
__device__ __forceinline__ A signed_scale(const SoftmaxParams& params) {
  if constexpr (sizeof(A) == 8)
    return params.scale;
  else
    return params.scale32;
}

template <class T>
__device__ __forceinline__ ComputeType<T> load_bias(const SoftmaxParams& params, const SoftmaxRow& row, int column) {
  return params.bias_is_float32 ? static_cast<ComputeType<T>>(load_element<float>(row.bias_or_y, column))
                                : load_element<T>(row.bias_or_y, column);
}

// The score of one column: scale * x + bias, or without a bias x, negated if scale < 0.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ ComputeType<T> load_score(const SoftmaxParams& params, const SoftmaxRow& row, int column) {
  using A = ComputeType<T>;
  const A x = load_element<T>(row.x, column);
  if constexpr (kMask == SoftmaxMask::bias) {
    const A bias = load_bias<T>(params, row, column);
    return signed_scale<A>(params) * x + bias;
  } else {
    return params.negates_x ? -x : x;
  }
}

template <SoftmaxMask kMask>
__device__ __forceinline__ bool is_unmasked(const SoftmaxRow& row, int column) {
  if (column < row.begin || column >= row.end) return false;
  if constexpr (may_have_dense(kMask))
    if (row.dense != nullptr) return row.dense[column] == 0;
  return true;
}

// The factor of a score in the exponent, in the exponential's base. It has no scale if scores are scaled already.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ ComputeType<T> exponent_scale(const SoftmaxParams& params) {
  if constexpr (has_scaled_scores(kMask)) return static_cast<ComputeType<T>>(base_per_natural<T>);
  return uses_base_2<T> ? params.scale32_base_2 : params.scale32;
}

// The exponent of a score, (score - reference) * scale, in two steps. The first is a difference, which is finite for
// finite scores; the second, the multiplication, may overflow.
//   scaled scores: score - reference
//   others: (score - reference) / 2
//   others of float16: the exponent itself by one fma, score * scale - reference * scale. The plan keeps the
//   rounding of reference * scale small, and it is a common factor of all exponentials of a row and of their sum. That
//   product must not be contracted into another fma.
template <class T, SoftmaxMask kMask>
struct ScoreScale {
  using A = ComputeType<T>;
  static constexpr bool is_scaled = has_scaled_scores(kMask);
  static constexpr bool is_fused = std::is_same_v<T, Float16> && !is_scaled;
  A reference;
  A scale;
  A scaled = 0;  // what a difference subtracts: the reference, scaled as scores are
  __device__ __forceinline__ ScoreScale(A row_reference, A row_scale) : reference(row_reference), scale(row_scale) {
    scaled = scale_to_difference(reference);
  }
  __device__ __forceinline__ A difference(A score) const {
    if constexpr (is_scaled)
      return score - scaled;
    else
      return fma(score, is_fused ? scale : step(), -scaled);
  }
  __device__ __forceinline__ A exponent(A difference) const {
    return is_fused ? difference : difference * multiplier();
  }
  __device__ __forceinline__ A operator()(A score) const { return exponent(difference(score)); }
  // The change of all differences, and of all exponents, when the reference becomes `other`.
  __device__ __forceinline__ A difference_to(A other) const { return scaled - scale_to_difference(other); }
  __device__ __forceinline__ A to_reference(A other) const { return exponent(difference_to(other)); }
  // The natural exponent per difference.
  __device__ __forceinline__ A log_factor() const {
    constexpr A natural = static_cast<A>(natural_per_base<T>);
    return is_fused ? natural : multiplier() * natural;
  }

 private:
  __device__ __forceinline__ A step() const { return is_scaled ? A{1} : A{0.5}; }
  __device__ __forceinline__ A multiplier() const { return is_scaled ? scale : scale + scale; }
  __device__ __forceinline__ A scale_to_difference(A score) const {
    if constexpr (is_fused)
      return __fmul_rn(score, scale);
    else
      return score * step();
  }
};

}  // namespace flowk::softmax
