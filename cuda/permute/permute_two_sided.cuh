// SPDX-License-Identifier: Apache-2.0
// The tiles of any runs, extents and alignment, and of sides without a dimension of stride 1.
#pragma once

#include "permute/permute_gather.cuh"

namespace flowk::permute {

// Loads a block's tile of any runs, extents and alignment, and stores what `make_vector` and, for runs of less than a
// vector, `make_element` make of its elements. Where element e of the run stands in shared memory is e * run_pitch, or
// comes from a table that the block makes while its loads are under way.
template <int kSrcBytes, int kDstBytes, bool kTable, bool kSwizzle, class MakeVector, class MakeElement>
__device__ __forceinline__ void move_tile(const TileParams& params, const MakeVector& make_vector,
                                          const MakeElement& make_element) {
  constexpr int elements_per_vector = vector_bytes / kDstBytes;
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<true>(params);
  const int32_t shift = tile_shift(params, tile);
  load_tile<false>(params, tile, shared_tile, shift);
  if constexpr (kTable) {
    const auto table = reinterpret_cast<TileTableEntry*>(shared_tile + params.table_offset_bytes);
    make_table(params, params.num_table_entries, table);
  }
  DstRow* rows = reinterpret_cast<DstRow*>(shared_tile + params.rows_offset_bytes);
  make_dst_rows<kDstBytes>(params, tile, shift, rows);
  async_copy_wait();
  __syncthreads();

  const int32_t last_start = tile.dst_element_end - elements_per_vector;
#pragma unroll 1
  for (StoreWalk walk(params); !walk.is_done(params); walk.step(params)) {
    if (walk.dst_row >= tile.dst_row_end) continue;
    const RowVector vector = locate_vector<kDstBytes>(tile, rows, walk);
    if (vector.first >= vector.last) continue;
    if (last_start >= tile.dst_element_begin) {
      const int32_t start = min(max(vector.element, tile.dst_element_begin), last_start);
      Element<kSrcBytes> elements[elements_per_vector];
      gather<kSrcBytes, elements_per_vector, kTable, kSwizzle>(params, shared_tile, start, vector.column, elements);
      store_row_vector<kDstBytes>(vector, start, make_vector(elements));
    } else {
#pragma unroll 1
      for (int32_t i = vector.first; i < vector.last; ++i) {
        Element<kSrcBytes> element[1];
        gather<kSrcBytes, 1, kTable, kSwizzle>(params, shared_tile, vector.element + i, vector.column, element);
        *reinterpret_cast<Pack<kDstBytes>*>(vector.address + i * kDstBytes) = make_element(element[0]);
      }
    }
  }
}

template <int Bytes, bool kTable, bool kSwizzle>
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    two_sided_tile(const __grid_constant__ TileParams params) {
  move_tile<Bytes, Bytes, kTable, kSwizzle>(
      params, [](const Element<Bytes>(&elements)[vector_bytes / Bytes]) { return vector_of<Bytes>(elements); },
      [](const Element<Bytes>& element) { return static_cast<Pack<Bytes>>(element); });
}

// Copies a tile to shared memory element by element, for sides without a dimension of stride 1. Each run is one
// dimension.
template <int Bytes>
__device__ __forceinline__ void load_strided_tile(const TileParams& params, const TileOrigin& tile,
                                                  unsigned char* shared_tile) {
  const uint32_t run = params.vectors_per_src_row.divisor;
  wait_on_dependent_grids();
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < tile.src_row_end * run; item += tile_threads) {
    const uint32_t src_row = params.vectors_per_src_row.divide(item);
    const int32_t in_row = static_cast<int32_t>(item - src_row * run);
    if (in_row * Bytes >= tile.src_run_bytes) continue;
    int64_t offset;
    int32_t place;
    locate_tile_row(params.src_row_dims, params.src_row_rank, src_row, &offset, &place);
    *reinterpret_cast<Pack<Bytes>*>(shared_tile + place + in_row * Bytes) =
        *reinterpret_cast<const Pack<Bytes>*>(tile.src + offset + in_row * params.src_element_stride);
  }
}

// Visits every element of the tile in dst order: work(its place in shared memory, its address in dst).
template <class Work>
__device__ __forceinline__ void for_each_strided_element(const TileParams& params, const TileOrigin& tile,
                                                         const Work& work) {
  const uint32_t run = params.vectors_per_group.divisor;
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < tile.dst_row_end * run; item += tile_threads) {
    const uint32_t dst_row = params.vectors_per_group.divide(item);
    const int32_t e = static_cast<int32_t>(item - dst_row * run);
    if (e >= tile.dst_element_end) continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
    work(e * params.run_pitch + column, tile.dst + offset + e * params.dst_element_stride);
  }
}

// As two_sided_tile, but element by element on both sides.
template <int Bytes>
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    strided_tile(const __grid_constant__ TileParams params) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<true>(params);
  load_strided_tile<Bytes>(params, tile, shared_tile);
  __syncthreads();
  for_each_strided_element(params, tile, [&](int32_t place, unsigned char* address) {
    *reinterpret_cast<Pack<Bytes>*>(address) = *reinterpret_cast<const Pack<Bytes>*>(shared_tile + place);
  });
}

}  // namespace flowk::permute
