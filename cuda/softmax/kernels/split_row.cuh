// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of a few long rows, and of rows too long to hold. A row is split into slices, one per block,
// enough to fill the GPU. A first grid computes one partial result per slice, a second one the results.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

constexpr int split_batch = 4;                          // vectors that a thread loads together
constexpr SoftmaxMask split_mask = SoftmaxMask::dense;  // of forward kernels; row.dense may be null

// Between the grids the first vectors of a row of `out` hold a counter of the blocks that have read them, in a vector
// of its own, and one partial result per slice. The last block of the second grid to read them writes the results over
// them.
template <class T>
struct SliceSlots {
  unsigned char* memory;
  __device__ __forceinline__ unsigned* arrivals() const { return reinterpret_cast<unsigned*>(memory); }
  __device__ __forceinline__ RowPartial<T>* partials() const {
    return reinterpret_cast<RowPartial<T>*>(memory + vector_bytes);
  }
};

// A block's row, and its slice of that row.
template <class T, bool kBackward>
struct RowSlice {
  int thread, threads, slice, slices;
  RowThreads group;  // the threads of the block
  SoftmaxRow row;
  RowVectors vectors;
  const unsigned char* x;            // the row's first vector
  const unsigned char* y = nullptr;  // backward: of y
  unsigned char* out;
  OwnVectors own;
  int outer_column;

  // The first grid of a call waits for the stream's previous grid before its first access to memory. Later grids start
  // only when all blocks of the grid before have started, so that memory written by the stream's previous grid is
  // complete; they wait before they access slots.
  __device__ __forceinline__ RowSlice(const SoftmaxParams& params, const SplitRow& split, bool waits)
      : thread(static_cast<int>(threadIdx.x)),
        threads(static_cast<int>(blockDim.x)),
        slice(static_cast<int>(blockIdx.x) & ((1 << params.row_blocks_shift) - 1)),
        slices(1 << params.row_blocks_shift),
        group{thread & 31, 32, thread / 32, threads / 32, 0, 1},
        row(locate_row<split_mask, kBackward>(
            params, split.first_row + (static_cast<int64_t>(blockIdx.x) >> params.row_blocks_shift), waits)),
        vectors(row_vectors<T>(params, row)) {
    const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
    x = row.x + head_bytes;
    if constexpr (kBackward) y = row.bias_or_y + head_bytes;
    out = row.out + head_bytes;
    own = own_vectors(params, x, vectors, slice, thread);
    outer_column = outer_column_of<T>(params, row, vectors, slice, thread);
  }
  __device__ __forceinline__ SliceSlots<T> slots() const { return {out}; }
  __device__ __forceinline__ int slot_vectors() const { return slice_slot_vectors(sizeof(RowPartial<T>), slices); }
  __device__ __forceinline__ int column_of(int vector) const { return vectors.head + vector * vector_width<T>; }

  // Counts the block as having read the slots, after a barrier. is_last(), called by all threads: was it the last
  // block?
  __device__ __forceinline__ unsigned arrive() const {
    if (thread != 0) return 0;
    __threadfence();
    return atomicAdd(slots().arrivals(), 1u);
  }
  __device__ __forceinline__ bool is_last(const ExchangeBuffer<T>& buffer, unsigned arrival) const {
    bool* const last = reinterpret_cast<bool*>(buffer.memory);
    if (thread == 0) {
      *last = arrival == static_cast<unsigned>(slices) - 1;
      __threadfence();
    }
    __syncthreads();
    return *last;
  }
  __device__ __forceinline__ void leave_partial(const RowPartial<T>& partial) const {
    wait_on_dependent_grids();
    if (thread != 0 || row.columns == 0) return;
    slots().partials()[slice] = partial;
    if (slice == 0) *slots().arrivals() = 0;
  }
};

// A batch of a thread's vectors, own.step apart, within [begin, end) of the row; masked vectors are not read.
template <class T, bool kBackward>
struct SliceBatch {
  using Terms = std::conditional_t<kBackward, GradientTerms<T>, SoftmaxTerms<T, split_mask>>;
  static constexpr int width = vector_width<T>, num_inputs = Terms::num_inputs;
  uint4 inputs[split_batch][num_inputs];
  DenseWords<width> dense[kBackward ? 1 : split_batch];
  int first, begin, end;

  __device__ __forceinline__ int at(const RowSlice<T, kBackward>& slice, int i) const {
    return first + i * slice.own.step;
  }
  __device__ __forceinline__ bool has(const RowSlice<T, kBackward>& slice, int i) const {
    return at(slice, i) >= begin && at(slice, i) < end;
  }
  // Vectors that are not read are as masked ones.
  __device__ __forceinline__ void load(const SoftmaxParams& params, const RowSlice<T, kBackward>& slice) {
    const auto is_read = [&](int i) { return has(slice, i) && slice.vectors.is_read(at(slice, i)); };
    const auto offset_of = [&](int i) { return static_cast<int64_t>(at(slice, i)) * vector_bytes; };
#pragma unroll
    for (int i = 0; i < split_batch; ++i) {
#pragma unroll
      for (int k = 0; k < num_inputs; ++k) {
        inputs[i][k] = Terms::masked_vector(params, k);
        if (is_read(i)) inputs[i][k] = load_vector((k == 0 ? slice.x : slice.y) + offset_of(i));
      }
    }
    if constexpr (!kBackward) {
      if (params.dense != nullptr) {
        const unsigned char* const dense_vectors = slice.row.dense + slice.vectors.head;
        load_dense(params, slice.row, dense_vectors + static_cast<int64_t>(at(slice, 0)) * width,
                   slice.own.step * width, (reinterpret_cast<uintptr_t>(dense_vectors) & (width - 1)) == 0, is_read,
                   dense);
      }
    }
  }
  __device__ __forceinline__ void mask(const SoftmaxParams& params, const RowSlice<T, kBackward>& slice) {
    if (params.dense == nullptr && !params.interval.exists && !params.negates_x) return;
#pragma unroll
    for (int i = 0; i < split_batch; ++i) {
      if (!has(slice, i) || !slice.vectors.is_read(at(slice, i))) continue;
      const int column = slice.column_of(at(slice, i));
      if constexpr (kBackward) {
        if (params.interval.exists) Terms::cut(params, slice.row, column, &inputs[i][0], &inputs[i][1]);
      } else {
        uint4* const x = &inputs[i][0];
        if (params.negates_x) negate_vector<T>(x);
        if (params.interval.exists && (column < slice.row.begin || column + width > slice.row.end))
          select_interval<T>(x, column, slice.row.begin, slice.row.end, negative_infinity_vector<T>());
        if (params.dense != nullptr) mask_vector<T>(x, dense[i]);
      }
    }
  }
  // Loads the batch that starts at first_vector.
  __device__ __forceinline__ void start(const SoftmaxParams& params, const RowSlice<T, kBackward>& slice,
                                        int first_vector, int begin_vector, int end_vector) {
    first = first_vector;
    begin = begin_vector;
    end = end_vector;
    load(params, slice);
  }
  // Loads the first batch of the block's range of the vectors after the row's slots.
  __device__ __forceinline__ void start_behind_slots(const SoftmaxParams& params, const RowSlice<T, kBackward>& slice) {
    const int slot_vectors = slice.slot_vectors();
    const VectorRange part =
        slice.own.range_of(slot_vectors, slice.vectors.count, slice.slice, params.row_blocks_shift);
    start(params, slice, part.begin + slice.thread, slot_vectors, part.end);
  }
  // Calls use() for this batch and each one after it, up to `end`.
  template <class Use>
  __device__ __forceinline__ void walk(const SoftmaxParams& params, const RowSlice<T, kBackward>& slice, Use use) {
#pragma unroll 1
    while (first < end) {
      mask(params, slice);
      use();
      first += split_batch * slice.own.step;
      if (first < end) load(params, slice);
    }
  }
};

// A slice's largest score z = scale * x, and the sum of exp(z - max).
template <class Input>
struct SplitScores {
  using T = Input;
  using A = ComputeType<T>;
  using Slice = RowSlice<T, false>;
  using Batch = SliceBatch<T, false>;
  static constexpr bool is_backward = false;
  RunningSum<T, split_mask> running;

  __device__ __forceinline__ explicit SplitScores(const SoftmaxParams& params)
      : running{exponent_scale<T, split_mask>(params)} {}
  __device__ __forceinline__ void take_outer(const SoftmaxParams& params, const Slice& slice) {
    if (!is_unmasked<split_mask>(slice.row, slice.outer_column)) return;
    const A outer = load_score<T, split_mask>(params, slice.row, slice.outer_column);
    running.raise(outer);
    running.sum = exponential<T>(running.to_exponent()(outer));
  }
  __device__ __forceinline__ void take(const SoftmaxParams&, const Batch& batch) {
    VectorMax<T> largest;
#pragma unroll
    for (int i = 0; i < split_batch; ++i) largest.take(batch.inputs[i][0]);
    running.raise(largest.largest());
    const ScoreScale<T, split_mask> to_exponent = running.to_exponent();
    ThreadSum<T> sum;
#pragma unroll
    for (int i = 0; i < split_batch; ++i) {
      A p[vector_width<T>];
      widen_vector<T>(batch.inputs[i][0], p);
#pragma unroll
      for (int j = 0; j < vector_width<T>; ++j) p[j] = exponential<T>(to_exponent(p[j]));
      sum.take(p);
    }
    running.sum += sum.total();
  }
  __device__ __forceinline__ void take_partial(const RowPartial<T>& partial) {
    running.raise(partial.max);
    if (partial.sum == RowValue<T>{0}) return;
    const ScoreScale<T, split_mask> to_exponent(partial.max, running.scale);
    running.sum += partial.sum * exponential<T>(to_exponent.to_reference(running.to_exponent().reference));
  }
  // Of all threads of the block.
  __device__ __forceinline__ RowPartial<T> total(const RowThreads& group) {
    running.raise(max_over_lanes(running.max, 32));
    return combine_row<T, split_mask>(exchange_buffer<T>(), group, {running.max, sum_over_lanes(running.sum, 32)},
                                      running.scale);
  }

  // y(row, j) from the whole row's maximum and sum.
  struct Results : RowResults<T, split_mask> {
    using RowResults<T, split_mask>::RowResults, RowResults<T, split_mask>::of;
    __device__ __forceinline__ void of_vector(const Slice&, const Batch& batch, int i, A (&y)[vector_width<T>]) const {
      widen_vector<T>(batch.inputs[i][0], y);
#pragma unroll
      for (int j = 0; j < vector_width<T>; ++j) y[j] = of(y[j]);
    }
    __device__ __forceinline__ A of_outer(const SoftmaxParams& params, const Slice& slice) const {
      A outer[1];
      SoftmaxTerms<T, split_mask>::load_outer(params, slice.row, slice.outer_column, outer);
      return of(outer[0]);
    }
  };
  __device__ __forceinline__ Results results(const SoftmaxParams& params, const RowPartial<T>& row) const {
    return {params, row};
  }
};

// A slice's sum of y * dy, with log_softmax of dy.
template <class Input>
struct SplitGradients {
  using T = Input;
  using A = ComputeType<T>;
  using Slice = RowSlice<T, true>;
  using Batch = SliceBatch<T, true>;
  static constexpr bool is_backward = true;
  const GradientTerms<T> terms;
  A sum = 0;

  __device__ __forceinline__ explicit SplitGradients(const SoftmaxParams& params) : terms(params) {}
  __device__ __forceinline__ void take_outer(const SoftmaxParams& params, const Slice& slice) {
    A outer[2];
    terms.load_outer(params, slice.row, slice.outer_column, outer);
    sum = terms.term(outer);
  }
  __device__ __forceinline__ void take(const SoftmaxParams&, const Batch& batch) {
#pragma unroll
    for (int i = 0; i < split_batch; ++i) sum += terms.vector_term(batch.inputs[i][0], batch.inputs[i][1]);
  }
  __device__ __forceinline__ void take_partial(const RowPartial<T>& partial) { sum += static_cast<A>(partial.sum); }
  __device__ __forceinline__ RowPartial<T> total(const RowThreads& group) const {
    return {A{0}, sum_row(exchange_buffer<T>(), group, sum_over_lanes(sum, 32))};
  }

  // dx(row, j) from the whole row's sum.
  struct Results {
    const GradientTerms<T> terms;
    A sum;
    __device__ __forceinline__ void of_vector(const Slice& slice, const Batch& batch, int i,
                                              A (&dx)[vector_width<T>]) const {
      terms.vector_results(slice.row, slice.column_of(batch.at(slice, i)), batch.inputs[i][0], batch.inputs[i][1], sum,
                           dx);
    }
    __device__ __forceinline__ A of_outer(const SoftmaxParams& params, const Slice& slice) const {
      A outer[2];
      terms.load_outer(params, slice.row, slice.outer_column, outer);
      return terms.outer_result(slice.row, slice.outer_column, outer, sum);
    }
  };
  __device__ __forceinline__ Results results(const SoftmaxParams&, const RowPartial<T>& row) const {
    return {terms, static_cast<A>(row.sum)};
  }
};

// The first grid: each block writes its slice's partial result, computed by `Terms`, to the row's slots.
template <class Terms>
__global__ void __launch_bounds__(max_row_threads, fitting_blocks(max_row_threads, 2))
    split_row_partials(const __grid_constant__ GridConstant<SplitRow> split,
                       const __grid_constant__ GridConstant<SoftmaxParams> params) {
  const bool waits = split.first_row == 0;  // then the next grid may not start earlier
  if (!waits) launch_dependent_grids();
  const typename Terms::Slice slice(params, split, waits);
  launch_dependent_grids();
  typename Terms::Batch batch;
  batch.start(params, slice, slice.own.first, slice.vectors.read_begin, slice.own.end);
  Terms terms(params);
  if (slice.outer_column >= 0) terms.take_outer(params, slice);
  batch.walk(params, slice, [&] { terms.take(params, batch); });
  slice.leave_partial(terms.total(slice.group));
}

// The second grid, from the partial results of all slices of a row: y(row, j) = exp(z(row, j) - max) / sum over
// unmasked i of exp(z(row, i) - max), or dx(row, j) = scale * y(row, j) * (dy(row, j) - sum over i of y(row, i) *
// dy(row, i)). All operands are (rows, columns); a dense mask has one byte per column.
template <class Terms, int kRow>
__global__ void __launch_bounds__(softmax_kernels[kRow].max_threads, kernel_blocks<kRow>())
    split_row_results(const __grid_constant__ GridConstant<SplitRow> split,
                      const __grid_constant__ GridConstant<SoftmaxParams> params) {
  launch_dependent_grids();
  using T = typename Terms::T;
  const typename Terms::Slice slice(params, split, false);
  const SoftmaxRow& row = slice.row;
  typename Terms::Batch batch;
  batch.start_behind_slots(params, slice);
  wait_on_dependent_grids();
  if (row.columns == 0) return;
  Terms terms(params);
  const RowPartial<T>* const partials = slice.slots().partials();
#pragma unroll 1
  for (int i = slice.thread; i < slice.slices; i += slice.threads) terms.take_partial(partials[i]);
  const RowPartial<T> total = terms.total(slice.group);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  const unsigned arrival = slice.arrive();

  if constexpr (!Terms::is_backward) {
    if (total.sum != total.sum) {
      const int step = slice.threads * slice.slices, first = slice.slice * slice.threads + slice.thread;
      const int slots_end = slice.column_of(slice.slot_vectors());
      store_nan_columns<T, split_mask>(params, row, first, slice.vectors.head, step);
      store_nan_columns<T, split_mask>(params, row, slots_end + first, row.columns, step);
      if (slice.is_last(buffer, arrival))
        store_nan_columns<T, split_mask>(params, row, slice.vectors.head + slice.thread, slots_end, slice.threads);
      return;
    }
  }
  const auto results = terms.results(params, total);
  const auto store = [&] {
#pragma unroll
    for (int i = 0; i < split_batch; ++i) {
      if (!batch.has(slice, i)) continue;
      ComputeType<T> values[vector_width<T>];
      results.of_vector(slice, batch, i, values);
      store_values<T>(slice.out + static_cast<int64_t>(batch.at(slice, i)) * vector_bytes, values);
    }
  };
  batch.walk(params, slice, store);
  if (slice.outer_column >= 0) store_element<T>(row.out, slice.outer_column, results.of_outer(params, slice));
  if (!slice.is_last(buffer, arrival)) return;
  batch.start(params, slice, slice.thread, 0, slice.slot_vectors());
  batch.walk(params, slice, store);
}

}  // namespace flowk::softmax
