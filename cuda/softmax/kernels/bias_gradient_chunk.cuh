// SPDX-License-Identifier: Apache-2.0
// What the kernels of the gradient of a shared bias have in common: a thread's chunk of the rows that share a row of
// the bias, and the stores of their sums.
#pragma once

#include "softmax/kernels/softmax_terms.cuh"
#include "softmax/softmax_bias_gradient.h"

namespace flowk::softmax {

// A thread among the lanes_per_row threads that take the members of one chunk, one after the other.
struct ChunkThread {
  RowThreads threads;
  int lane;
  int lanes;
  int row_in_block;
  int group_in_block;
  int chunk_in_block;
  int chunk_block;
  int64_t group;
  int chunk;   // among the chunks of its group
  int chunks;  // of a group

  __device__ __forceinline__ ChunkThread(const BiasGradient& gradient, const SoftmaxParams& params)
      : threads(row_threads(params)), lanes(params.lanes_per_row) {
    const int thread = static_cast<int>(threadIdx.x);
    row_in_block = params.rows_per_block == 1 ? 0 : thread >> params.rows_shift;
    lane = thread - row_in_block * lanes;
    group_in_block = row_in_block & ((1 << gradient.groups_shift) - 1);
    chunk_in_block = row_in_block >> gradient.groups_shift;
    chunk_block = gradient.chunk_blocks > 1 ? static_cast<int>(gradient.group_blocks.divide(blockIdx.x)) : 0;
    const int64_t group_block = blockIdx.x - chunk_block * gradient.num_group_blocks;
    group = (group_block << gradient.groups_shift) + group_in_block;
    chunk = chunk_block * gradient.block_chunks + chunk_in_block;
    chunks = gradient.chunk_blocks * gradient.block_chunks;
  }
  // The first column of the thread's vector i in a row that starts at element `phase` of a vector.
  template <class T>
  __device__ __forceinline__ int column_of(int i, int phase) const {
    return (lane + i * lanes) * vector_width<T> - phase;
  }
  // Makes `row` the chunk's member among [first, first + chunks), from the chunk's previous member if first > 0.
  // Without such a member it has no columns. Threads of a warp may have different groups, so all of them take as many
  // members as the first chunk has. Returns the row's number in the grid's order.
  __device__ __forceinline__ int64_t find_member(const BiasGradient& gradient, const SoftmaxParams& params,
                                                 int64_t first, SoftmaxRow* row) const {
    const int64_t member = first + chunk;
    const bool exists = group < gradient.groups && member < gradient.members;
    const int64_t linear = exists ? group * gradient.members + member : params.rows.num_rows;
    if (first == 0 || !gradient.has_steps) {
      *row = locate_row<SoftmaxMask::none, true>(params, linear, false);
    } else {
      row->x += gradient.steps[0];
      row->bias_or_y += gradient.steps[1];
      row->out += gradient.steps[2];
      if (!exists) row->columns = row->end = 0;
    }
    return linear;
  }
};

// The sums of a row's columns in memory. Rows of whole vectors: after each 32 sums a pack is unused, so that threads
// with neighbouring vectors use packs in different banks. Others: from column -width on, because the first and the last
// vector may have columns of other rows; after each `width` sums one is unused.
template <class T>
struct ColumnSums {
  using A = ComputeType<T>;
  static constexpr int width = vector_width<T>, pack_width = vector_width<A>;
  struct alignas(vector_bytes) Pack {
    A values[pack_width];
  };
  A* first;
  bool has_edges;

  __device__ __forceinline__ A* at(int column) const {
    return first + (has_edges ? column + width + (column + width) / width : column + column / 32 * pack_width);
  }
  // Loads the sums of the columns from `column` on; the row's first column is element `phase` of a vector.
  __device__ __forceinline__ void load(int column, int phase, A (&sums)[width]) const {
    if (has_edges) {
#pragma unroll
      for (int j = 0; j < width; ++j) sums[j] = *edge_at(column, phase, j);
      return;
    }
    const Pack* const own = reinterpret_cast<const Pack*>(at(column));
#pragma unroll
    for (int i = 0; i < width / pack_width; ++i) {
      const Pack pack = own[i];
#pragma unroll
      for (int j = 0; j < pack_width; ++j) sums[i * pack_width + j] = pack.values[j];
    }
  }
  // Stores them likewise.
  __device__ __forceinline__ void store(int column, int phase, const A (&sums)[width]) const {
    if (has_edges) {
#pragma unroll
      for (int j = 0; j < width; ++j) *edge_at(column, phase, j) = sums[j];
      return;
    }
    Pack* const own = reinterpret_cast<Pack*>(at(column));
#pragma unroll
    for (int i = 0; i < width / pack_width; ++i) {
      Pack pack;
#pragma unroll
      for (int j = 0; j < pack_width; ++j) pack.values[j] = sums[i * pack_width + j];
      own[i] = pack;
    }
  }

 private:
  // Of column + j. The sums of a vector are in front of the unused one, or after it.
  __device__ __forceinline__ A* edge_at(int column, int phase, int j) const {
    A* const later = first + column + width + (column + width + phase) / width;
    return (j < phase ? later - 1 : later) + j;
  }
};

// store(address, type) with the row of dbias of a group, and its element type.
template <class A, class Store>
__device__ __forceinline__ void store_in_dbias(const BiasGradient& gradient, const SoftmaxParams& params, int64_t group,
                                               Store store) {
  unsigned char* address = gradient.dbias;
  const auto step = [&](int d, int64_t index) { address += index * params.rows.dims[d].strides[softmax_dense]; };
  const int64_t linear = group * gradient.members;
  if (params.rows.is_wide)
    split_index<0>(static_cast<uint64_t>(linear), params.rows.dims, params.rows.rank, step);
  else
    split_index<0>(static_cast<uint32_t>(linear), params.rows.dims, params.rows.rank, step);
  if constexpr (sizeof(A) == 8)
    store(address, std::type_identity<double>());
  else if (gradient.dbias_dtype == FLOWK_FLOAT32)
    store(address, std::type_identity<float>());
  else if (gradient.dbias_dtype == FLOWK_FLOAT16)
    store(address, std::type_identity<Float16>());
  else
    store(address, std::type_identity<BFloat16>());
}

// The same with the row of dbias or, if several blocks have chunks of the group, with the block's row of partials.
template <class A, class Store>
__device__ __forceinline__ void store_sums(const BiasGradient& gradient, const SoftmaxParams& params,
                                           const ChunkThread& own, Store store) {
  if (gradient.chunk_blocks == 1) return store_in_dbias<A>(gradient, params, own.group, store);
  const int64_t row = own.chunk_block * gradient.groups + own.group;
  store(gradient.partials + row * params.columns * static_cast<int>(sizeof(A)), std::type_identity<A>());
}

// Adds up the chunks that a block has of a group, in their order, after a barrier.
template <class T>
__device__ __forceinline__ void store_sums_of_chunks(const BiasGradient& gradient, const SoftmaxParams& params,
                                                     const ChunkThread& own, ComputeType<T>* block_sums) {
  using A = ComputeType<T>;
  if (own.group >= gradient.groups) return;
  const ColumnSums<T> of_group = {block_sums + own.group_in_block * gradient.row_sums, gradient.has_edges};
  const int64_t chunk_sums = gradient.row_sums << gradient.groups_shift;
  store_sums<A>(gradient, params, own, [&](unsigned char* to, auto type) {
#pragma unroll 1
    for (int column = own.chunk_in_block * own.lanes + own.lane; column < params.columns;
         column += own.lanes * gradient.block_chunks) {
      const A* of_chunk = of_group.at(column);
      A sum = 0;
#pragma unroll 1
      for (int i = 0; i < gradient.block_chunks; ++i, of_chunk += chunk_sums) sum += *of_chunk;
      store_element<typename decltype(type)::type>(to, column, sum);
    }
  });
}

}  // namespace flowk::softmax
