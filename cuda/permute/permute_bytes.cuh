// SPDX-License-Identifier: Apache-2.0
// The tile of 1-byte elements that are aligned on neither side: transposed by 32-bit words, in two steps.
#pragma once

#include "permute/permute_tiles.cuh"

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
  uint32_t* table = reinterpret_cast<uint32_t*>(shared_tile + params.table_offset_bytes);
  const TileOrigin tile = locate_tile(params);
  const int32_t shift =
      params.shared_lead_bytes + static_cast<int32_t>(reinterpret_cast<uintptr_t>(tile.src) & params.shift_mask);
  load_tile<false>(params, tile, shared_tile, shift);
  make_table(params, table);
  // The last word's elements past the run: any place will do.
  const uint32_t past_run = params.num_table_entries + threadIdx.x;
  if (past_run < 4 * params.words_per_run.divisor) table[past_run] = 0;
  async_copy_wait();
  __syncthreads();

#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < params.num_word_items; item += tile_threads) {
    uint32_t block = item;  // of 16 columns
    const uint32_t word = take_index(&block, params.words_per_run);
    // Lanes whose rows start in one bank take columns some words apart.
    const int32_t column =
        static_cast<int32_t>(block * chunk_bytes - 4 * (word >> params.skew_shift & params.skew_mask));
    if (column >= static_cast<int32_t>(tile.dst_row_end) || static_cast<int32_t>(4 * word) >= tile.dst_element_end)
      continue;
    const uint4 places = reinterpret_cast<const uint4*>(table)[word];
    const uint32_t bytes[4] = {places.x + shift + column, places.y + shift + column, places.z + shift + column,
                               places.w + shift + column};
    const uint32_t* rows[4];
    uint32_t low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = reinterpret_cast<const uint32_t*>(shared_tile + (bytes[i] & ~3u));
      low[i] = rows[i][0];
    }
    // Columns outside the tile come in whole groups of 4, but for the last, which destination rows have room for.
    int32_t place = params.columns_offset_bytes + column * params.columns_pitch + static_cast<int32_t>(4 * word);
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

  const int32_t halo_elements = params.halo * params.dst_run_elements.per_index;
#pragma unroll 1
  for (StoreWalk walk(params); walk.item < walk.num_items; walk.item += params.store_items_per_pass) {
    uint32_t dst_row;
    int32_t chunk;
    walk.locate(params, &dst_row, &chunk);
    if (dst_row >= tile.dst_row_end) continue;
    int64_t offset;
    int32_t column;  // is dst_row
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
    unsigned char* row = tile.dst + offset;
    const int32_t before_row =
        static_cast<int32_t>(reinterpret_cast<uintptr_t>(row) & static_cast<uint32_t>(params.dst_granule - 1));
    unsigned char* address = row - before_row + chunk * chunk_bytes;
    const int32_t element = halo_elements - before_row + chunk * chunk_bytes;
    const int32_t first = tile.dst_element_begin > element ? tile.dst_element_begin - element : 0;
    const int32_t last = tile.dst_element_end - element < chunk_bytes ? tile.dst_element_end - element : chunk_bytes;
    if (first >= last) continue;
    const int32_t place = params.columns_offset_bytes + static_cast<int32_t>(dst_row) * params.columns_pitch + element;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(shared_tile + (place & ~3));
    const uint32_t bits = static_cast<uint32_t>(place) * 8;
    Chunk<1> out;
#pragma unroll
    for (int i = 0; i < words_per_chunk; ++i) out.words[i] = __funnelshift_r(words[i], words[i + 1], bits);
    if (last - first == chunk_bytes)
      *reinterpret_cast<uint4*>(address) = make_uint4(out.words[0], out.words[1], out.words[2], out.words[3]);
    else
      store_partial_chunk<1>(address, out, first, last);
  }
}

}  // namespace flowk
