// SPDX-License-Identifier: Apache-2.0
// Softmax and its gradient of a few long rows, and of rows too long to hold. A row is split into slices, one per block,
// enough to fill the GPU. A first grid computes one partial result per slice, a second one the results.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"

namespace flowk::softmax {

constexpr int split_batch = 4;  // vectors that a thread loads together

// Forward kernels are for a dense mask; row.dense may be null.
template <class T, bool kBackward>
using SplitTerms = std::conditional_t<kBackward, GradientTerms<T>, SoftmaxTerms<T, SoftmaxMask::dense>>;

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
template <class Terms>
struct RowSlice {
  using T = typename Terms::T;
  int thread, threads, slice, slices;
  RowThreads group;  // the threads of the block
  int64_t linear;    // the row, in the grid's order
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
        linear(split.first_row + (static_cast<int64_t>(blockIdx.x) >> params.row_blocks_shift)),
        row(locate_row<Terms::mask, Terms::is_backward>(params, linear, waits)),
        vectors(row_vectors<T>(params, row)) {
    const int head_bytes = vectors.head * static_cast<int>(sizeof(T));
    x = row.x + head_bytes;
    if constexpr (Terms::is_backward) y = row.bias_or_y + head_bytes;
    out = row.out + head_bytes;
    own = own_vectors(params, x, vectors, slice, thread);
    outer_column = outer_column_of<T>(params, row, vectors, slice, thread);
  }
  __device__ __forceinline__ bool is_first() const { return slice == 0 && thread == 0 && row.columns > 0; }
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
template <class Terms>
struct SliceBatch {
  using Slice = RowSlice<Terms>;
  static constexpr int width = Terms::width, num_inputs = Terms::num_inputs;
  uint4 inputs[split_batch][num_inputs];
  DenseWords<width> dense[Terms::is_backward ? 1 : split_batch];
  int first, begin, end;

  __device__ __forceinline__ int at(const Slice& slice, int i) const { return first + i * slice.own.step; }
  __device__ __forceinline__ bool has(const Slice& slice, int i) const {
    return at(slice, i) >= begin && at(slice, i) < end;
  }
  // Vectors that are not read are as masked ones.
  __device__ __forceinline__ void load(const SoftmaxParams& params, const Slice& slice) {
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
    if constexpr (!Terms::is_backward) {
      if (params.dense != nullptr) {
        const unsigned char* const dense_vectors = slice.row.dense + slice.vectors.head;
        load_dense(params, slice.row, dense_vectors + static_cast<int64_t>(at(slice, 0)) * width,
                   slice.own.step * width, (reinterpret_cast<uintptr_t>(dense_vectors) & (width - 1)) == 0, is_read,
                   dense);
      }
    }
  }
  __device__ __forceinline__ void prepare(const SoftmaxParams& params, const Slice& slice) {
    if (params.dense == nullptr && !params.interval.exists && !params.negates_x) return;
#pragma unroll
    for (int i = 0; i < split_batch; ++i) {
      if (has(slice, i) && slice.vectors.is_read(at(slice, i)))
        Terms::prepare(params, slice.row, slice.column_of(at(slice, i)), inputs[i], dense[Terms::is_backward ? 0 : i]);
    }
  }
  // Loads the batch that starts at first_vector.
  __device__ __forceinline__ void start(const SoftmaxParams& params, const Slice& slice, int first_vector,
                                        int begin_vector, int end_vector) {
    first = first_vector;
    begin = begin_vector;
    end = end_vector;
    load(params, slice);
  }
  // Loads the first batch of the block's range of the vectors after the row's slots.
  __device__ __forceinline__ void start_behind_slots(const SoftmaxParams& params, const Slice& slice) {
    const int slot_vectors = slice.slot_vectors();
    const VectorRange part =
        slice.own.range_of(slot_vectors, slice.vectors.count, slice.slice, params.row_blocks_shift);
    start(params, slice, part.begin + slice.thread, slot_vectors, part.end);
  }
  // Calls use() for this batch and each one after it, up to `end`.
  template <class Use>
  __device__ __forceinline__ void walk(const SoftmaxParams& params, const Slice& slice, Use use) {
#pragma unroll 1
    while (first < end) {
      prepare(params, slice);
      use();
      first += split_batch * slice.own.step;
      if (first < end) load(params, slice);
    }
  }
};

// The first grid: each block writes its slice's partial result to the row's slots.
template <class Terms>
__global__ void __launch_bounds__(max_row_threads, fitting_blocks(max_row_threads, 2))
    split_row_partials(const __grid_constant__ GridConstant<SplitRow> split,
                       const __grid_constant__ GridConstant<SoftmaxParams> params) {
  const bool waits = split.first_row == 0;  // then the next grid may not start earlier
  if (!waits) launch_dependent_grids();
  const RowSlice<Terms> slice(params, split, waits);
  launch_dependent_grids();
  SliceBatch<Terms> batch;
  batch.start(params, slice, slice.own.first, slice.vectors.read_begin, slice.own.end);
  const Terms terms(params);
  typename Terms::Partial partial = terms.begin(params, slice.linear, slice.is_first());
  if (slice.outer_column >= 0) {
    typename Terms::A outer[Terms::num_inputs];
    terms.load_one(params, slice.row, slice.outer_column, outer);
    terms.take(outer, &partial);
  }
  batch.walk(params, slice, [&] { terms.take(batch.inputs, &partial); });
  slice.leave_partial(terms.merge(exchange_buffer<typename Terms::T>(), slice.group, partial));
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
  const RowSlice<Terms> slice(params, split, false);
  const SoftmaxRow& row = slice.row;
  SliceBatch<Terms> batch;
  batch.start_behind_slots(params, slice);
  wait_on_dependent_grids();
  if (row.columns == 0) return;
  const Terms terms(params);
  typename Terms::Partial partial = terms.begin(params, slice.linear, false);
  const RowPartial<T>* const partials = slice.slots().partials();
#pragma unroll 1
  for (int i = slice.thread; i < slice.slices; i += slice.threads) terms.take(partials[i], &partial);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  const RowPartial<T> total = terms.with_sinks(params, slice.linear, terms.merge(buffer, slice.group, partial));
  const unsigned arrival = slice.arrive();

  if (terms.has_nan(total)) {
    const int step = slice.threads * slice.slices, first = slice.slice * slice.threads + slice.thread;
    const int slots_end = slice.column_of(slice.slot_vectors());
    store_nan_columns<T, Terms::mask>(params, row, first, slice.vectors.head, step);
    store_nan_columns<T, Terms::mask>(params, row, slots_end + first, row.columns, step);
    if (slice.is_last(buffer, arrival))
      store_nan_columns<T, Terms::mask>(params, row, slice.vectors.head + slice.thread, slots_end, slice.threads);
    return terms.leave(params, slice.linear, slice.is_first(), total);
  }
  const auto results = terms.finish(params, total);
  const auto store = [&] {
#pragma unroll
    for (int i = 0; i < split_batch; ++i) {
      if (!batch.has(slice, i)) continue;
      ComputeType<T> values[vector_width<T>];
      results.of_vector(row, slice.column_of(batch.at(slice, i)), batch.inputs[i], values);
      store_values<T>(slice.out + static_cast<int64_t>(batch.at(slice, i)) * vector_bytes, values);
    }
  };
  batch.walk(params, slice, store);
  if (slice.outer_column >= 0) {
    ComputeType<T> outer[Terms::num_inputs];
    terms.load_one(params, row, slice.outer_column, outer);
    store_element<T>(row.out, slice.outer_column, results.of_column(row, slice.outer_column, outer));
  }
  terms.leave(params, slice.linear, slice.is_first(), total);
  if (!slice.is_last(buffer, arrival)) return;
  batch.start(params, slice, slice.thread, 0, slice.slot_vectors());
  batch.walk(params, slice, store);
}

}  // namespace flowk::softmax
