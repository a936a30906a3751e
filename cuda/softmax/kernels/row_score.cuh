// SPDX-License-Identifier: Apache-2.0
// The numbers that a call gives for each row, and the score of a column with a scale per row or a softcap.
#pragma once

#include "softmax/kernels/softmax_reduce.cuh"

namespace flowk::softmax {

// The number that row `linear` of the grid's order has. The row exists.
template <class A>
__device__ __forceinline__ A row_number(const SoftmaxParams& params, RowNumber which, uint32_t linear) {
  const A* number = reinterpret_cast<const A*>(params.extras.numbers[which]);
  split_index<0>(linear, params.rows.dims, params.rows.rank, [&](int d, uint32_t index) {
    number += static_cast<int64_t>(index) * params.rows.numbers[d].of[which];
  });
  return *number;
}

// Both numbers of a row, read together: 0 and 1 if they are not given, or there is no such row.
template <class A>
struct RowNumbers {
  A sink = 0;
  A scale = 1;
  __device__ __forceinline__ RowNumbers(const SoftmaxParams& params, uint32_t linear, bool row_exists) {
    const A* const sinks = reinterpret_cast<const A*>(params.extras.numbers[row_sink]);
    const A* const scales = reinterpret_cast<const A*>(params.extras.numbers[row_scale]);
    if ((sinks == nullptr && scales == nullptr) || !row_exists) return;
    int64_t sink_at = 0, scale_at = 0;
    split_index<0>(linear, params.rows.dims, params.rows.rank, [&](int d, uint32_t index) {
      sink_at += static_cast<int64_t>(index) * params.rows.numbers[d].of[row_sink];
      scale_at += static_cast<int64_t>(index) * params.rows.numbers[d].of[row_scale];
    });
    if (sinks != nullptr) sink = sinks[sink_at];
    if (scales != nullptr) scale = scales[scale_at];
  }
};

// z of a column without its bias, scale * x or softcap * tanh(scale * x / softcap), and its derivative. Of one row:
// `scale` is the call's, times the row's.
template <class T>
struct RowScore {
  using A = ComputeType<T>;
  A scale;
  A softcap;    // 0: none
  A slope = 0;  // scale / softcap; for 16 bits the factor in exp(2 * scale * x / softcap) = 2^(slope * x)

  __device__ __forceinline__ RowScore(const SoftmaxParams& params, uint32_t linear, bool row_exists)
      : scale(signed_scale<A>(params)), softcap(static_cast<A>(params.extras.softcap)) {
    // With one constructor for both uses, or a return if there is no softcap, nvcc orders the blocks of the kernels
    // with a bias differently; softmax_h200.json says what that costs.
    if (params.extras.numbers[row_scale] != nullptr && row_exists) scale *= row_number<A>(params, row_scale, linear);
    slope = has_softcap() ? slope_of(scale) : A{0};
  }
  __device__ __forceinline__ RowScore(const SoftmaxParams& params, A scale_of_row)
      : scale(signed_scale<A>(params) * scale_of_row), softcap(static_cast<A>(params.extras.softcap)) {
    slope = has_softcap() ? slope_of(scale) : A{0};
  }
  __device__ __forceinline__ bool has_softcap() const { return softcap != A{0}; }
  // The factor of x in its score or, with a softcap, of capped(x).
  __device__ __forceinline__ A factor() const { return has_softcap() ? A{1} : scale; }
  __device__ __forceinline__ A capped(A x) const {
    if constexpr (sizeof(A) == 8)
      return softcap * called_tanh(slope * x);
    else if constexpr (is_float16<T>)  // tanh(u) = 1 - 2 * complement
      return softcap - (softcap + softcap) * complement(x);
    else
      return softcap * tanhf(slope * x);
  }
  __device__ __forceinline__ A operator()(A x) const { return has_softcap() ? capped(x) : scale * x; }
  // With a softcap: dx of a column from the gradient of its z. 0 stays 0, for masked columns.
  __device__ __forceinline__ A gradient(A dz, A x) const {
    if (dz == A{0}) return dz;
    if constexpr (is_float16<T>) {
      const A c = complement(x);
      return dz * (4 * scale * (c - c * c));
    } else if constexpr (sizeof(A) == 8) {
      const A t = called_tanh(slope * x);
      return dz * (scale * (1 - t * t));
    } else {
      const A t = tanhf(slope * x);
      return dz * (scale * (1 - t * t));
    }
  }

  // With a softcap, z is this value times a factor, plus a term: complement() for 16 bits, else tanh().
  __device__ __forceinline__ A bounded(A x) const {
    if constexpr (is_float16<T>)
      return complement(x);
    else
      return tanhf(slope * x);
  }

 private:
  __device__ __forceinline__ A slope_of(A of) const {
    constexpr A exponent_per_slope = static_cast<A>(is_float16<T> ? 2 * std::numbers::log2e : 1.0);
    constexpr A largest = static_cast<A>(sizeof(A) == 8 ? 0x1p1000 : 0x1p100);  // 0 stays 0
    A result = of * (exponent_per_slope / softcap);
    if (result > largest) result = largest;
    if (result < -largest) result = -largest;
    return result;
  }
  // 1 / (exp(2 * scale * x / softcap) + 1).
  __device__ __forceinline__ A complement(A x) const { return reciprocal_of(exponential_of_base_2(slope * x) + 1.0f); }
};

// The exponents of scores z from x, relative to the largest z of some columns. x is negated if RowScore::scale is
// negative, so that the largest x has the largest z.
template <class T>
struct RowExponents {
  using A = ComputeType<T>;
  static constexpr A base_per_z = static_cast<A>(base_per_natural<Float16>);  // with a softcap, in base 2
  RowScore<T> score;
  A factor;
  A shift;

  __device__ __forceinline__ RowExponents(const RowScore<T>& of, A largest_x) : score(of) {
    score.scale = fabsf(of.scale);
    score.slope = fabsf(of.slope);
    if (of.has_softcap()) {
      factor = (is_float16<T> ? A{-2} : A{1}) * of.softcap * base_per_z;
      shift = -factor * score.bounded(largest_x);
    } else {
      // The difference of two x may overflow, half of it does not. For a scale of 0: -infinity stays what it is.
      factor = at_least(2 * score.scale * static_cast<A>(base_per_natural<T>), 0x1p-148f);
      shift = largest_x == negative_infinity<A>() ? A{0} : A{-0.5} * largest_x;
    }
  }
  template <bool kCapped>
  __device__ __forceinline__ A exponent(A x, A own_shift) const {
    return kCapped ? fma(score.bounded(x), factor, own_shift) : fma(x, A{0.5}, own_shift) * factor;
  }
  template <bool kCapped>
  static __device__ __forceinline__ A exponential_of(A exponent) {
    if constexpr (kCapped)  // z is less exact than this exponential
      return exponential_of_base_2(exponent);
    else
      return exponential<T>(exponent);
  }
  template <bool kCapped>
  static constexpr A natural_per_exponent = static_cast<A>(kCapped ? natural_per_base<Float16> : natural_per_base<T>);
  __device__ __forceinline__ A z_of(A x) const { return score.has_softcap() ? score.capped(x) : score.scale * x; }
};

// Of kernels that take no calls with a softcap or a scale per row.
struct NoRowScore {
  __device__ __forceinline__ NoRowScore(const SoftmaxParams&, uint32_t, bool) {}
};

// z of one column.
template <class T>
__device__ __forceinline__ ComputeType<T> load_row_score(const SoftmaxParams& params, const SoftmaxRow& row,
                                                         const RowScore<T>& score, int column) {
  using A = ComputeType<T>;
  A bias = 0;
  if (params.bias_or_y != nullptr) bias = load_bias<T>(params, row, column);
  const A x = load_element<T>(row.x, column);
  return score.factor() * (score.has_softcap() ? score.capped(x) : x) + bias;
}

// Backward with a softcap: the address of row `linear` of x.
__device__ __forceinline__ const unsigned char* row_of_scores(const SoftmaxParams& params, uint32_t linear) {
  return row_value<unsigned char>(params, const_cast<unsigned char*>(params.extras.x), softmax_dense, linear);
}

}  // namespace flowk::softmax
