// SPDX-License-Identifier: Apache-2.0
// The tile of any runs, extents and alignment.
#pragma once

#include "flowk/detail/launch_bounds.h"
#include "permute/kernels/permute_gather.cuh"

namespace flowk::permute {

// The vector of elements [start, start + 16 / element bytes) of a destination row.
template <bool kSwizzle, class Elements>
__device__ __forceinline__ uint4 gather_vector(const GeneralTileParams& params, const unsigned char* shared_tile,
                                               const Elements& elements, int32_t start, int32_t column) {
  constexpr int num_elements = vector_bytes / Elements::dst_bytes;
  Element<Elements::src_bytes> src[num_elements];
  gather<Elements::src_bytes, num_elements, kSwizzle>(params, shared_tile, start, column, src);
  return elements.make_vector(src).whole;
}
template <bool kSwizzle>
__device__ __forceinline__ uint4 gather_vector(const GeneralTileParams& params, const unsigned char* shared_tile,
                                               const AnyConverted& elements, int32_t start, int32_t column) {
  uint32_t words[4] = {};
#pragma unroll 1
  for (int32_t end = start + dst_elements_of(elements, vector_bytes); start < end; start += 2) {
    uint32_t pairs[1];
    locate_elements<2, kSwizzle>(params, shared_tile, start, column, pairs);
    const unsigned char* const src[2] = {shared_tile + (pairs[0] & 0xffff), shared_tile + (pairs[0] >> 16)};
    elements.append_pair(src, words);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Stores element `at` of a destination row.
template <bool kSwizzle, class Elements>
__device__ __forceinline__ void store_element(const GeneralTileParams& params, const unsigned char* shared_tile,
                                              const Elements& elements, int32_t at, int32_t column,
                                              unsigned char* address) {
  if constexpr (has_sizes<Elements>) {
    Element<Elements::src_bytes> src[1];
    gather<Elements::src_bytes, 1, kSwizzle>(params, shared_tile, at, column, src);
    *reinterpret_cast<Pack<Elements::dst_bytes>*>(address) = elements.make_element(src[0]);
  } else {
    uint32_t pair[1];
    locate_elements<1, kSwizzle>(params, shared_tile, at, column, pair);
    elements.convert_one(shared_tile + (pair[0] & 0xffff), address);
  }
}

// Stores the vectors that a row fills only partly: the one that it starts in, and the one that it ends in if that is
// another. A thread takes one end of a row. The last threads are first, because they have the fewest whole vectors.
template <bool kSwizzle, class Elements>
__device__ __forceinline__ void store_partial_vectors(const GeneralTileParams& params, const TileOrigin& tile,
                                                      const unsigned char* shared_tile, const Elements& elements,
                                                      const DstRow* rows) {
  const int32_t per_vector = dst_elements_of(elements, vector_bytes);
  const int32_t last_start = tile.dst_element_end - per_vector;
#pragma unroll 1
  for (uint32_t item = blockDim.x - 1 - threadIdx.x; item < 2 * params.store.num_rows.divisor; item += blockDim.x) {
    const DstRow row = read_row(rows + item / 2);
    const int32_t begin = max(tile.dst_element_begin, static_cast<int32_t>(row.element));
    const bool is_tail = item % 2 != 0;
    const int32_t from_granule = ((is_tail ? row.end : begin) - row.element) & -per_vector;
    const int32_t element = row.element + from_granule;  // of the vector
    const bool is_whole = is_tail ? element == row.end : element == begin && element + per_vector <= row.end;
    if (row.end <= begin || is_whole || (is_tail && element <= begin)) continue;
    const int32_t first = max(begin - element, 0), last = min(row.end - element, per_vector);
    unsigned char* address = row.address + dst_bytes_of(elements, from_granule);
    if (last_start >= tile.dst_element_begin) {
      // The nearest elements inside the tile are gathered.
      const int32_t start = min(max(element, tile.dst_element_begin), last_start);
      store_vector_part(address, gather_vector<kSwizzle>(params, shared_tile, elements, start, row.column),
                        element - start, first, last, elements);
    } else {
#pragma unroll 1
      for (int32_t i = first; i < last; ++i)
        store_element<kSwizzle>(params, shared_tile, elements, element + i, row.column,
                                address + dst_bytes_of(elements, i));
    }
  }
}

// dst[r', e'] = src[r, c] for a tile of any runs, extents and alignment: an element has source row r and offset c in
// the source run, and destination row r' and offset e' in the destination run. Each thread gathers the elements of a
// vector of a destination row from shared memory. Vectors that a row fills only partly follow.
template <class Elements, bool kSwizzle>
__global__ void __launch_bounds__(tile_threads, fitting_blocks(tile_threads, min_tile_blocks<Elements>))
    general_tile(const __grid_constant__ GridConstant<GeneralTileParams> params,
                 const __grid_constant__ GridConstant<Elements> elements) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<true>(params.tile);
  const int32_t shift = tile_shift(params.load, tile);
  load_tile<false>(params.tile, params.load, tile, shared_tile, shift,
                   [&](int32_t shared_offset, uint32_t) { return swizzle_offset(params, shared_offset); });
  if (params.table.rank > 0) make_table(params.table, params.table.num_entries, shared_tile);
  DstRow* rows = reinterpret_cast<DstRow*>(shared_tile + params.rows_offset_bytes);
  make_dst_rows(params, tile, shift, elements, rows);
  async_copy_wait();
  __syncthreads();

  const int32_t per_vector = dst_elements_of(elements, vector_bytes);
#pragma unroll 1
  for (StoreCursor cursor(params.store); !cursor.is_done(params.store); cursor.step(params.store)) {
    const DstRow row = read_row(rows + cursor.dst_row);
    const int32_t element = row.element + static_cast<int32_t>(cursor.vector) * per_vector;
    if (element < tile.dst_element_begin || element + per_vector > row.end) continue;
    *reinterpret_cast<uint4*>(row.address + cursor.vector * vector_bytes) =
        gather_vector<kSwizzle>(params, shared_tile, elements, element, row.column);
  }
  if (params.dst_rows_have_ends) store_partial_vectors<kSwizzle>(params, tile, shared_tile, elements, rows);
}

}  // namespace flowk::permute
