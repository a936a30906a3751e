// SPDX-License-Identifier: Apache-2.0
// The terms that mechanisms are templates over.
#pragma once

#include "softmax/kernels/row_sinks.cuh"

namespace flowk::softmax {

// What a mechanism needs of softmax, and of its gradient. A column has num_inputs inputs; the inputs of
// masked columns add nothing to the row. begin() makes a thread's Partial, to which the gradient of the log-sum-exp is
// added in the row's first thread (is_first). The thread then takes its inputs into it. merge() makes the row's
// RowPartial of the partial results of threads, warps, blocks or slices. with_sinks() adds the row's sink to it.
// finish() makes of it what computes the results. leave() stores the log-sum-exp, or the gradient of the sink.

template <class Input, SoftmaxMask kMask>
struct SoftmaxTerms {
  using T = Input;
  using A = ComputeType<T>;
  using Partial = RunningSum<T, kMask>;
  using Results = RowResults<T, kMask>;
  static constexpr SoftmaxMask mask = kMask;
  static constexpr bool is_backward = false;
  static constexpr int num_inputs = 1, width = vector_width<T>;

  __device__ __forceinline__ explicit SoftmaxTerms(const SoftmaxParams&) {}
  // Scores relative to a row's largest; 0 if all are -infinity.
  static __device__ __forceinline__ ScoreScale<T, kMask> exponents(const SoftmaxParams& params, A largest) {
    return {largest == negative_infinity<A>() ? A{0} : largest, exponent_scale<T, kMask>(params)};
  }
  static __device__ __forceinline__ uint4 masked_vector(const SoftmaxParams&, int) {
    return negative_infinity_vector<T>();
  }
  static __device__ __forceinline__ A masked_element(const SoftmaxParams&, int) { return negative_infinity<A>(); }
  static __device__ __forceinline__ A masked_result(const SoftmaxParams& params) {
    return params.log_softmax ? negative_infinity<A>() : A{0};
  }
  // The inputs of a column; if it is masked or -1, inputs that add nothing.
  static __device__ __forceinline__ void load_one(const SoftmaxParams& params, const SoftmaxRow& row, int column,
                                                  A (&inputs)[num_inputs]) {
    inputs[0] = negative_infinity<A>();
    if (column < 0) return;
    const A score = load_score<T, kMask>(params, row, column);  // loaded at the same time as its mask
    if (is_unmasked<kMask>(row, column)) inputs[0] = score;
  }
  // Masks columns of the vector at `column`, and negates its scores if the scale is negative.
  static __device__ __forceinline__ void prepare(const SoftmaxParams& params, const SoftmaxRow& row, int column,
                                                 uint4 (&inputs)[num_inputs], const DenseWords<width>& dense) {
    if (params.negates_x) negate_vector<T>(&inputs[0]);
    if (params.interval.exists && (column < row.begin || column + width > row.end))
      select_interval<T>(&inputs[0], column, row.begin, row.end, negative_infinity_vector<T>());
    if (params.dense != nullptr) mask_vector<T>(&inputs[0], dense);
  }

  static __device__ __forceinline__ Partial begin(const SoftmaxParams& params, uint32_t = 0, bool = false) {
    return {exponent_scale<T, kMask>(params)};
  }
  static __device__ __forceinline__ void take(const A (&inputs)[num_inputs], Partial* partial) {
    partial->raise(inputs[0]);
    partial->sum += exponential<T>(partial->to_exponent()(inputs[0]));
  }
  template <int kCount>
  static __device__ __forceinline__ void take(const uint4 (&inputs)[kCount][num_inputs], Partial* partial) {
    VectorMax<T> largest;
#pragma unroll
    for (int i = 0; i < kCount; ++i) largest.take(inputs[i][0]);
    partial->raise(largest.largest());
    const ScoreScale<T, kMask> to_exponent = partial->to_exponent();
    ThreadSum<T> sum;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      A p[width];
      widen_vector<T>(inputs[i][0], p);
#pragma unroll
      for (int j = 0; j < width; ++j) p[j] = exponential<T>(to_exponent(p[j]));
      sum.take(p);
    }
    partial->sum += sum.total();
  }
  static __device__ __forceinline__ void take(const RowPartial<T>& other, Partial* partial) {
    partial->raise(other.max);
    if (other.sum == RowValue<T>{0}) return;
    const ScoreScale<T, kMask> to_exponent(other.max, partial->scale);
    partial->sum += other.sum * exponential<T>(to_exponent.to_reference(partial->to_exponent().reference));
  }
  // Called by whole warps.
  static __device__ __forceinline__ RowPartial<T> merge(const ExchangeBuffer<T>& buffer, const RowThreads& group,
                                                        Partial partial) {
    partial.raise(max_over_lanes(partial.max, 32));
    return combine_row<T, kMask>(buffer, group, {partial.max, sum_over_lanes(partial.sum, 32)}, partial.scale);
  }
  static __device__ __forceinline__ RowPartial<T> merge(const SoftmaxParams& params, const RowPartial<T>* parts,
                                                        int num_partials, int lane) {
    return combine_partials<T, kMask>(parts, num_partials, lane, exponent_scale<T, kMask>(params));
  }
  // z of a score is score * natural_scale().
  static __device__ __forceinline__ A natural_scale(const SoftmaxParams& params) {
    return has_scaled_scores(kMask) ? A{1} : signed_scale<A>(params);
  }
  static __device__ __forceinline__ RowPartial<T> with_sinks(const SoftmaxParams& params, int64_t linear,
                                                             const RowPartial<T>& row) {
    return with_sink(params, SinkOfRow{static_cast<uint32_t>(linear)}, natural_scale(params), row);
  }
  // In a row with an unmasked NaN all results of unmasked columns are NaN.
  static __device__ __forceinline__ bool has_nan(const RowPartial<T>& row) { return row.sum != row.sum; }
  static __device__ __forceinline__ Results finish(const SoftmaxParams& params, const RowPartial<T>& row) {
    return {params, row};
  }
  static __device__ __forceinline__ void leave(const SoftmaxParams& params, uint32_t linear, bool is_first,
                                               const RowPartial<T>& row) {
    if (params.lse == nullptr || !is_first) return;
    called_store_lse<T>(params, linear, natural_scale(params), SinkOfRow{linear}, row);
  }
};

// dx = scale * y * (dy - sum of y * dy), or of log_softmax scale * (dy - exp(y) * sum of dy). Inputs are dy and y. The
// sum is less the gradient of the log-sum-exp.
template <class Input>
struct GradientTerms {
  using T = Input;
  using A = ComputeType<T>;
  static constexpr SoftmaxMask mask = SoftmaxMask::none;
  static constexpr bool is_backward = true;
  static constexpr int num_inputs = 2, width = vector_width<T>;
  // A thread's sum of its columns' terms.
  struct Partial {
    A sum = 0;
  };
  // A row's gradients from its sum.
  struct Results {
    GradientTerms terms;
    A sum;
    __device__ __forceinline__ A of(const A (&inputs)[num_inputs]) const {
      return terms.result(inputs[0], inputs[1], sum);
    }
    __device__ __forceinline__ A of_column(const SoftmaxRow& row, int column, const A (&inputs)[num_inputs]) const {
      return is_unmasked<mask>(row, column) ? of(inputs) : A{0};
    }
    __device__ __forceinline__ void of_vector(const SoftmaxRow& row, int column, const uint4 (&inputs)[num_inputs],
                                              A (&dx)[width]) const {
      terms.vector_results(inputs[0], inputs[1], sum, dx);
      clear_masked(row, column, sum, dx);
    }
  };
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
  static __device__ __forceinline__ void load_one(const SoftmaxParams& params, const SoftmaxRow& row, int column,
                                                  A (&inputs)[num_inputs]) {
    inputs[0] = masked_element(params, 0);
    inputs[1] = masked_element(params, 1);
    if (column < 0 || !is_unmasked<mask>(row, column)) return;
    inputs[0] = load_element<T>(row.x, column);
    inputs[1] = load_element<T>(row.bias_or_y, column);
  }
  // Masks the columns outside the row's interval in the vectors at `column`.
  static __device__ __forceinline__ void cut(const SoftmaxParams& params, const SoftmaxRow& row, int column, uint4* dy,
                                             uint4* y) {
    if (column >= row.begin && column + width <= row.end) return;
    select_interval<T>(dy, column, row.begin, row.end, masked_vector(params, 0));
    select_interval<T>(y, column, row.begin, row.end, masked_vector(params, 1));
  }
  static __device__ __forceinline__ void prepare(const SoftmaxParams& params, const SoftmaxRow& row, int column,
                                                 uint4 (&inputs)[num_inputs], const DenseWords<width>&) {
    if (params.interval.exists) cut(params, row, column, &inputs[0], &inputs[1]);
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
  // The gradients of masked columns are 0 for every sum.
  static __device__ __forceinline__ void clear_masked(const SoftmaxRow& row, int column, A sum, A (&dx)[width]) {
    if (sum - sum == A{0}) return;
#pragma unroll
    for (int j = 0; j < width; ++j)
      if (column + j < row.begin || column + j >= row.end) dx[j] = 0;
  }

  static __device__ __forceinline__ Partial begin(const SoftmaxParams&) { return {}; }
  static __device__ __forceinline__ Partial begin(const SoftmaxParams& params, uint32_t linear, bool is_first) {
    if (params.lse == nullptr || !is_first) return {};
    return {-*row_value<A>(params, params.lse, softmax_lse, linear)};
  }
  __device__ __forceinline__ void take(const A (&inputs)[num_inputs], Partial* partial) const {
    partial->sum += term(inputs);
  }
  template <int kCount>
  __device__ __forceinline__ void take(const uint4 (&inputs)[kCount][num_inputs], Partial* partial) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) partial->sum += vector_term(inputs[i][0], inputs[i][1]);
  }
  static __device__ __forceinline__ void take(const RowPartial<T>& other, Partial* partial) {
    partial->sum += static_cast<A>(other.sum);
  }
  static __device__ __forceinline__ RowPartial<T> merge(const ExchangeBuffer<T>& buffer, const RowThreads& group,
                                                        const Partial& partial) {
    return {A{0}, sum_row(buffer, group, sum_over_lanes_of(group, partial.sum))};
  }
  static __device__ __forceinline__ RowPartial<T> merge(const SoftmaxParams&, const RowPartial<T>* parts,
                                                        int num_partials, int lane) {
    return {A{0}, sum_partials(parts, num_partials, lane)};
  }
  static __device__ __forceinline__ RowPartial<T> with_sinks(const SoftmaxParams&, int64_t, const RowPartial<T>& row) {
    return row;
  }
  // A NaN in dy or y makes the sum NaN, and so each result.
  static __device__ __forceinline__ bool has_nan(const RowPartial<T>&) { return false; }
  __device__ __forceinline__ Results finish(const SoftmaxParams&, const RowPartial<T>& row) const {
    return {*this, static_cast<A>(row.sum)};
  }
  static __device__ __forceinline__ void leave(const SoftmaxParams& params, uint32_t linear, bool is_first,
                                               const RowPartial<T>& row) {
    if (params.extras.dsinks != nullptr && is_first)
      called_store_sink_gradient<A>(params, linear, static_cast<A>(row.sum));
  }
};

// Terms of kernels that take calls with a log-sum-exp and none with sinks.
template <class Base>
struct WithoutSinks : Base {
  using Base::Base;
  using T = typename Base::T;
  static __device__ __forceinline__ RowPartial<T> with_sinks(const SoftmaxParams&, int64_t, const RowPartial<T>& row) {
    return row;
  }
  static __device__ __forceinline__ void leave(const SoftmaxParams& params, uint32_t linear, bool is_first,
                                               const RowPartial<T>& row) {
    if constexpr (!Base::is_backward)
      if (params.lse != nullptr && is_first)
        called_store_lse<T, false>(params, linear, Base::natural_scale(params), SinkOfRow{linear}, row);
  }
};

// Terms of kernels that take neither.
template <class Base>
struct WithoutRowValues : WithoutSinks<Base> {
  using WithoutSinks<Base>::WithoutSinks;
  static __device__ __forceinline__ typename Base::Partial begin(const SoftmaxParams& params, uint32_t, bool) {
    return Base::begin(params);
  }
  static __device__ __forceinline__ void leave(const SoftmaxParams&, uint32_t, bool,
                                               const RowPartial<typename Base::T>&) {}
};

}  // namespace flowk::softmax
