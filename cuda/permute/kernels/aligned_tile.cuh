// SPDX-License-Identifier: Apache-2.0
// The tile that is aligned to 16 bytes in src and in dst, with runs that share no dimension.
#pragma once

#include "flowk/detail/launch_bounds.h"
#include "permute/kernels/permute_elements.cuh"
#include "permute/kernels/permute_tile.cuh"

namespace flowk::permute {

// load_tile() for rows that start on vectors and have one dimension.
__device__ __forceinline__ void load_plain_rows(const AlignedTileParams& params, const TileOrigin& tile,
                                                unsigned char* shared_tile, int32_t shift) {
  const TileLoad& load = params.load;
  uint32_t row = load.vectors_per_row.divide(threadIdx.x);
  const int32_t column = static_cast<int32_t>(threadIdx.x - row * load.vectors_per_row.divisor) * vector_bytes;
  const TileRowDim& dim = params.tile.src_row_dims[0];
  const unsigned char* at = tile.src + (row * dim.stride + column);
  int32_t shared_offset = shift + column + static_cast<int32_t>(row) * dim.shared_step;
  const SharedAddress base = shared_address(shared_tile);
  if (row >= load.rows_per_pass || column >= tile.src_run_bytes) row = tile.src_row_end;
  wait_on_dependent_grids();
#pragma unroll 1
  while (row < tile.src_row_end) {
#pragma unroll
    for (int i = 0; i < rows_in_flight; ++i) {
      if (row < tile.src_row_end) async_copy_vector(base + (shared_offset ^ swizzle_of_row(params, row)), at);
      row += load.rows_per_pass;
      at += load.pass.step;
      shared_offset += load.pass.shared_step;
    }
  }
}

// Does this tile store the vector of the destination row at `row` that begins `in_row` bytes after it? With a halo the
// tile's span of a row begins at the last sector start at or before `row`. It ends where the next tile's begins.
__device__ __forceinline__ bool is_in_span(const TileStore& store, const unsigned char* row, int32_t in_row) {
  if (store.span_end_mask == 0) return true;
  const auto start = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row));
  const auto into_sector = [&](uint32_t at) { return static_cast<int32_t>(at & store.span_end_mask); };
  return in_row >= -into_sector(start) &&
         in_row < store.span_bytes - into_sector(start + static_cast<uint32_t>(store.span_bytes));
}

// Stores the words that a thread has read. Word i holds element i of a vector in each of 1, 2 or 4 neighbouring
// destination rows. `row` is the start of the first row. The words are transposed to one vector per row.
template <bool kPlain, int Bytes>
__device__ __forceinline__ void store_words(const AlignedTileParams& params, const Moved<Bytes>&,
                                            const Pack<(Bytes < 4 ? 4 : Bytes)> (&words)[vector_bytes / Bytes],
                                            unsigned char* row, int32_t in_row) {
  const auto store = [&](int i, const uint4& vector) {
    unsigned char* at = row + i * params.dst_row_step;
    if (kPlain || is_in_span(params.store, at, in_row)) *reinterpret_cast<uint4*>(at + in_row) = vector;
  };
  if constexpr (Bytes == 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t select = i == 0 ? 0x5410 : 0x7632;
      store(i, make_uint4(__byte_perm(words[0], words[1], select), __byte_perm(words[2], words[3], select),
                          __byte_perm(words[4], words[5], select), __byte_perm(words[6], words[7], select)));
    }
  } else if constexpr (Bytes == 1) {
    uint32_t out[4][4];  // [word][row]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t four[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
      transpose_bytes(four, out[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) store(i, make_uint4(out[0][i], out[1][i], out[2][i], out[3][i]));
  } else {
    Vector<Bytes> out;
#pragma unroll
    for (int i = 0; i < vector_bytes / Bytes; ++i) out.elements[i] = words[i];
    store(0, out.whole);
  }
}

// Converted elements: the rows are stored one after the other.
template <bool kPlain, int kSrcBytes, int kDstBytes, class Compute>
__device__ __forceinline__ void store_words(const AlignedTileParams& params,
                                            const Converted<kSrcBytes, kDstBytes, Compute>& elements,
                                            Pack<(kSrcBytes < 4 ? 4 : kSrcBytes)> (&words)[vector_bytes / kDstBytes],
                                            unsigned char* row, int32_t in_row) {
#pragma unroll 1
  for (int i = 0; i < 1 << log2_rows_of_word(kSrcBytes); ++i) {
    Element<kSrcBytes> src[vector_bytes / kDstBytes];
#pragma unroll
    for (int k = 0; k < vector_bytes / kDstBytes; ++k) {
      src[k] = words[k];
      if constexpr (kSrcBytes == 1) src[k] = __byte_perm(words[k], 0, 0x4440 + static_cast<uint32_t>(i));
      if constexpr (kSrcBytes == 2) words[k] >>= 16;
    }
    const Vector<kDstBytes> out = elements.make_vector(src);
    if (is_in_span(params.store, row, in_row)) *reinterpret_cast<uint4*>(row + in_row) = out.whole;
    row += params.dst_row_step;
  }
}

// Reads and stores the tile, one or two items of a thread at a time. Elements of 1 and 2 bytes are read as words.
template <bool kPlain, class Elements>
__device__ __forceinline__ void store_aligned_tile(const AlignedTileParams& params, const TileOrigin& tile,
                                                   const unsigned char* shared_tile, int32_t shift,
                                                   const Elements& elements) {
  constexpr int src_bytes = Elements::src_bytes, dst_bytes = Elements::dst_bytes;
  constexpr int elements_per_vector = vector_bytes / dst_bytes;
  constexpr int items_in_flight = is_moved<Elements> && src_bytes > 1 ? 2 : 1;
  using Word = Pack<(src_bytes < 4 ? 4 : src_bytes)>;
  StoreCursor cursor(params.store);
#pragma unroll 1
  while (!cursor.is_done(params.store)) {
    Word words[items_in_flight][elements_per_vector];
    bool are_inside[items_in_flight];
    unsigned char* rows[items_in_flight];
    int32_t in_rows[items_in_flight];  // < the row's start only in a halo
#pragma unroll
    for (int k = 0; k < items_in_flight; ++k) {
      const int32_t element =
          static_cast<int32_t>(cursor.vector) * elements_per_vector + (kPlain ? 0 : params.tile.skipped_elements);
      are_inside[k] = !cursor.is_done(params.store) && cursor.dst_row < tile.dst_row_end &&
                      (kPlain || element >= tile.dst_element_begin) && element < tile.dst_element_end;
      int64_t offset;
      int32_t column;
      locate_tile_row(params.tile.dst_row_dims, kPlain ? 1 : params.tile.dst_row_rank, cursor.dst_row, &offset,
                      &column);
      rows[k] = tile.dst + offset;
      in_rows[k] = element * dst_bytes - (kPlain ? 0 : params.halo_bytes);
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
      cursor.step(params.store);
    }
#pragma unroll
    for (int k = 0; k < items_in_flight; ++k)
      if (are_inside[k]) store_words<kPlain>(params, elements, words[k], rows[k], in_rows[k]);
  }
}

// dst[r', e'] = src[e', r'] for a tile whose runs share no dimension, 16-byte aligned throughout: source row e' of the
// tile holds element e' of every destination run. Elements of 1 and 2 bytes are read as words: one word is an element
// of 4 or 2 neighbouring destination rows. Shared memory is swizzled so that neither load nor store has bank conflicts.
// kPlain: source rows and destination rows of one dimension, and no halo.
template <class Elements, bool kPlain>
__global__ void __launch_bounds__(tile_threads, fitting_blocks(tile_threads, min_tile_blocks<Elements>))
    aligned_tile(const __grid_constant__ GridConstant<AlignedTileParams> params,
                 const __grid_constant__ GridConstant<Elements> elements) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<false>(params.tile);
  const int32_t shift = tile_shift(params.load, tile);
  if constexpr (kPlain)
    load_plain_rows(params, tile, shared_tile, shift);
  else
    load_tile<true>(params.tile, params.load, tile, shared_tile, shift, [&](int32_t shared_offset, uint32_t src_row) {
      return shared_offset ^ swizzle_of_row(params, src_row);
    });
  async_copy_wait();
  __syncthreads();
  store_aligned_tile<kPlain>(params, tile, shared_tile, shift, elements);
}

}  // namespace flowk::permute
