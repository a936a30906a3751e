// SPDX-License-Identifier: Apache-2.0
// The tile that is aligned to 16 bytes on both sides, with runs that share no dimension.
#pragma once

#include "flowk/detail/launch_bounds.h"
#include "permute/kernels/permute_elements.cuh"
#include "permute/kernels/permute_tile.cuh"

namespace flowk::permute {

// Whether this tile stores a vector of the destination row at `row`: the one that begins `in_row` bytes after it. With
// a halo, a tile's part of a row begins at the last sector start at or before `row`. It ends where the next tile's
// begins.
__device__ __forceinline__ bool is_in_window(const TileParams& params, const unsigned char* row, int32_t in_row) {
  if (params.window_mask == 0) return true;
  const auto start = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row));
  const auto into_sector = [&](uint32_t at) { return static_cast<int32_t>(at & params.window_mask); };
  return in_row >= -into_sector(start) &&
         in_row < params.window_bytes - into_sector(start + static_cast<uint32_t>(params.window_bytes));
}

// Transposes words, each one element of every row of a group, to one vector per row. `row` is the start of the first.
template <int Bytes, bool kPlain>
__device__ __forceinline__ void store_rows_of_words(const TileParams& params,
                                                    const uint32_t (&words)[vector_bytes / Bytes], unsigned char* row,
                                                    int32_t in_row) {
  const auto store = [&](int i, const uint4& vector) {
    unsigned char* at = row + i * params.dst_row_step;
    if (kPlain || is_in_window(params, at, in_row)) *reinterpret_cast<uint4*>(at + in_row) = vector;
  };
  if constexpr (Bytes == 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t select = i == 0 ? 0x5410 : 0x7632;
      store(i, make_uint4(__byte_perm(words[0], words[1], select), __byte_perm(words[2], words[3], select),
                          __byte_perm(words[4], words[5], select), __byte_perm(words[6], words[7], select)));
    }
  } else {
    uint32_t out[4][4];  // [word][row]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t group[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
      transpose_bytes(group, out[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) store(i, make_uint4(out[0][i], out[1][i], out[2][i], out[3][i]));
  }
}

// Elements as they are: one element of each row of a group is one word, and a thread stores the group's rows together.
template <bool kPlain, int Bytes>
__device__ __forceinline__ void store_aligned_tile(const TileParams& params, const TileOrigin& tile,
                                                   const unsigned char* shared_tile, int32_t shift,
                                                   const Moved<Bytes>&) {
  constexpr int elements_per_vector = vector_bytes / Bytes;
  constexpr int items_in_flight = Bytes == 1 ? 1 : 2;
  using Word = Pack<(Bytes < 4 ? 4 : Bytes)>;
  StoreCursor cursor(params);
#pragma unroll 1
  while (!cursor.is_done(params)) {
    Word words[items_in_flight][elements_per_vector];
    bool are_inside[items_in_flight];
    unsigned char* rows[items_in_flight];
    int32_t in_rows[items_in_flight];  // < the row's start only in a halo
#pragma unroll
    for (int k = 0; k < items_in_flight; ++k) {
      const int32_t element =
          static_cast<int32_t>(cursor.vector) * elements_per_vector + (kPlain ? 0 : params.skipped_elements);
      are_inside[k] = !cursor.is_done(params) && cursor.dst_row < tile.dst_row_end &&
                      (kPlain || element >= tile.dst_element_begin) && element < tile.dst_element_end;
      int64_t offset;
      int32_t column;
      locate_tile_row(params.dst_row_dims, kPlain ? 1 : params.dst_row_rank, cursor.dst_row, &offset, &column);
      rows[k] = tile.dst + offset;
      in_rows[k] = element * Bytes - (kPlain ? 0 : params.window_start_bytes);
      const int32_t shared_offset = shift + element * params.run_pitch + column;
      const int32_t swizzle = swizzle_of_row(params, static_cast<uint32_t>(element));
      if (are_inside[k]) {
#pragma unroll
        for (int i = 0; i < elements_per_vector; ++i)
          words[k][i] =
              *reinterpret_cast<const Word*>(shared_tile + ((shared_offset + i * params.run_pitch) ^ swizzle));
      } else if constexpr (kPlain) {  // for GCC's -Wuninitialized; slower without plain rows
#pragma unroll
        for (int i = 0; i < elements_per_vector; ++i) words[k][i] = {};
      }
      cursor.step(params);
    }
#pragma unroll
    for (int k = 0; k < items_in_flight; ++k) {
      if (!are_inside[k]) continue;
      if constexpr (Bytes < 4) {
        store_rows_of_words<Bytes, kPlain>(params, words[k], rows[k], in_rows[k]);
      } else if (kPlain || is_in_window(params, rows[k], in_rows[k])) {
        Vector<Bytes> out;
#pragma unroll
        for (int i = 0; i < elements_per_vector; ++i) out.elements[i] = words[k][i];
        *reinterpret_cast<uint4*>(rows[k] + in_rows[k]) = out.whole;
      }
    }
  }
}

// Converted elements: the rows of a group are stored one after the other.
template <bool kPlain, int kSrcBytes, int kDstBytes, class Compute>
__device__ __forceinline__ void store_aligned_tile(const TileParams& params, const TileOrigin& tile,
                                                   const unsigned char* shared_tile, int32_t shift,
                                                   const Converted<kSrcBytes, kDstBytes, Compute>& elements) {
  constexpr int elements_per_vector = vector_bytes / kDstBytes;
  constexpr int rows_per_item = kSrcBytes < 4 ? 4 / kSrcBytes : 1;
  using Word = Pack<(kSrcBytes < 4 ? 4 : kSrcBytes)>;
#pragma unroll 1
  for (StoreCursor cursor(params); !cursor.is_done(params); cursor.step(params)) {
    const int32_t element = params.skipped_elements + static_cast<int32_t>(cursor.vector) * elements_per_vector;
    if (cursor.dst_row >= tile.dst_row_end || element < tile.dst_element_begin || element >= tile.dst_element_end)
      continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, cursor.dst_row, &offset, &column);
    unsigned char* dst = tile.dst + offset;
    const int32_t in_row = element * kDstBytes - params.window_start_bytes;  // < 0 only in a halo
    const int32_t shared_offset = shift + element * params.run_pitch + column;
    const int32_t swizzle = swizzle_of_row(params, static_cast<uint32_t>(element));
    Word words[elements_per_vector];
#pragma unroll
    for (int i = 0; i < elements_per_vector; ++i)
      words[i] = *reinterpret_cast<const Word*>(shared_tile + ((shared_offset + i * params.run_pitch) ^ swizzle));
#pragma unroll 1
    for (int row = 0; row < rows_per_item; ++row) {
      const Vector<kDstBytes> out = elements.make_vector(words);
      if constexpr (kSrcBytes < 4) {
#pragma unroll
        for (uint32_t& word : words) word >>= 8 * kSrcBytes;
      }
      if (is_in_window(params, dst, in_row)) *reinterpret_cast<uint4*>(dst + in_row) = out.whole;
      dst += params.dst_row_step;
    }
  }
}

// dst[r', e'] = src[e', r'] for a tile whose runs share no dimension, 16-byte aligned throughout: source row e' of the
// tile holds element e' of every destination run. Elements of 1 and 2 bytes are read as words: one word is an element
// of 4 or 2 neighbouring destination rows. Shared memory is swizzled so that neither side has bank conflicts. kPlain:
// rows of one dimension on both sides, and no halo.
template <class Elements, bool kPlain>
__global__ void __launch_bounds__(tile_threads, fitting_blocks(tile_threads, min_tile_blocks<Elements>))
    aligned_tile(const __grid_constant__ GridConstant<TileParams> params,
                 const __grid_constant__ GridConstant<Elements> elements) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<false>(params);
  const int32_t shift = tile_shift(params, tile);
  if constexpr (kPlain)
    load_plain_rows(params, tile, shared_tile, shift);
  else
    load_tile<true>(params, tile, shared_tile, shift);
  async_copy_wait();
  __syncthreads();
  store_aligned_tile<kPlain>(params, tile, shared_tile, shift, elements);
}

}  // namespace flowk::permute
