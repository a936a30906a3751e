// SPDX-License-Identifier: Apache-2.0
// Sinks, which add to a row's sum, and the log-sum-exp of a row with or without one.
#pragma once

#include "softmax/kernels/row_score.cuh"
#include "softmax/kernels/softmax_results.cuh"

namespace flowk::softmax {

// exp() of this distance, and of its negative, is a normal number.
template <class A>
constexpr A max_sink_distance = sizeof(A) == 8 ? 708 : 87;

// A row's sink is a number that was read before, or SinkOfRow.
template <class A>
__device__ __forceinline__ A sink_of(const SoftmaxParams& params, SinkOfRow row) {
  return row_number(params, row_sink, row.linear, true, A{0});
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
  const A least = exponential_of_negative(distance > 0 ? -distance : distance);
  return distance > 0 ? inverse_of(least) : static_cast<double>(least);
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

// What the gradients of a row need besides dy and y, read together and early: the scale of the row and, in the row's
// first thread, the gradient of the log-sum-exp, the sink and the log-sum-exp.
template <class A, bool kScales>
struct GradientNumbers {
  A dlse = 0, scale = 1, sink = 0, lse = 0;
  __device__ __forceinline__ GradientNumbers(const SoftmaxParams& params, uint32_t linear, bool row_exists,
                                             bool is_first) {
    if (!params.has_row_values) return;
    if constexpr (kScales) scale = row_number(params, row_scale, linear, row_exists, A{1});
    if (!is_first) return;
    if (params.lse != nullptr) dlse = *row_value<A>(params, params.lse, softmax_lse, linear);
    if (params.extras.dsinks == nullptr) return;
    sink = *number_address<A>(params, row_sink, linear);
    lse = *row_value<A>(params, const_cast<unsigned char*>(params.extras.saved_lse), softmax_lse, linear);
  }
  // exp(sink - lse).
  __device__ __forceinline__ A probability() const {
    return sink == negative_infinity<A>() ? A{0} : exponential<A>(sink - lse);
  }
};

// Stores the row's part of the gradient of its sink, -exp(sink - lse) * sum, where `sum` is the gradient's sum over the
// row. Called by one thread of the row.
template <class A>
__device__ __forceinline__ void store_sink_gradient(const SoftmaxParams& params, uint32_t linear, A probability,
                                                    A sum) {
  *row_value<A>(params, params.extras.dsinks, softmax_lse, linear) = -probability * sum;
}
template <class A>
__device__ __noinline__ void called_store_sink_gradient(const SoftmaxParams& params, uint32_t linear, A sum) {
  store_sink_gradient(params, linear, GradientNumbers<A, false>(params, linear, true, true).probability(), sum);
}

// 16 bits: to 2^-21, by the special function unit.
template <class T>
__device__ __forceinline__ ComputeType<T> log_of_sum(RowValue<T> sum) {
  if constexpr (is_float16<T>)
    return __logf(sum);
  else
    return log_of<ComputeType<T>>(sum);
}

// Stores the log-sum-exp of row `linear` of the grid's order, z = score * scale, from a sum that is exp(excess) times
// too large. Called by one thread of the row.
template <class T, bool kSinks = true, class Sink>
__device__ __forceinline__ void store_lse(const SoftmaxParams& params, uint32_t linear, ComputeType<T> scale, Sink sink,
                                          const RowPartial<T>& row, ComputeType<T> excess = 0) {
  using A = ComputeType<T>;
  A lse = negative_infinity<A>();
  if (row.sum != RowValue<T>{0}) lse = fma(row.max, scale, log_of_sum<T>(row.sum) - excess);
  if constexpr (kSinks) lse = lse_with_sink(params, sink, scale, row.max, lse);
  *row_value<A>(params, params.lse, softmax_lse, linear) = lse;
}

// The same as a function, called after the row's results, when few registers are in use.
template <class T, bool kSinks = true, class Sink>
__device__ __noinline__ void called_store_lse(const SoftmaxParams& params, uint32_t linear, ComputeType<T> scale,
                                              Sink sink, RowPartial<T> row, ComputeType<T> excess = 0) {
  store_lse<T, kSinks>(params, linear, scale, sink, row, excess);
}

}  // namespace flowk::softmax
