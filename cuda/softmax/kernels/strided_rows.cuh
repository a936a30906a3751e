// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient over rows whose columns lie apart in memory: any dimension but the innermost, such as the
// channels of NCHW. No masks.
#pragma once

#include "softmax/kernels/two_pass_row.cuh"

namespace flowk::softmax {

// y(row, j) = exp(z(row, j) - max) / sum over i of exp(z(row, i) - max). Scores are as in two_pass_row: an exponent is
// (score - reference) * factor, in the base of exponential<E>(). A partial result is the largest score of some columns,
// and the sum of exponentials relative to it. E is the type that results are right for: T, or float.
template <class T, class E>
struct StridedSoftmax {
  using A = ComputeType<T>;
  using Partial = RowPartial<E>;
  static constexpr int num_inputs = 1;
  // A result is value * factor, or for logarithms value * factor + term.
  struct Results {
    A factor, term;
  };
  A size, factor;  // an exponent is (score * size - reference * size) * factor
  bool log_softmax, negates;

  __device__ __forceinline__ explicit StridedSoftmax(const SoftmaxParams& params)
      : log_softmax(params.log_softmax), negates(params.negates_x) {
    const ScoreSteps<A> steps(params, params.bias_or_y != nullptr);
    size = negates ? -steps.step : steps.step;
    factor = steps.factor * static_cast<A>(base_per_natural<E>);
  }
  __device__ __forceinline__ Partial empty() const { return {negative_infinity<A>(), 0}; }
  // The input that prepare() turns into a score of -infinity.
  __device__ __forceinline__ A masked_input() const {
    return negates ? -negative_infinity<A>() : negative_infinity<A>();
  }
  template <int kWidth, int kColumns>
  __device__ __forceinline__ void prepare(A (&values)[kWidth][kColumns][num_inputs]) const {
    if (!negates) return;
#pragma unroll
    for (auto& row : values)
#pragma unroll
      for (auto& column : row) column[0] = -column[0];
  }
  static __device__ __forceinline__ A reference_of(A max) { return max == negative_infinity<A>() ? A{0} : max; }

  // A difference of scores could overflow before it is scaled.
  __device__ __forceinline__ A difference(A score, A reference) const { return fma(score, size, -(reference * size)); }
  __device__ __forceinline__ A exponent(A score, A reference) const { return difference(score, reference) * factor; }

  // Takes a thread's columns of a row. Their values become exponentials, or for logarithms differences.
  template <int kColumns>
  __device__ __forceinline__ void take(A (&values)[kColumns][num_inputs], int count, Partial* partial) const {
    A most = partial->max;
#pragma unroll
    for (int k = 0; k < kColumns; ++k) most = larger_of(most, values[k][0]);
    if (most > partial->max) {
      partial->sum *= exponential<E>(exponent(partial->max, most));
      partial->max = most;
    }
    partial->sum += exponentiate(values, count, most);
  }
  template <int kColumns>
  __device__ __forceinline__ RowValue<E> exponentiate(A (&values)[kColumns][num_inputs], int count, A max) const {
    const A reference = reference_of(max);
    ThreadSum<E> sum;
    if (log_softmax) {
#pragma unroll
      for (int k = 0; k < kColumns; ++k) {
        if (k >= count) break;
        values[k][0] = difference(values[k][0], reference);
        sum.take_one(exponential<E>(values[k][0] * factor));
      }
    } else {
#pragma unroll
      for (int k = 0; k < kColumns; ++k) {
        if (k >= count) break;
        values[k][0] = exponential<E>(exponent(values[k][0], reference));
        sum.take_one(values[k][0]);
      }
    }
    return sum.total();
  }
  // The same columns once more, when the row's result is known.
  template <int kColumns>
  __device__ __forceinline__ void retake(A (&values)[kColumns][num_inputs], int count, const Partial& row) const {
    exponentiate(values, count, row.max);
  }

  // Merges the partial results from `parts` to `end`, which are `pitch` apart, then the results of `lanes` lanes.
  __device__ __forceinline__ Partial merge(const Partial* parts, const Partial* end, int pitch, int lanes) const {
    Partial merged = empty();
    for (const Partial* part = parts; part < end; part += pitch) merged.max = larger_of(merged.max, part->max);
    merged.max = max_over_lanes(merged.max, lanes);
    for (const Partial* part = parts; part < end; part += pitch)
      if (part->sum != RowValue<E>{0}) merged.sum += part->sum * exponential<E>(exponent(part->max, merged.max));
    merged.sum = sum_over_lanes(merged.sum, lanes);
    return merged;
  }
  // For values relative to `max`.
  __device__ __forceinline__ Results finish(const Partial& row, A max) const {
    const ResultFactors<E> factors(log_softmax, row.sum, factor * static_cast<A>(natural_per_base<E>));
    const A change = difference(reference_of(max), reference_of(row.max));
    if (log_softmax) return {factors.factor, change * factors.factor + factors.term};
    // If the maximum is -infinity, all exponentials are 0, or one is NaN.
    return {factors.factor * (max == negative_infinity<A>() ? A{0} : exponential<E>(change * factor)), 0};
  }
  static __device__ __forceinline__ A max_of(const Partial& partial) { return partial.max; }
  __device__ __forceinline__ A result(const A (&value)[num_inputs], const Results& row) const {
    return log_softmax ? fma(value[0], row.factor, row.term) : value[0] * row.factor;
  }
};

// dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) * dy(row, i)), as GradientTerms has it.
template <class T>
struct StridedGradient {
  using A = ComputeType<T>;
  using Partial = A;
  using Results = A;
  static constexpr int num_inputs = 2;
  GradientTerms<T> terms;

  __device__ __forceinline__ explicit StridedGradient(const SoftmaxParams& params) : terms(params) {}
  __device__ __forceinline__ Partial empty() const { return 0; }
  __device__ __forceinline__ A masked_input() const { return 0; }
  template <int kWidth, int kColumns>
  __device__ __forceinline__ void prepare(A (&)[kWidth][kColumns][num_inputs]) const {}
  template <int kColumns>
  __device__ __forceinline__ void take(A (&values)[kColumns][num_inputs], int, Partial* partial) const {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) *partial += terms.term(values[k]);
  }
  template <int kColumns>
  __device__ __forceinline__ void retake(A (&)[kColumns][num_inputs], int, const Partial&) const {}
  __device__ __forceinline__ Partial merge(const Partial* parts, const Partial* end, int pitch, int lanes) const {
    Partial merged = 0;
    for (const Partial* part = parts; part < end; part += pitch) merged += *part;
    return sum_over_lanes(merged, lanes);
  }
  static __device__ __forceinline__ A max_of(const Partial&) { return 0; }
  __device__ __forceinline__ Results finish(const Partial& row, A) const { return row; }
  __device__ __forceinline__ A result(const A (&value)[num_inputs], const Results& row) const {
    return terms.result(value[0], value[1], row);
  }
};

// Loads one column of kWidth neighbouring rows, which are neighbours in memory.
template <class T, int kWidth>
__device__ __forceinline__ void load_neighbours(const unsigned char* address, ComputeType<T> (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    values[0] = load_element<T>(address, 0);
  } else {
    const auto pack = *reinterpret_cast<const Pack<sizeof(T) * kWidth>*>(address);
    uint32_t words[sizeof(pack) / 4];
    memcpy(words, &pack, sizeof(pack));
    widen_words<T>(words, values);
  }
}

// Stores the results of neighbouring rows; of one row, in any type.
template <class T, int kWidth>
__device__ __forceinline__ void store_neighbours(const SoftmaxParams& params, unsigned char* address,
                                                 const ComputeType<T> (&values)[kWidth]) {
  if constexpr (kWidth == 1) {
    RowOutput<T, sizeof(T) < 8>{params}.store_column(address, 0, values[0]);
  } else {
    uint32_t words[sizeof(T) * kWidth / 4];
    narrow_words<T>(values, words);
    Pack<sizeof(T) * kWidth> pack;
    memcpy(&pack, words, sizeof(pack));
    *reinterpret_cast<Pack<sizeof(T) * kWidth>*>(address) = pack;
  }
}

// A thread has kWidth neighbouring rows, a column of which is one access. lanes_per_row threads share them: thread s
// takes columns s, s + lanes_per_row, ..., kColumns at a time. The last ones stay in registers, and the others are read
// again for the results.
template <class Strided, class T, int kWidth, int kColumns>
__device__ __forceinline__ void compute_strided_rows(const StridedRows& mechanism, const SoftmaxParams& params,
                                                     const SoftmaxRow& row) {
  using A = ComputeType<T>;
  using Partial = typename Strided::Partial;
  const int lanes = 1 << mechanism.lanes_shift, slices = params.lanes_per_row;
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1),
            slice = thread >> mechanism.lanes_shift;
  const Strided strided(params);
  const unsigned char* const sources[2] = {row.x, row.bias_or_y};

  A values[kWidth][kColumns][Strided::num_inputs];
  const auto load = [&](int first) {
    const unsigned char* at[Strided::num_inputs];
#pragma unroll
    for (int i = 0; i < Strided::num_inputs; ++i) at[i] = sources[i] + first * mechanism.column_strides[i];
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      const int column = first + k * slices;
#pragma unroll
      for (int i = 0; i < Strided::num_inputs; ++i) {
        A loaded[kWidth];
#pragma unroll
        for (A& value : loaded) value = strided.masked_input();
        if (column < row.columns) load_neighbours<T>(at[i], loaded);
        at[i] += slices * mechanism.column_strides[i];
#pragma unroll
        for (int w = 0; w < kWidth; ++w) values[w][k][i] = loaded[w];
      }
    }
    strided.prepare(values);
  };
  // The most columns that a thread of the block takes from its `first` one on.
  const auto count_from = [&](int first) { return (params.columns - (first - slice) - 1) / slices + 1; };

  Partial own[kWidth], totals[kWidth];
#pragma unroll
  for (Partial& partial : own) partial = strided.empty();
  const int step = kColumns * slices;
  int first = slice;
  for (;; first += step) {
    load(first);
#pragma unroll
    for (int w = 0; w < kWidth; ++w) strided.take(values[w], count_from(first), &own[w]);
    if (first - slice + step >= params.columns) break;
  }

#pragma unroll
  for (int w = 0; w < kWidth; ++w) totals[w] = own[w];
  if (slices > 1) {
    const int rows = lanes * kWidth, pitch = strided_pitch(rows);
    Partial* const parts = reinterpret_cast<Partial*>(&shared<unsigned char>());
    Partial* const merged = parts + slices * pitch;
#pragma unroll
    for (int w = 0; w < kWidth; ++w) parts[slice * pitch + lane * kWidth + w] = own[w];
    __syncthreads();
    const int share = 1 << mechanism.merge_shift, part = thread & (share - 1);
    for (int r = thread >> mechanism.merge_shift; r < rows;
         r += static_cast<int>(blockDim.x) >> mechanism.merge_shift) {
      const Partial total = strided.merge(parts + part * pitch + r, merged, share * pitch, share);
      if (part == 0) merged[r] = total;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWidth; ++w) totals[w] = merged[lane * kWidth + w];
  }

  typename Strided::Results results[kWidth];
#pragma unroll
  for (int w = 0; w < kWidth; ++w) results[w] = strided.finish(totals[w], strided.max_of(own[w]));
  for (;;) {
    unsigned char* at = row.out + first * mechanism.out_column_stride;
#pragma unroll
    for (int k = 0; k < kColumns; ++k, at += slices * mechanism.out_column_stride) {
      if (first + k * slices >= row.columns) break;
      A of_rows[kWidth];
#pragma unroll
      for (int w = 0; w < kWidth; ++w) of_rows[w] = strided.result(values[w][k], results[w]);
      store_neighbours<T>(params, at, of_rows);
    }
    if ((first -= step) < 0) break;
    load(first);
#pragma unroll
    for (int w = 0; w < kWidth; ++w) {
      strided.retake(values[w], kColumns, totals[w]);
      results[w] = strided.finish(totals[w], strided.max_of(totals[w]));
    }
  }
}

template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    strided_rows(const __grid_constant__ GridConstant<StridedRows> mechanism,
                 const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Terms::T;
  constexpr int width = softmax_kernels[kRow].unit_columns, columns = softmax_kernels[kRow].max_vectors;
  const int lane = static_cast<int>(threadIdx.x) & (params.rows_per_block - 1);
  const SoftmaxRow row = locate_row<SoftmaxMask::none, Terms::is_backward>(
      params, static_cast<int64_t>(blockIdx.x) * params.rows_per_block + lane);
  if constexpr (Terms::is_backward) {
    compute_strided_rows<StridedGradient<T>, T, width, columns>(mechanism, params, row);
  } else {
    if constexpr (width == 1 && is_float16<T>)
      if (!params.out_is_x_type)  // results of float32
        return compute_strided_rows<StridedSoftmax<T, float>, T, width, columns>(mechanism, params, row);
    compute_strided_rows<StridedSoftmax<T, T>, T, width, columns>(mechanism, params, row);
  }
}

}  // namespace flowk::softmax
