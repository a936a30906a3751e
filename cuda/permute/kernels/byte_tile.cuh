// SPDX-License-Identifier: Apache-2.0
// The tile of 1-byte elements that are not aligned in both src and dst: transposed by 32-bit words, in two steps.
#pragma once

#include "flowk/detail/launch_bounds.h"
#include "permute/kernels/permute_gather.cuh"

namespace flowk::permute {

// One item, in registers while the tile is transposed: a word of the destination run in each of its columns.
struct TransposedItem {
  uint32_t words[columns_per_item];
  int32_t column;  // the first; the tile's columns are its destination rows
  int32_t element;
};

// If all source rows start at the same offset in a word, the threads of a warp take the words of their columns in
// rotated order: threads with rows that start in one bank then use different banks.
__device__ __forceinline__ int first_word_of(const ByteTileParams& params, int32_t element) {
  return params.src_rows_are_words ? first_word_of(element, params.rotation_shift) : 0;
}

// Reads 4 source rows by 16 of their bytes, from `column` on, and transposes them 4 x 4 bytes at a time.
__device__ __forceinline__ void read_item(const ByteTileParams& params, const unsigned char* shared_tile, int32_t shift,
                                          TransposedItem* item) {
  const auto table = reinterpret_cast<const RunTableEntry*>(shared_tile + params.table.offset_bytes);
  const uint2 shared_offsets = *reinterpret_cast<const uint2*>(table + item->element);
  const uint32_t start = static_cast<uint32_t>(shift + item->column);
  const uint32_t bytes[4] = {(shared_offsets.x & 0xffff) + start, (shared_offsets.x >> 16) + start,
                             (shared_offsets.y & 0xffff) + start, (shared_offsets.y >> 16) + start};
  const auto transpose = [&](const uint32_t (&rows)[4], int j) {
    uint32_t columns[4];
    transpose_bytes(rows, columns);
#pragma unroll
    for (int i = 0; i < 4; ++i) item->words[4 * j + i] = columns[i];
  };
  if (params.src_rows_are_words) {
    const int first = first_word_of(params, item->element);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const unsigned char* at = shared_tile + 4 * ((j + first) & 3);
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = *reinterpret_cast<const uint32_t*>(at + bytes[i]);
      transpose(words, j);
    }
    return;
  }
  const uint32_t* rows[4];
  uint32_t low[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    rows[i] = reinterpret_cast<const uint32_t*>(shared_tile + (bytes[i] & ~3u));
    low[i] = rows[i][0];
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t high = rows[i][j + 1];
      words[i] = __funnelshift_r(low[i], high, 8 * bytes[i]);  // by the low 5 bits
      low[i] = high;
    }
    transpose(words, j);
  }
}

// How many destination rows the tile has inside the tensor, and runs in each.
struct JoinedRows {
  uint32_t rows;
  uint32_t runs;

  __device__ __forceinline__ JoinedRows(const ByteTileParams& params, const TileOrigin& tile)
      : rows(params.run_join.divide(tile.dst_row_end)), runs(params.run_join.divisor) {
    if (!params.joins_src_cut) return;
    runs = rows;
    rows = params.run_join.divisor;
  }
};

// A destination row of the tile: head bytes, whole aligned vectors of dst, tail bytes.
struct alignas(vector_bytes) VectoredRow {
  int64_t offset;          // of the first vector from the tile's start in dst
  uint16_t shared_offset;  // of the first vector in shared memory
  uint16_t vectors;
  uint8_t head;
  uint8_t tail;
  uint16_t skipped_vectors;  // before the first, that would fill its granule
};
static_assert(sizeof(VectoredRow) == dst_row_bytes);

// Finds what each destination row of the tile stores. A row outside the tensor stores nothing. With a halo, a row
// begins and ends at multiples of params.dst_granule bytes, and the next tile begins where it ends.
template <int kThreads>
__device__ __forceinline__ void make_vectored_rows(const ByteTileParams& params, const TileOrigin& tile,
                                                   const JoinedRows& joined, VectoredRow* rows) {
#pragma unroll 1
  for (uint32_t dst_row = threadIdx.x; dst_row < params.store.num_rows.divisor; dst_row += kThreads) {
    int64_t offset;
    int32_t column;
    locate_tile_row(params.tile.dst_row_dims, params.tile.dst_row_rank, dst_row, &offset, &column);
    const auto address = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(tile.dst + offset));
    const auto before = static_cast<int32_t>(address & params.store.span_end_mask);
    const auto after =
        static_cast<int32_t>((address + static_cast<uint32_t>(params.store.span_bytes)) & params.store.span_end_mask);
    const int32_t begin = max(params.halo_bytes - before, tile.dst_element_begin);
    const int32_t end = min(params.halo_bytes + params.store.span_bytes - after, tile.dst_element_end);
    const int32_t bytes = dst_row < joined.rows ? max(end - begin, 0) * static_cast<int32_t>(joined.runs) : 0;
    offset += begin - params.halo_bytes;
    const uint32_t first = address + static_cast<uint32_t>(begin - params.halo_bytes);
    const int32_t head = min(static_cast<int32_t>((0 - first) % vector_bytes), bytes);
    rows[dst_row] = {
        offset + head,
        static_cast<uint16_t>((column + column_margin) * params.columns_pitch + begin + head),
        static_cast<uint16_t>((bytes - head) / vector_bytes),
        static_cast<uint8_t>(head),
        static_cast<uint8_t>((bytes - head) % vector_bytes),
        static_cast<uint16_t>(((first + static_cast<uint32_t>(head)) & static_cast<uint32_t>(params.dst_granule - 1)) /
                              vector_bytes)};
  }
}

// Reads kN words at any offset.
template <int kN>
__device__ __forceinline__ void read_words(const unsigned char* shared_tile, int32_t shared_offset,
                                           uint32_t (&words)[kN]) {
  const uint32_t* from = reinterpret_cast<const uint32_t*>(shared_tile + (shared_offset & ~3));
  uint32_t low = from[0];
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    const uint32_t high = from[i + 1];
    words[i] = __funnelshift_r(low, high, static_cast<uint32_t>(shared_offset) * 8);
    low = high;
  }
}

// Reads the vector `in_row` bytes after a row's first. It has bytes of at most two runs: none is shorter than a vector.
__device__ __forceinline__ void read_vector(const ByteTileParams& params, const VectoredRow& row, int32_t in_row,
                                            const unsigned char* shared_tile, Vector<1>* vector) {
  int32_t shared_offset = row.shared_offset + in_row;
  if (params.joined_run_gap == 0) return read_words<4>(shared_tile, shared_offset, vector->words);
  const uint32_t at = static_cast<uint32_t>(row.head + in_row);
  const uint32_t run = params.joined_run_bytes.divide(at);
  shared_offset += static_cast<int32_t>(run) * params.joined_run_gap;
  read_words<4>(shared_tile, shared_offset, vector->words);
  const auto left = static_cast<int32_t>((run + 1) * params.joined_run_bytes.divisor - at);
  if (left >= vector_bytes) return;
  uint32_t next[4];
  read_words<4>(shared_tile, shared_offset + params.joined_run_gap, next);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t of_run = __funnelshift_lc(~0u, 0u, static_cast<uint32_t>(max(8 * left - 32 * i, 0)));
    vector->words[i] = (vector->words[i] & of_run) | (next[i] & ~of_run);
  }
}

// Stores a row's head or tail as a byte, a half word and up to three words. The tail stands `tail_gap` bytes further on
// than in a row of one run.
__device__ __forceinline__ void store_row_end(const VectoredRow& row, bool is_tail, unsigned char* dst,
                                              int32_t tail_gap, const unsigned char* shared_tile) {
  const int32_t bytes = is_tail ? row.tail : row.head;
  const int32_t to_vector = is_tail ? row.vectors * vector_bytes : -vector_bytes;
  unsigned char* vector = dst + (row.offset + to_vector);
  const int32_t shared_offset = row.shared_offset + to_vector + (is_tail ? tail_gap : 0);
  const int32_t first = is_tail ? 0 : vector_bytes - bytes, last = is_tail ? bytes : vector_bytes;
  if (reinterpret_cast<uintptr_t>(vector) % vector_bytes != 0) {  // the row ends in the vector that it starts in
#pragma unroll 1
    for (int32_t i = first; i < last; ++i) vector[i] = shared_tile[shared_offset + i];
    return;
  }
  const int32_t odd_end = is_tail ? last : first;
  if (odd_end & 1) {
    const int32_t at = is_tail ? last - 1 : first;
    vector[at] = shared_tile[shared_offset + at];
  }
  const int32_t even_end = is_tail ? last : first + 1;
  if (even_end & 2) {
    const int32_t at = is_tail ? last & ~3 : even_end & ~1;
    const uint32_t low = shared_tile[shared_offset + at], high = shared_tile[shared_offset + at + 1];
    *reinterpret_cast<uint16_t*>(vector + at) = static_cast<uint16_t>(low | high << 8);
  }
  const int32_t first_word = (first + 3) >> 2, num_words = (last >> 2) - first_word;
  uint32_t words[3];
  read_words<3>(shared_tile, shared_offset + 4 * first_word, words);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (i < num_words) reinterpret_cast<uint32_t*>(vector)[first_word + i] = words[i];
}

// Stores heads and tails, one per thread: fewer instructions than half a warp per end, one byte per thread.
template <int kThreads>
__device__ __forceinline__ void store_row_ends(const ByteTileParams& params, const TileOrigin& tile,
                                               const JoinedRows& joined, const VectoredRow* rows,
                                               const unsigned char* shared_tile) {
  const int32_t tail_gap = static_cast<int32_t>(joined.runs - 1) * params.joined_run_gap;
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < 2 * joined.rows; item += kThreads) {
    const VectoredRow row = rows[item / 2];
    const bool is_tail = item % 2 != 0;
    if ((is_tail ? row.tail : row.head) != 0) store_row_end(row, is_tail, tile.dst, tail_gap, shared_tile);
  }
}

// dst[c, e] = src[e, c] for a tile of 1-byte elements whose runs share no dimension: (source rows, columns) in src,
// (destination rows, run elements) in dst. A gather by bytes reads shared memory once per byte; words take a third:
//   1. source rows are copied to shared memory in 16-byte vectors;
//   2. a thread reads up to two items of 4 rows by 16 columns and transposes 4 x 4 bytes at a time; after a barrier it
//      writes words into destination rows, columns_pitch bytes apart, in the same shared memory;
//   3. a thread reads five words of a destination row, shifts them to a 16-byte vector and stores it; heads and tails
//      follow. Runs that lie one after the other in dst are joined to one row: fewer heads and tails.
template <int kThreads>
__global__ void __launch_bounds__(kThreads, fitting_blocks(kThreads, byte_tile_resident_threads / kThreads))
    byte_tile(const __grid_constant__ GridConstant<ByteTileParams> params) {
  unsigned char* shared_tile = &shared<unsigned char>();
  VectoredRow* rows = reinterpret_cast<VectoredRow*>(shared_tile + params.rows_offset_bytes);
  const TileOrigin tile = locate_tile<true>(params.tile);
  const int32_t shift = tile_shift(params.load, tile);
  load_tile<false, kThreads>(params.tile, params.load, tile, shared_tile, shift,
                             [](int32_t shared_offset, uint32_t) { return shared_offset; });
  make_table<kThreads>(params.table, rows_per_item * params.words_per_run.divisor, shared_tile);
  const JoinedRows joined(params, tile);
  make_vectored_rows<kThreads>(params, tile, joined, rows);
  async_copy_wait();
  __syncthreads();

  TransposedItem items[max_items_per_thread];
#pragma unroll
  for (int k = 0; k < max_items_per_thread; ++k) {
    TransposedItem& item = items[k];
    uint32_t column_item = threadIdx.x + k * kThreads;
    const bool is_idle = column_item >= params.num_items;
    const uint32_t word = take_index(&column_item, params.words_per_run);
    item.column = static_cast<int32_t>(column_item * columns_per_item) -
                  (params.src_rows_are_words ? shift & 3 : skew_of(word, params.skew_shift, params.skew_mask));
    item.element = static_cast<int32_t>(rows_per_item * word);
    if (is_idle || item.column >= static_cast<int32_t>(tile.dst_row_end) || item.element >= tile.dst_element_end ||
        item.element + rows_per_item <= tile.dst_element_begin)
      item.column = -2 * columns_per_item;  // none
    else
      read_item(params, shared_tile, shift, &item);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < max_items_per_thread; ++k) {
    const TransposedItem& item = items[k];
    const int first = first_word_of(params, item.element);
    // Shared memory has room for column_margin columns before the tile's and after them.
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int32_t column = item.column + 4 * ((j + first) & 3) + column_margin;
      if (static_cast<uint32_t>(column) < tile.dst_row_end + column_margin) {
        unsigned char* at = shared_tile + (column * params.columns_pitch + item.element);
#pragma unroll
        for (int i = 0; i < 4; ++i) *reinterpret_cast<uint32_t*>(at + i * params.columns_pitch) = item.words[4 * j + i];
      }
    }
  }
  __syncthreads();

#pragma unroll 1
  for (StoreCursor cursor(params.store); !cursor.is_done(params.store); cursor.step(params.store)) {
    const VectoredRow row = rows[cursor.dst_row];
    const uint32_t vector = cursor.vector - row.skipped_vectors;
    if (vector >= row.vectors) continue;
    const auto in_row = static_cast<int32_t>(vector * vector_bytes);
    Vector<1> out;
    read_vector(params, row, in_row, shared_tile, &out);
    *reinterpret_cast<uint4*>(tile.dst + (row.offset + in_row)) = out.whole;
  }
  if (params.dst_rows_have_ends) store_row_ends<kThreads>(params, tile, joined, rows, shared_tile);
}

}  // namespace flowk::permute
