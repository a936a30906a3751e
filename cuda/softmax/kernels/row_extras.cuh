// SPDX-License-Identifier: Apache-2.0
// Sinks, which add to a row's sum; a scale per row and a softcap, which change the score of a column.
#pragma once

#include "softmax/kernels/softmax_reduce.cuh"

namespace flowk::softmax {

// The number of row `linear` of the grid's order, which exists.
template <class A>
__device__ __forceinline__ A row_number(const SoftmaxParams& params, RowNumber which, uint32_t linear) {
  const A* number = reinterpret_cast<const A*>(params.extras.numbers[which]);
  split_index<0>(linear, params.rows.dims, params.rows.rank, [&](int d, uint32_t index) {
    number += static_cast<int64_t>(index) * params.rows.numbers[d].of[which];
  });
  return *number;
}

// ---- sinks

// exp() of this distance, and of its negative, is a normal number.
template <class A>
constexpr A max_sink_distance = sizeof(A) == 8 ? 708 : 87;

// From a row's largest z = score * scale to its sink.
template <class A>
__device__ __forceinline__ A sink_distance(const SoftmaxParams& params, uint32_t linear, A scale, A max) {
  return fma(-max, scale, row_number<A>(params, row_sink, linear));
}

// Adds the row's sink, if there is one, to its sum, as if it were at most max_sink_distance above the largest z: the
// results are then below 2^-125. A row without an unmasked column, or with a NaN, stays as it is.
template <class T>
__device__ __forceinline__ RowPartial<T> with_sink(const SoftmaxParams& params, uint32_t linear, ComputeType<T> scale,
                                                   RowPartial<T> row) {
  using A = ComputeType<T>;
  if (params.extras.numbers[row_sink] == nullptr || !(row.sum > RowValue<T>{0})) return row;
  A distance = sink_distance(params, linear, scale, row.max);
  if (distance > max_sink_distance<A>) distance = max_sink_distance<A>;
  if constexpr (sizeof(A) == 8)
    row.sum += exp(distance);
  else if constexpr (is_float16<T>)
    row.sum += exponential_of_base_2(distance * static_cast<A>(base_per_natural<T>));
  else if (distance > 0)
    row.sum += 1 / static_cast<double>(exponential_of_negative(-distance));
  else
    row.sum += static_cast<double>(exponential_of_negative(distance));
  return row;
}

// The log-sum-exp of a row with its sink. `lse` is that of its sum, which with_sink() has made. The sink is read again,
// so that no thread holds it in a register.
template <class A>
__device__ __forceinline__ A lse_with_sink(const SoftmaxParams& params, uint32_t linear, A scale, A max, A lse) {
  if (params.extras.numbers[row_sink] == nullptr) return lse;
  const bool is_far = sink_distance(params, linear, scale, max) > max_sink_distance<A>;
  return lse == negative_infinity<A>() || (is_far && lse == lse) ? row_number<A>(params, row_sink, linear) : lse;
}

// The row's part of the gradient of its sink: -exp(sink - lse) * sum, where `sum` is the gradient's sum over the row.
// Called by one thread of the row.
template <class A>
__device__ __noinline__ void store_sink_gradient(const SoftmaxParams& params, uint32_t linear, A sum) {
  const auto per_row = [&](const unsigned char* base) {
    return row_value<A>(params, const_cast<unsigned char*>(base), softmax_lse, linear);
  };
  const A sink = row_number<A>(params, row_sink, linear);
  const A probability =
      sink == negative_infinity<A>() ? A{0} : exponential<A>(sink - *per_row(params.extras.saved_lse));
  *per_row(params.extras.dsinks) = -probability * sum;
}

// ---- scores

// z of a column without its bias, scale * x or softcap * tanh(scale * x / softcap), and its derivative. Of one row:
// `scale` is the call's, times the row's.
template <class T>
struct RowScore {
  using A = ComputeType<T>;
  A scale;
  A softcap;   // 0: none
  A exponent;  // exp(2 * scale * x / softcap) = 2^(exponent * x)

  __device__ __forceinline__ RowScore(const SoftmaxParams& params, uint32_t linear, bool row_exists)
      : scale(signed_scale<A>(params)), softcap(static_cast<A>(params.extras.softcap)) {
    if (params.extras.numbers[row_scale] != nullptr && row_exists) scale *= row_number<A>(params, row_scale, linear);
    exponent = has_softcap() ? scale * (static_cast<A>(2.8853900817779268) / softcap) : A{0};
  }
  __device__ __forceinline__ bool has_softcap() const { return softcap != A{0}; }
  // The factor of a score that capped() has not been applied to, or has been.
  __device__ __forceinline__ A factor() const { return has_softcap() ? A{1} : scale; }
  __device__ __forceinline__ A capped(A x) const {
    if constexpr (sizeof(A) == 8)
      return softcap * called_tanh(scale * x / softcap);
    else if constexpr (is_float16<T>)  // tanh(u) = 1 - 2 / (exp(2 u) + 1)
      return softcap - __fdividef(softcap + softcap, exponential_of_base_2(exponent * x) + 1.0f);
    else
      return softcap * tanhf(scale * x / softcap);
  }
  __device__ __forceinline__ A operator()(A x) const { return has_softcap() ? capped(x) : scale * x; }
  // With a softcap: dx of a column from the gradient of its z. 0 stays 0, for masked columns.
  __device__ __forceinline__ A gradient(A dz, A x) const {
    const A t = capped(x) / softcap;
    return dz == A{0} ? dz : dz * (scale * (1 - t * t));
  }
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
  if (params.bias_or_y != nullptr)
    bias = params.bias_is_float32 ? static_cast<A>(load_element<float>(row.bias_or_y, column))
                                  : load_element<T>(row.bias_or_y, column);
  const A x = load_element<T>(row.x, column);
  return score.factor() * (score.has_softcap() ? score.capped(x) : x) + bias;
}

// Backward with a softcap: where row `linear` of x is.
__device__ __forceinline__ const unsigned char* row_of_scores(const SoftmaxParams& params, uint32_t linear) {
  return row_value<unsigned char>(params, const_cast<unsigned char*>(params.extras.x), softmax_dense, linear);
}

}  // namespace flowk::softmax
