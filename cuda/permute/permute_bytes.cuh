// SPDX-License-Identifier: Apache-2.0
// The tile of 1-byte elements that are aligned on neither side: transposed by 32-bit words, in two steps.
#pragma once

#include "permute/permute_gather.cuh"

namespace flowk {

// dst[r', e'] = src[r, c] as the other tiles, where runs share no dimension: source row e' holds element e' of every
// destination run, and its byte c is of destination row c. A gather by bytes would read shared memory once for every
// byte that it stores; words take a third of that:
//   1. source rows, (run elements, run bytes), are copied to shared memory in 16-byte chunks;
//   2. a thread takes 4 rows times 16 columns of them, as words shifted to the column, transposes 4 x 4 bytes at a time
//      and writes words into destination rows in shared memory, (destination rows, columns_pitch);
//   3. a thread takes a 16-byte chunk of a destination row, five words shifted to its address, and stores it.
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    two_step_tile(const __grid_constant__ TileParams params) {
  constexpr int words_per_chunk = 4;
  unsigned char* shared_tile = &shared<unsigned char>();
  TileTableEntry* table = reinterpret_cast<TileTableEntry*>(shared_tile + params.table_offset_bytes);
  const TileOrigin tile = locate_tile<true>(params);
  const int32_t shift = tile_shift(params, tile);
  load_tile<false>(params, tile, shared_tile, shift);
  make_table(params, 4 * params.words_per_run.divisor, table);
  DstRow* rows = reinterpret_cast<DstRow*>(shared_tile + params.rows_offset_bytes);
  make_dst_rows<1>(params, tile, 0, rows);
  async_copy_wait();
  __syncthreads();

#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < params.num_word_items; item += tile_threads) {
    uint32_t block = item;  // of 16 columns
    const uint32_t word = take_index(&block, params.words_per_run);
    // Lanes whose rows start in one bank take columns some words apart.
    const int32_t column =
        static_cast<int32_t>(block * chunk_bytes - 4 * (word >> params.skew_shift & params.skew_mask));
    const int32_t element = static_cast<int32_t>(4 * word);
    if (column >= static_cast<int32_t>(tile.dst_row_end) || element >= tile.dst_element_end ||
        element + 4 <= tile.dst_element_begin)
      continue;
    const uint2 places = reinterpret_cast<const uint2*>(table)[word];
    const uint32_t start = static_cast<uint32_t>(shift + column);
    const uint32_t bytes[4] = {(places.x & 0xffff) + start, (places.x >> 16) + start, (places.y & 0xffff) + start,
                               (places.y >> 16) + start};
    const uint32_t* rows[4];
    uint32_t low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = reinterpret_cast<const uint32_t*>(shared_tile + (bytes[i] & ~3u));
      low[i] = rows[i][0];
    }
    // Columns outside the tile come in whole groups of 4, but for the last, which destination rows have room for.
    int32_t place = params.columns_offset_bytes + column * params.columns_pitch + element;
#pragma unroll
    for (int j = 0; j < words_per_chunk; ++j) {
      uint32_t words[4], columns[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t high = rows[i][j + 1];
        words[i] = __funnelshift_r(low[i], high, 8 * bytes[i]);  // by the low 5 bits
        low[i] = high;
      }
      transpose_bytes(words, columns);
      if (static_cast<uint32_t>(column + 4 * j) < tile.dst_row_end) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          *reinterpret_cast<uint32_t*>(shared_tile + i * params.columns_pitch + place) = columns[i];
      }
      place += 4 * params.columns_pitch;
    }
  }
  __syncthreads();

#pragma unroll 1
  for (StoreWalk walk(params); !walk.is_done(params); walk.step(params)) {
    if (walk.dst_row >= tile.dst_row_end) continue;
    const RowChunk chunk = locate_chunk<1>(tile, rows, walk);
    if (chunk.first >= chunk.last) continue;
    // The column of a row is its number.
    const int32_t place = params.columns_offset_bytes + chunk.column * params.columns_pitch + chunk.element;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(shared_tile + (place & ~3));
    const uint32_t bits = static_cast<uint32_t>(place) * 8;
    Chunk<1> out;
#pragma unroll
    for (int i = 0; i < words_per_chunk; ++i) out.words[i] = __funnelshift_r(words[i], words[i + 1], bits);
    store_row_chunk<1>(chunk, chunk.element, out);
  }
}

}  // namespace flowk
