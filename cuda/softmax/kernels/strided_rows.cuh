// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient over rows whose columns lie apart in memory: any dimension but the innermost, such as the
// channels of NCHW. No masks.
#pragma once

#include "softmax/kernels/two_pass_row.cuh"

namespace flowk::softmax {

// y(row, j) = exp(z(row, j) - max) / sum over i of exp(z(row, i) - max), as two_pass_row computes it. A row's partial
// result is its largest score, and the sum of exponentials relative to it.
template <class T>
struct StridedSoftmax {
  using A = ComputeType<T>;
  using Partial = RowPartial<A>;
  struct Results {
    A reference;
    ResultFactors<A> factors;
  };
  static constexpr int num_inputs = 1;
  ScoreSteps<A> steps;
  bool log_softmax;

  __device__ __forceinline__ explicit StridedSoftmax(const SoftmaxParams& params)
      : steps(params), log_softmax(params.log_softmax) {}
  static __device__ __forceinline__ Partial empty() { return {negative_infinity<A>(), 0}; }

  // Takes the first `count` columns of `inputs`.
  template <int kColumns>
  __device__ __forceinline__ void take(const A (&inputs)[kColumns][num_inputs], int count, Partial* partial) const {
    A scores[kColumns], most = partial->max;
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      scores[k] = k < count ? inputs[k][0] * steps.step : negative_infinity<A>();
      most = larger_of(most, scores[k]);
    }
    if (most > partial->max) {
      partial->sum *= exponential<A>((partial->max - most) * steps.factor);
      partial->max = most;
    }
    ThreadSum<A> sum;
#pragma unroll
    for (int k = 0; k < kColumns; ++k)
      if (k < count && scores[k] != negative_infinity<A>())
        sum.take_one(exponential<A>((scores[k] - most) * steps.factor));
    partial->sum += sum.total();
  }
  // Merges every `step`th of the partial results before `end`, over `lanes` lanes.
  __device__ __forceinline__ Partial merge(const Partial* parts, const Partial* end, int step, int lanes) const {
    Partial merged = empty();
    for (const Partial* part = parts; part < end; part += step) merged.max = larger_of(merged.max, part->max);
    merged.max = max_over_lanes(merged.max, lanes);
    for (const Partial* part = parts; part < end; part += step)
      if (part->sum != RowValue<A>{0}) merged.sum += part->sum * exponential<A>((part->max - merged.max) * steps.factor);
    merged.sum = sum_over_lanes(merged.sum, lanes);
    return merged;
  }
  __device__ __forceinline__ Results finish(const Partial& row) const {
    return {row.max == negative_infinity<A>() ? A{0} : row.max, {log_softmax, row.sum, A{1}}};
  }
  __device__ __forceinline__ A result(const A (&inputs)[num_inputs], const Results& row) const {
    const A z = (inputs[0] * steps.step - row.reference) * steps.factor;
    return log_softmax ? z * row.factors.factor + row.factors.term : exponential<A>(z) * row.factors.factor;
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
  static __device__ __forceinline__ Partial empty() { return 0; }
  template <int kColumns>
  __device__ __forceinline__ void take(const A (&inputs)[kColumns][num_inputs], int count, Partial* partial) const {
#pragma unroll
    for (int k = 0; k < kColumns; ++k)
      if (k < count) *partial += terms.term(inputs[k]);
  }
  __device__ __forceinline__ Partial merge(const Partial* parts, const Partial* end, int step, int lanes) const {
    Partial merged = 0;
    for (const Partial* part = parts; part < end; part += step) merged += *part;
    return sum_over_lanes(merged, lanes);
  }
  __device__ __forceinline__ Results finish(const Partial& row) const { return row; }
  __device__ __forceinline__ A result(const A (&inputs)[num_inputs], const Results& row) const {
    return terms.result(inputs[0], inputs[1], row);
  }
};

// kWidth neighbouring elements of memory, of as many rows.
template <class T, int kWidth>
struct Neighbours {
  using A = ComputeType<T>;
  Pack<sizeof(T) * kWidth> pack;
  __device__ __forceinline__ void load(const unsigned char* address) {
    pack = *reinterpret_cast<const Pack<sizeof(T) * kWidth>*>(address);
  }
  __device__ __forceinline__ void widen_to(A (&values)[kWidth]) const {
    if constexpr (kWidth == 1) {
      T element;
      memcpy(static_cast<void*>(&element), &pack, sizeof(element));
      values[0] = widen(element);
    } else {
      uint32_t words[sizeof(pack) / 4];
      memcpy(words, &pack, sizeof(pack));
      widen_words<T>(words, values);
    }
  }
};

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

// A thread has `width` neighbouring rows, a column of which is one access. lanes_per_row threads share them: thread s
// takes columns s, s + lanes_per_row, ..., some at a time. The last ones stay in registers, and the others are read
// again for the results.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    strided_rows(const __grid_constant__ GridConstant<StridedRows> mechanism,
                 const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Terms::T;
  using A = ComputeType<T>;
  using Strided = std::conditional_t<Terms::is_backward, StridedGradient<T>, StridedSoftmax<T>>;
  using Partial = typename Strided::Partial;
  constexpr int width = softmax_kernels[kRow].unit_columns, columns_at_a_time = softmax_kernels[kRow].max_vectors;
  const int lanes = 1 << mechanism.lanes_shift, slices = params.lanes_per_row;
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1), slice = thread >> mechanism.lanes_shift;
  const SoftmaxRow row = locate_row<SoftmaxMask::none, Terms::is_backward>(
      params, static_cast<int64_t>(blockIdx.x) * lanes + lane);
  const Strided strided(params);
  const unsigned char* const sources[2] = {row.x, row.bias_or_y};

  Neighbours<T, width> held[columns_at_a_time][Strided::num_inputs] = {};
  const auto count_from = [&](int first) { return first < row.columns ? (row.columns - first - 1) / slices + 1 : 0; };
  const auto load = [&](int first) {
    const int count = count_from(first);
#pragma unroll
    for (int k = 0; k < columns_at_a_time; ++k)
#pragma unroll
      for (int i = 0; i < Strided::num_inputs; ++i)
        if (k < count)
          held[k][i].load(sources[i] + static_cast<int64_t>(first + k * slices) * mechanism.column_strides[i]);
  };
  const auto for_rows = [&](auto use) {
    A inputs[width][columns_at_a_time][Strided::num_inputs];
#pragma unroll
    for (int k = 0; k < columns_at_a_time; ++k)
#pragma unroll
      for (int i = 0; i < Strided::num_inputs; ++i) {
        A values[width];
        held[k][i].widen_to(values);
#pragma unroll
        for (int w = 0; w < width; ++w) inputs[w][k][i] = values[w];
      }
#pragma unroll
    for (int w = 0; w < width; ++w) use(w, inputs[w]);
  };

  Partial totals[width];
  for (Partial& total : totals) total = Strided::empty();
  const int step = columns_at_a_time * slices;
  int first = slice;
  for (;; first += step) {
    load(first);
    const int count = count_from(first);
    for_rows([&](int w, const auto& inputs) { strided.take(inputs, count, &totals[w]); });
    if (first + step >= row.columns) break;
  }

  if (slices > 1) {
    const int rows = lanes * width, pitch = strided_pitch(rows);
    Partial* const parts = reinterpret_cast<Partial*>(&shared<unsigned char>());
    Partial* const merged = parts + slices * pitch;
#pragma unroll
    for (int w = 0; w < width; ++w) parts[slice * pitch + lane * width + w] = totals[w];
    __syncthreads();
    const int share = 1 << mechanism.merge_shift, own = thread & (share - 1);
    for (int r = thread >> mechanism.merge_shift; r < rows; r += static_cast<int>(blockDim.x) >> mechanism.merge_shift) {
      const Partial total = strided.merge(parts + own * pitch + r, merged, share * pitch, share);
      if (own == 0) merged[r] = total;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < width; ++w) totals[w] = merged[lane * width + w];
  }

  typename Strided::Results row_results[width];
#pragma unroll
  for (int w = 0; w < width; ++w) row_results[w] = strided.finish(totals[w]);
  for (;; load(first)) {
    A results[columns_at_a_time][width];
    for_rows([&](int w, const auto& inputs) {
#pragma unroll
      for (int k = 0; k < columns_at_a_time; ++k) results[k][w] = strided.result(inputs[k], row_results[w]);
    });
    const int count = count_from(first);
#pragma unroll
    for (int k = 0; k < columns_at_a_time; ++k)
      if (k < count)
        store_neighbours<T>(params, row.out + static_cast<int64_t>(first + k * slices) * mechanism.out_column_stride,
                            results[k]);
    if ((first -= step) < 0) break;
  }
}

}  // namespace flowk::softmax
