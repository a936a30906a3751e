// SPDX-License-Identifier: Apache-2.0
// The numbers that a call gives for each row, and the score of a column with a scale per row or a softcap.
#pragma once

#include "softmax/kernels/softmax_reduce.cuh"

namespace flowk::softmax {

// The address of the number that row `linear` of the grid's order has. The row exists.
template <class A>
__device__ __forceinline__ const A* number_address(const SoftmaxParams& params, RowNumber which, uint32_t linear) {
  const unsigned char* const base = params.extras.numbers[which];
  const uint32_t step = params.row_steps.numbers[which];
  if (step != no_row_step) return reinterpret_cast<const A*>(base + static_cast<uint64_t>(linear) * step);
  const A* number = reinterpret_cast<const A*>(base);
  split_index<0>(linear, params.rows.dims, params.rows.rank, [&](int d, uint32_t index) {
    number += static_cast<int64_t>(index) * params.rows.numbers[d].of[which];
  });
  return number;
}

// The number; `otherwise` if there are none, or no such row.
template <class A>
__device__ __forceinline__ A row_number(const SoftmaxParams& params, RowNumber which, uint32_t linear, bool row_exists,
                                        A otherwise) {
  if (params.extras.numbers[which] == nullptr || !row_exists) return otherwise;
  return *number_address<A>(params, which, linear);
}

// Both numbers of a row, read together and early, since the row waits for them; 0 and 1 if they are not given.
template <class A, bool kScales = true>
struct RowNumbers {
  A sink = 0;
  A scale = 1;
  __device__ __forceinline__ RowNumbers(const SoftmaxParams& params, uint32_t linear, bool row_exists, bool = false) {
    if (!params.has_row_values) return;
    sink = row_number(params, row_sink, linear, row_exists, A{0});
    if constexpr (kScales) scale = row_number(params, row_scale, linear, row_exists, A{1});
  }
};

// A sink that is read at each use: no thread holds it in a register. It is fetched into L2 before.
struct SinkOfRow {
  uint32_t linear;  // the row, in the grid's order
};
template <class A>
__device__ __forceinline__ void fetch_sink([[maybe_unused]] const SoftmaxParams& params,
                                           [[maybe_unused]] uint32_t linear, [[maybe_unused]] bool row_exists) {
#ifndef FLOWK_SIMT
  if (params.extras.numbers[row_sink] != nullptr && row_exists)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(number_address<A>(params, row_sink, linear)));
#endif
}
template <class A>
struct FetchedSink {
  SinkOfRow sink;
  __device__ __forceinline__ FetchedSink(const SoftmaxParams& params, uint32_t linear, bool row_exists, bool)
      : sink{linear} {
    fetch_sink<A>(params, linear, row_exists);
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
      : scale(signed_scale<A>(params)), softcap(softcap_of(params)) {
    // With one constructor for both uses, or a return if there is no softcap, nvcc orders the blocks of the kernels
    // with a bias differently; softmax_h200.json says what that costs.
    scale *= row_number(params, row_scale, linear, row_exists, A{1});
    slope = has_softcap() ? slope_of(params, scale) : A{0};
  }
  __device__ __forceinline__ RowScore(const SoftmaxParams& params, A scale_of_row)
      : scale(signed_scale<A>(params) * scale_of_row), softcap(softcap_of(params)) {
    slope = has_softcap() ? slope_of(params, scale) : A{0};
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
  static __device__ __forceinline__ A softcap_of(const SoftmaxParams& params) {
    if constexpr (sizeof(A) == 8)
      return params.extras.softcap;
    else
      return params.extras.softcap32;
  }
  __device__ __forceinline__ A slope_of(const SoftmaxParams& params, A of) const {
    constexpr A largest = static_cast<A>(sizeof(A) == 8 ? 0x1p1000 : 0x1p100);  // 0 stays 0
    A result;
    if constexpr (sizeof(A) == 8)
      result = of * (1 / softcap);
    else
      result = of * params.extras.slope32;
    if (result > largest) result = largest;
    if (result < -largest) result = -largest;
    return result;
  }
  // 1 / (exp(2 * scale * x / softcap) + 1).
  __device__ __forceinline__ A complement(A x) const { return reciprocal_of(exponential_of_base_2(slope * x) + 1.0f); }
};

// With a softcap: the exponents of scores z from x, relative to the largest z of some columns, in base 2. x is negated
// if RowScore::scale is negative, so that the largest x has the largest z.
template <class T>
struct RowExponents {
  using A = ComputeType<T>;
  RowScore<T> score;
  A factor;
  A shift;

  __device__ __forceinline__ RowExponents(const RowScore<T>& of, A largest_x) : score(of) {
    score.slope = fabsf(of.slope);
    factor = (is_float16<T> ? A{-2} : A{1}) * of.softcap * static_cast<A>(base_per_natural<Float16>);
    shift = -factor * score.bounded(largest_x);
  }
  // The exponentials of a vector's columns, and what a thread holds of them: with kLogarithms their natural exponents.
  template <bool kLogarithms, int kWidth>
  __device__ __forceinline__ void take(const uint4& vector, A own_shift, A (&p)[kWidth], A* held) const {
    widen_vector<T>(vector, p);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      const A z = fma(score.bounded(p[j]), factor, own_shift);
      p[j] = exponential_of_base_2(z);  // z is less exact than this exponential
      held[j] = kLogarithms ? z * static_cast<A>(natural_per_base<Float16>) : p[j];
    }
  }
};

// Of kernels that take no calls with a softcap or a scale per row.
struct NoRowScore {
  __device__ __forceinline__ NoRowScore(const SoftmaxParams&, uint32_t, bool, bool = false) {}
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
