// SPDX-License-Identifier: Apache-2.0
// Sinks, which add to a row's sum, and the log-sum-exp of a row with or without one.
#pragma once

#include "softmax/kernels/row_score.cuh"
#include "softmax/kernels/softmax_results.cuh"

namespace flowk::softmax {

// exp() of this distance, and of its negative, is a normal number.
template <class A>
constexpr A max_sink_distance = sizeof(A) == 8 ? 708 : 87;

// A row's sink is a number that was read before, or SinkOfRow, which is read at each use, so that no thread holds it in
// a register.
struct SinkOfRow {
  uint32_t linear;  // the row, in the grid's order
};
template <class A>
__device__ __forceinline__ A sink_of(const SoftmaxParams& params, SinkOfRow row) {
  return row_number<A>(params, row_sink, row.linear);
}
template <class A>
__device__ __forceinline__ A sink_of(const SoftmaxParams&, A sink) {
  return sink;
}

// From a row's largest z = score * scale to its sink.
template <class A, class Sink>
__device__ __forceinline__ A sink_distance(const SoftmaxParams& params, Sink sink, A scale, A max) {
  return fma(-max, scale, sink_of<A>(params, sink));
}

// What a sink at this distance above a row's largest z adds to the row's sum, as if the distance were at most
// max_sink_distance: the results are then below 2^-125.
template <class T>
__device__ __forceinline__ RowValue<T> exponential_of_sink(ComputeType<T> distance) {
  using A = ComputeType<T>;
  if (distance > max_sink_distance<A>) distance = max_sink_distance<A>;
  if constexpr (sizeof(A) == 8)
    return exp(distance);
  else if constexpr (is_float16<T>)
    return exponential_of_base_2(distance * static_cast<A>(base_per_natural<T>));
  else if (distance > 0)
    return 1 / static_cast<double>(exponential_of_negative(-distance));
  else
    return static_cast<double>(exponential_of_negative(distance));
}

// Adds the row's sink, if there is one, to its sum. A row without an unmasked column, or with a NaN, stays as it is.
template <class T, class Sink>
__device__ __forceinline__ RowPartial<T> with_sink(const SoftmaxParams& params, Sink sink, ComputeType<T> scale,
                                                   RowPartial<T> row) {
  if (params.extras.numbers[row_sink] == nullptr || !(row.sum > RowValue<T>{0})) return row;
  row.sum += exponential_of_sink<T>(sink_distance(params, sink, scale, row.max));
  return row;
}

// The log-sum-exp of a row with its sink. `lse` is the logarithm of the sum from with_sink().
template <class A, class Sink>
__device__ __forceinline__ A lse_with_sink(const SoftmaxParams& params, Sink sink, A scale, A max, A lse) {
  if (params.extras.numbers[row_sink] == nullptr) return lse;
  const bool is_far = sink_distance(params, sink, scale, max) > max_sink_distance<A>;
  return lse == negative_infinity<A>() || (is_far && lse == lse) ? sink_of<A>(params, sink) : lse;
}

// exp(sink - lse) of a row, and the row's part of the gradient of its sink: -exp(sink - lse) * sum, where `sum` is the
// gradient's sum over the row. Called by one thread of the row.
template <class A>
__device__ __forceinline__ A sink_probability(const SoftmaxParams& params, uint32_t linear) {
  const A sink = row_number<A>(params, row_sink, linear);
  const A lse = *row_value<A>(params, const_cast<unsigned char*>(params.extras.saved_lse), softmax_lse, linear);
  return sink == negative_infinity<A>() ? A{0} : exponential<A>(sink - lse);
}
template <class A>
__device__ __forceinline__ A* sink_gradient(const SoftmaxParams& params, uint32_t linear) {
  return row_value<A>(params, params.extras.dsinks, softmax_lse, linear);
}
template <class A>
__device__ __noinline__ void store_sink_gradient(const SoftmaxParams& params, uint32_t linear, A sum) {
  *sink_gradient<A>(params, linear) = -sink_probability<A>(params, linear) * sum;
}

// Stores the log-sum-exp of row `linear` of the grid's order, z = score * scale. Called by one thread of the row, after
// its results, when few registers are in use.
template <class T, bool kSinks = true>
__device__ __noinline__ void store_lse(const SoftmaxParams& params, uint32_t linear, ComputeType<T> scale,
                                       RowPartial<T> row) {
  using A = ComputeType<T>;
  A lse = row.sum == RowValue<T>{0} ? negative_infinity<A>() : fma(row.max, scale, log_of<A>(row.sum));
  if constexpr (kSinks) lse = lse_with_sink(params, SinkOfRow{linear}, scale, row.max, lse);
  *row_value<A>(params, params.lse, softmax_lse, linear) = lse;
}

// The same with a sink that was read before, from a sum that is exp(excess) times too large.
template <class T>
__device__ __noinline__ void store_lse_of(const SoftmaxParams& params, uint32_t linear, ComputeType<T> scale,
                                          ComputeType<T> sink, RowPartial<T> row, ComputeType<T> excess) {
  using A = ComputeType<T>;
  const A lse = row.sum == RowValue<T>{0} ? negative_infinity<A>() : fma(row.max, scale, log_of<A>(row.sum) - excess);
  *row_value<A>(params, params.lse, softmax_lse, linear) = lse_with_sink(params, sink, scale, row.max, lse);
}

}  // namespace flowk::softmax
