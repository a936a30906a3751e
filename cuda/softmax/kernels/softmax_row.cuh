// SPDX-License-Identifier: Apache-2.0
// A row: its addresses, its unmasked interval of columns, and the vectors that each thread reads.
#pragma once

#include "core/index_split.h"
#include "flowk/detail/pdl.cuh"
#include "softmax/kernels/softmax_vector.cuh"

namespace flowk::softmax {

struct SoftmaxRow {
  const unsigned char* x = nullptr;
  const unsigned char* bias_or_y = nullptr;
  const unsigned char* dense = nullptr;
  unsigned char* out = nullptr;
  int columns = 0;  // 0: there is no such row
  int begin = 0;    // the unmasked interval is [begin, end)
  int end = 0;
};

// Cuts a row's interval to the length at `length_offset`.
__device__ __forceinline__ void find_length(const SoftmaxParams& params, int64_t length_offset, SoftmaxRow* row) {
  const int columns = params.columns;
  const unsigned char* address = params.interval.lengths + length_offset;
  const auto clamp = [columns](auto n) { return n < 0 ? 0 : n > columns ? columns : static_cast<int>(n); };
  const int length = params.interval.lengths_bytes == 4 ? clamp(*reinterpret_cast<const int32_t*>(address))
                                                        : clamp(*reinterpret_cast<const int64_t*>(address));
  if (params.interval.lengths_from_right)
    row->begin = columns - length;
  else
    row->end = length;
}

// The interval of columns that lengths, causal and window leave: max(begin, number + diagonal_begin) to min(length,
// number + diagonal_end). The length is at `length_offset`; `number` is the row's number among its q rows.
__device__ __forceinline__ void find_interval(const SoftmaxParams& params, int64_t length_offset, int64_t number,
                                              SoftmaxRow* row) {
  const int columns = params.columns;
  row->begin = 0;
  row->end = columns;
  if (params.interval.lengths_bytes != 0) find_length(params, length_offset, row);
  int begin = row->begin, end = row->end;
  if (params.interval.has_diagonal) {
    const int64_t diagonal_begin = number + params.interval.diagonal_begin;
    const int64_t diagonal_end = number + params.interval.diagonal_end;
    if (diagonal_end < end) end = diagonal_end < 0 ? 0 : static_cast<int>(diagonal_end);
    if (diagonal_begin > begin) begin = diagonal_begin > columns ? columns : static_cast<int>(diagonal_begin);
  }
  row->begin = begin < end ? begin : 0;
  row->end = begin < end ? end : 0;
}

// The offset of the length of row `linear`, and the row's number among its q rows. For fewer than 2^31 rows, without
// L2 tiles.
struct IntervalPosition {
  int64_t length_offset = 0;
  int64_t number = 0;
};

__device__ __forceinline__ IntervalPosition interval_position(const SoftmaxParams& params, uint32_t linear) {
  IntervalPosition position;
  split_index<2>(linear, params.rows.dims, params.rows.rank, [&](int d, uint32_t index) {
    position.length_offset += index * params.rows.dims[d].strides[softmax_lengths];
    position.number += index * params.rows.dims[d].strides[softmax_row];
  });
  return position;
}

// The thread's row in the grid's order, and its lane among the row's threads in its block.
struct RowPosition {
  int64_t linear;
  int lane;
};

__device__ __forceinline__ RowPosition row_position(const SoftmaxParams& params) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t linear = static_cast<int64_t>(blockIdx.x) >> params.row_blocks_shift;
  if (params.rows_per_block == 1) return {linear, thread};
  return {linear * params.rows_per_block + (thread >> params.rows_shift), thread & (params.lanes_per_row - 1)};
}

// Finds row `linear` of the grid's order: out(row) = out + sum over d of index[d] * strides[d], the other operands
// likewise. Waits for the stream's previous grid first, before any access to memory, if `waits`.
template <SoftmaxMask kMask, bool kBackward, SoftmaxForm kForm = SoftmaxForm::any>
__device__ __forceinline__ SoftmaxRow locate_row(const SoftmaxParams& params, int64_t linear, bool waits = true) {
  constexpr bool has_bias_or_y = kBackward || kMask == SoftmaxMask::bias;
  constexpr bool has_dense = !kBackward && may_have_dense(kMask);
  // Rows at a constant stride in x and out, and no other operand.
  if constexpr (has_whole_rows<kForm> && !has_dense) {
    SoftmaxRow row;
    const bool row_exists = linear < params.rows.num_rows;
    const uint64_t number = row_exists ? static_cast<uint32_t>(linear) : 0u;
    row.x = params.x + number * static_cast<uint32_t>(params.rows.dims[0].strides[softmax_x]);
    row.out = params.out + number * static_cast<uint32_t>(params.rows.dims[0].strides[softmax_out]);
    if constexpr (has_bias_or_y)
      row.bias_or_y = params.bias_or_y + number * static_cast<uint32_t>(params.rows.dims[0].strides[softmax_bias_or_y]);
    row.columns = row.end = row_exists ? params.columns : 0;
    wait_on_dependent_grids();
    return row;
  }
  // A row past the last one has no columns. Its pointers are the tensors', so that the compiler knows that they point
  // to global memory.
  bool exists = linear < params.rows.num_rows;
  if (!exists) linear = 0;
  int64_t offsets[num_softmax_operands] = {};
  int64_t tiled_row = 0;
  constexpr int num_unrolled = 4;
  const uint32_t narrow = static_cast<uint32_t>(linear);
  const auto step = [&](int d, int64_t index) {
    const SoftmaxRowDim& dim = params.rows.dims[d];
    offsets[softmax_x] += index * dim.strides[softmax_x];
    offsets[softmax_out] += index * dim.strides[softmax_out];
    if constexpr (has_bias_or_y) offsets[softmax_bias_or_y] += index * dim.strides[softmax_bias_or_y];
    if constexpr (has_dense) offsets[softmax_dense] += index * dim.strides[softmax_dense];
    if (!has_whole_rows<kForm> && params.interval.exists) {
      offsets[softmax_lengths] += index * dim.strides[softmax_lengths];
      offsets[softmax_row] += index * dim.strides[softmax_row];
    }
    if (params.rows.l2_tile_dim > 0) {
      if (d == 0) tiled_row += index;
      if (d == params.rows.l2_tile_dim) tiled_row += index * params.rows.l2_tile_rows;
    }
  };
  if (has_dense && !has_bias_or_y && params.seeks_dense_alone) {
    offsets[softmax_x] = static_cast<int64_t>(narrow) * params.rows.dims[0].strides[softmax_x];
    offsets[softmax_out] = static_cast<int64_t>(narrow) * params.rows.dims[0].strides[softmax_out];
    split_index<num_unrolled>(narrow, params.rows.dims, params.rows.rank, [&](int d, uint32_t index) {
      offsets[softmax_dense] += index * params.rows.dims[d].strides[softmax_dense];
    });
  } else if (params.rows.is_wide) {
    split_index<0>(static_cast<uint64_t>(linear), params.rows.dims, params.rows.rank, step);
  } else if (params.rows.rank <= 1) {
    step(0, narrow);
  } else {
    split_index<num_unrolled>(narrow, params.rows.dims, params.rows.rank, step);
  }
  if (params.rows.l2_tile_dim > 0 && tiled_row >= params.rows.l2_tile_extent) {
    exists = false;
    if constexpr (has_whole_rows<kForm>)
      for (int64_t& offset : offsets) offset = 0;
  }
  SoftmaxRow row;
  row.x = params.x + offsets[softmax_x];
  row.out = params.out + offsets[softmax_out];
  if constexpr (has_bias_or_y) row.bias_or_y = params.bias_or_y + offsets[softmax_bias_or_y];
  if constexpr (has_dense) row.dense = params.dense == nullptr ? nullptr : params.dense + offsets[softmax_dense];
  row.columns = row.end = exists ? params.columns : 0;
  if (waits) wait_on_dependent_grids();
  if (!has_whole_rows<kForm> && params.interval.exists && exists)
    find_interval(params, offsets[softmax_lengths], offsets[softmax_row], &row);
  return row;
}

// The value of row `linear` of the grid's order in an operand at `base` that has one value per row.
template <class A>
__device__ __forceinline__ A* row_value(const SoftmaxParams& params, unsigned char* base, SoftmaxOperand operand,
                                        uint32_t linear) {
  split_index<0>(linear, params.rows.dims, params.rows.rank,
                 [&](int d, uint32_t index) { base += index * params.rows.dims[d].strides[operand]; });
  return reinterpret_cast<A*>(base);
}

// The 16-byte vectors of a row of x; their columns are whole vectors, or halves, of the other operands.
struct RowVectors {
  int head = 0;        // columns before the first vector
  int count = 0;       // vectors that lie inside the row
  int read_begin = 0;  // the vectors with a column in [begin, end)
  int read_end = 0;
  __device__ __forceinline__ bool is_read(int vector) const {
    return static_cast<unsigned>(vector - read_begin) < static_cast<unsigned>(read_end - read_begin);
  }
};

template <class T, SoftmaxForm kForm = SoftmaxForm::any>
__device__ __forceinline__ RowVectors row_vectors(const SoftmaxParams& params, const SoftmaxRow& row) {
  constexpr unsigned width = vector_width<T>;
  RowVectors vectors;
  if (kForm == SoftmaxForm::any && params.has_tails) {
    const unsigned misaligned = static_cast<unsigned>(reinterpret_cast<uintptr_t>(row.x)) % vector_bytes / sizeof(T);
    const int before = static_cast<int>((width - misaligned) % width);
    vectors.head = before < row.columns ? before : row.columns;
  }
  vectors.count = static_cast<int>(static_cast<unsigned>(row.columns - vectors.head) / width);
  vectors.read_end = vectors.count;
  if (!has_whole_rows<kForm> && params.interval.exists) {
    const int begin = row.begin - vectors.head, end = row.end - vectors.head;
    vectors.read_begin = begin <= 0 ? 0 : begin / static_cast<int>(width);
    const int past = end <= 0 ? 0 : static_cast<int>((static_cast<unsigned>(end) + width - 1) / width);
    vectors.read_end = past < vectors.count ? past : vectors.count;
    if (vectors.read_begin > vectors.read_end) vectors.read_begin = vectors.read_end;
  }
  return vectors;
}

// Outer columns: the row's head and tail, outside whole vectors. Each lane of the row's first block has at most one;
// returns it, or -1.
template <class T>
__device__ __forceinline__ int outer_column_of(const SoftmaxParams& params, const SoftmaxRow& row,
                                               const RowVectors& vectors, int rank, int lane) {
  if (!params.has_tails || rank != 0) return -1;
  const int column = lane < vectors.head ? lane : vectors.count * vector_width<T> + lane;
  return column < row.columns ? column : -1;
}

// Loads the mask's bytes of kCount vectors, vector i's from first + i * step, all loads before the first use. Vectors
// that are not read count as masked. `step` is a multiple of 4.
template <int kWidth, int kCount, class IsRead>
__device__ __forceinline__ void load_dense(const SoftmaxParams& params, const SoftmaxRow& row,
                                           const unsigned char* first, int step, bool is_aligned, IsRead is_read,
                                           DenseWords<kWidth> (&dense)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    for (uint32_t& word : dense[i].words) word = ~0u;
  // Are the aligned words around the row's mask inside the mask's memory?
  constexpr int word_bytes = 4;
  const bool is_inside =
      row.dense - params.dense_first >= word_bytes - 1 && params.dense_end - row.dense >= row.columns + 2 * word_bytes;
  if (is_aligned) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (is_read(i)) dense[i] = load_dense_aligned<kWidth>(first + i * step);
  } else if (is_inside) {
    const unsigned before = static_cast<unsigned>(reinterpret_cast<uintptr_t>(first)) % word_bytes;
    // All words of a batch, then all shifts: otherwise the loads of a vector wait for the words of the vector before.
    constexpr int batch = kWidth == 8 && kCount > 4 ? 4 : kCount;
#pragma unroll
    for (int begin = 0; begin < kCount; begin += batch) {
      uint32_t next[batch];
#pragma unroll
      for (int i = begin; i < begin + batch; ++i) {
        next[i - begin] = ~0u;
        if (is_read(i)) dense[i] = load_dense_words<kWidth>(first - before + i * step, &next[i - begin]);
      }
#pragma unroll
      for (int i = begin; i < begin + batch; ++i) dense[i] = shifted_right(dense[i], next[i - begin], 8 * before);
    }
  } else {
    // One byte at a time, shifted in above the previous ones.
    constexpr int last = kWidth == 8 ? 1 : 0;
#pragma unroll 1
    for (int j = 0; j < kWidth; ++j) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const uint32_t byte = is_read(i) ? first[i * step + j] : 0xffu;
        if constexpr (last > 0) dense[i].words[0] = __funnelshift_r(dense[i].words[0], dense[i].words[last], 8);
        dense[i].words[last] = dense[i].words[last] >> 8 | byte << 24;
      }
    }
  }
}

// A range of a row's vectors, one of equal ranges that start on 128-byte lines. A block's vectors are neighbours:
// dealing them to the blocks of a cluster in turn is slower.
struct VectorRange {
  int begin;
  int end;
};

// The vectors of one thread: first + n * step, while less than `end`. The unmasked vectors are spread over all blocks
// of a cluster.
struct OwnVectors {
  int first;
  int step;
  int end;
  int before;  // vectors from the start of the 128-byte line to the row's first vector
  __device__ __forceinline__ int at(int n) const { return first + n * step; }
  // All are read, except possibly the first, which may lie before the row or its interval.
  __device__ __forceinline__ int count() const { return end > first ? (end - first - 1) / step + 1 : 0; }
  // The first range may start before `begin`, on its line.
  __device__ __forceinline__ VectorRange range_of(int begin, int end_of_range, int part, int parts_shift) const {
    const int base = ((begin + before) & ~(line_vectors - 1)) - before;
    int length = (end_of_range - base + (1 << parts_shift) - 1) >> parts_shift;
    length = (length + line_vectors - 1) & ~(line_vectors - 1);
    const int from = base + part * length, to = from + length;
    return {from, to < end_of_range ? to : end_of_range};
  }
};

// `lane` is the thread's number among the lanes_per_row threads of block `rank`.
__device__ __forceinline__ OwnVectors own_vectors(const SoftmaxParams& params, const unsigned char* first_vector,
                                                  const RowVectors& vectors, int rank, int lane) {
  OwnVectors own = {lane, params.lanes_per_row, vectors.read_end, 0};
  if (params.starts_on_lines)
    own.before = static_cast<int>(reinterpret_cast<uintptr_t>(first_vector) / vector_bytes) & (line_vectors - 1);
  const VectorRange part = own.range_of(vectors.read_begin, vectors.read_end, rank, params.row_blocks_shift);
  own.first = part.begin + lane;
  own.end = part.end;
  return own;
}

template <class T>
__device__ __forceinline__ ComputeType<T> load_element(const unsigned char* row, int64_t column) {
  return widen(reinterpret_cast<const T*>(row)[column]);
}

template <class T>
__device__ __forceinline__ void store_element(unsigned char* row, int64_t column, ComputeType<T> value) {
  reinterpret_cast<T*>(row)[column] = convert<T>(value);
}

// Stores results as T or, with kConverts, as params.out_dtype: 16 bits for a float32 T, float32 for a 16-bit T.
template <class T, bool kConverts = false>
struct RowOutput {
  const SoftmaxParams& params;
  __device__ __forceinline__ bool converts() const { return kConverts && !params.out_is_x_type; }
  __device__ __forceinline__ int column_bytes() const {
    constexpr int bytes = static_cast<int>(sizeof(T));
    return converts() ? 6 - bytes : bytes;  // 2 or 4
  }
  __device__ __forceinline__ int vector_bytes_out() const { return vector_width<T> * column_bytes(); }
  // Stores the results of one vector of x.
  __device__ __forceinline__ void store_vector(unsigned char* address,
                                               const ComputeType<T> (&values)[vector_width<T>]) const {
    with_type([&](auto type) { store_values<typename decltype(type)::type>(address, values); });
  }
  // Stores elements [first, end) of a vector. `address` is the address of element 0.
  __device__ __forceinline__ void store_columns(unsigned char* address, const ComputeType<T> (&values)[vector_width<T>],
                                                int first, int end) const {
    with_type([&](auto type) {
#pragma unroll
      for (int j = 0; j < vector_width<T>; ++j)
        if (j >= first && j < end) store_element<typename decltype(type)::type>(address, j, values[j]);
    });
  }
  __device__ __forceinline__ void store_column(unsigned char* row, int64_t column, ComputeType<T> value) const {
    with_type([&](auto type) { store_element<typename decltype(type)::type>(row, column, value); });
  }

 private:
  template <class Use>
  __device__ __forceinline__ void with_type(Use use) const {
    if constexpr (kConverts) {
      if (converts()) {
        if constexpr (is_float16<T>)
          use(std::type_identity<float>());
        else if (params.out_dtype == FLOWK_FLOAT16)
          use(std::type_identity<Float16>());
        else
          use(std::type_identity<BFloat16>());
        return;
      }
    }
    use(std::type_identity<T>());
  }
};

// Writes `value` to all vectors that are not read. The stores depend on nothing, so they come before the row's sum is
// known.
template <class T, bool kConverts>
__device__ __forceinline__ void fill_unread(const RowOutput<T, kConverts>& output, unsigned char* out,
                                            const RowVectors& vectors, const OwnVectors& own, int rank, int lane,
                                            ComputeType<T> value) {
  ComputeType<T> values[vector_width<T>];
#pragma unroll
  for (int j = 0; j < vector_width<T>; ++j) values[j] = value;
  const auto fill = [&](int begin, int end) {
    if (begin >= end) return;
    const VectorRange part = own.range_of(begin, end, rank, output.params.row_blocks_shift);
#pragma unroll 1
    for (int vector = part.begin + lane; vector < part.end; vector += own.step)
      if (vector >= begin) output.store_vector(out + static_cast<int64_t>(vector) * output.vector_bytes_out(), values);
  };
  fill(0, vectors.read_begin);
  fill(vectors.read_end, vectors.count);
}

}  // namespace flowk::softmax
