// SPDX-License-Identifier: Apache-2.0
// Softmax of rows held in shared memory: more columns than registers hold, a row a block or a row a cluster.
#pragma once

#include "masked_softmax/softmax_row_in_registers.cuh"

namespace flowk {

// y(row, j) = exp(z(row, j) - max) / sum over kept i of exp(z(row, i) - max), z = scale * x; x and y are (rows,
// columns), a dense mask has a byte a column.
//
// A row belongs to all threads of a block, or of the blocks of a cluster; a block holds block_vectors chunks of 16
// bytes. Every chunk has one thread, so that no barrier stands between the passes: x comes in; a masked x becomes
// -infinity, and the maximum is found; the exponentials are summed; they are computed again and stored.
template <class T, SoftmaxMask kMask>
__global__ void __launch_bounds__(max_register_lanes)
    softmax_row_in_shared(const __grid_constant__ SoftmaxParams params) {
  allow_next_grid();
  using A = ComputeType<T>;
  using E = RowValue<T>;
  constexpr int width = chunk_width<T>;
  constexpr int group = 4;  // chunks whose masks are loaded together
  const RowTeam team = row_team(params);
  const ExchangeBuffer<T> buffer = exchange_buffer<T>();
  begin_exchange(buffer, team);
  const int lane = static_cast<int>(threadIdx.x), threads = params.lanes_per_row;
  const SoftmaxRow row = locate_row<kMask, false>(params, static_cast<int64_t>(blockIdx.x) >> params.cluster_shift);
  const RowChunks row_chunk = row_chunks<T>(params, row);
  const int first_vector = team.rank * params.block_vectors;
  const int vectors_left = row_chunk.count - first_vector;
  const int block_vectors = vectors_left < params.block_vectors ? vectors_left : params.block_vectors;
  uint4* const chunks = reinterpret_cast<uint4*>(buffer.memory + params.block_offset_bytes);
  const unsigned char* const x =
      row.x + row_chunk.head * static_cast<int>(sizeof(T)) + static_cast<int64_t>(first_vector) * chunk_bytes;
  const int first_column = row_chunk.head + first_vector * width;

  const auto is_read = [&](int vector) { return vector < block_vectors && row_chunk.is_read(first_vector + vector); };
#pragma unroll 4
  for (int vector = lane; vector < block_vectors; vector += threads)
    if (is_read(vector)) async_copy_chunk(chunks + vector, x + static_cast<int64_t>(vector) * chunk_bytes);
  A extra = negative_infinity<A>();
  int extra_column = -1;
  if (params.is_peeled && team.rank == 0) {
    const int column = lane < row_chunk.head ? lane : row_chunk.count * width + lane;
    if (column < row.columns) {
      extra_column = column;
      if (is_kept<kMask>(row, column)) extra = load_score<T, kMask>(params, row, column);
    }
  }

  ChunkMax<T> largest_x;
  bool has_waited = false;
  for (int first = lane; first < block_vectors; first += group * threads) {
    [[maybe_unused]] DenseWords<width> dense[group];
    if constexpr (kMask != SoftmaxMask::interval) {
      const bool is_aligned = (reinterpret_cast<uintptr_t>(row.dense + first_column) & (width - 1)) == 0;
#pragma unroll
      for (int i = 0; i < group; ++i) {
        const int vector = first + i * threads;
        dense[i] = {};
        if (!is_read(vector)) continue;
        const unsigned char* const address = row.dense + first_column + vector * width;
        dense[i] = is_aligned ? load_dense_aligned<width>(address)
                              : load_dense_shifted<width>(address, params.dense_first, params.dense_end);
      }
    }
    if (!has_waited) async_copy_wait();
    has_waited = true;
#pragma unroll
    for (int i = 0; i < group; ++i) {
      const int vector = first + i * threads;
      if (vector >= block_vectors) continue;
      uint4 chunk = negative_infinity_chunk<T>();
      if (is_read(vector)) {
        chunk = chunks[vector];
        const int column = first_column + vector * width;
        if (params.negates_x) negate_chunk<T>(&chunk);
        if (column < row.begin || column + width > row.end)
          select_interval<T>(&chunk, column, row.begin, row.end, negative_infinity_chunk<T>());
        if constexpr (kMask != SoftmaxMask::interval) mask_chunk<T>(&chunk, dense[i]);
      }
      if (kMask != SoftmaxMask::interval || params.negates_x || params.has_interval) chunks[vector] = chunk;
      largest_x.take(chunk);
    }
  }

  const A largest = max_over_lanes(larger_of(extra, largest_x.largest()), 32);
  const A reference = largest == negative_infinity<A>() ? A{0} : largest;
  const A scale = exponent_scale<T, kMask>(params);
  const ScoreScale<T, kMask> to_exponent(reference, scale);
  ThreadSum<T> sum;
  sum.take_one(exponential<T>(to_exponent(extra)));
#pragma unroll 2
  for (int vector = lane; vector < block_vectors; vector += threads) {
    A p[width];
    widen_chunk<T>(chunks[vector], p);
#pragma unroll
    for (int j = 0; j < width; ++j) p[j] = exponential<T>(to_exponent(p[j]));
    sum.take(p);
  }
  const RowPart<T> part = {largest, sum_over_lanes(sum.total(), 32)};

  const RowPart<T> total = combine_row<T, kMask>(buffer, team, part, scale);
  if (total.sum != total.sum)
    return store_nan_row<T, T, kMask>(params, row, team.rank * threads + lane, threads * team.blocks);
  // From here on exponentials are less the row's maximum.
  const A row_largest = static_cast<A>(total.max) == negative_infinity<A>() ? A{0} : static_cast<A>(total.max);
  const ScoreScale<T, kMask> to_row_exponent(row_largest, scale);
  unsigned char* const out = row.out + static_cast<int64_t>(first_column) * static_cast<int>(sizeof(T));
  A factor = static_cast<A>(natural_per_base<T>), term = 0;
  if (!params.log_softmax)
    factor = total.sum == E{0} ? A{0} : quotient_of(A{1}, total.sum);
  else if (total.sum != E{0})
    term = -log_of<A>(total.sum);
  const auto store = [&](auto kind) {
    constexpr bool stores_exponents = decltype(kind)::value;
#pragma unroll 2
    for (int vector = lane; vector < block_vectors; vector += threads) {
      A y[width];
      widen_chunk<T>(chunks[vector], y);
#pragma unroll
      for (int j = 0; j < width; ++j) {
        const A z = to_row_exponent(y[j]);
        y[j] = stores_exponents ? z * factor + term : exponential<T>(z) * factor;
      }
      store_values<T>(out + static_cast<int64_t>(vector) * chunk_bytes, y);
    }
    if (extra_column >= 0) {
      const A z = to_row_exponent(extra);
      store_element<T>(row.out, extra_column, stores_exponents ? z * factor + term : exponential<T>(z) * factor);
    }
  };
  if (params.log_softmax)
    store(std::true_type{});
  else
    store(std::false_type{});
}

}  // namespace flowk
