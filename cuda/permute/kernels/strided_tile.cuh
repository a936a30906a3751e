// SPDX-License-Identifier: Apache-2.0
// The tile of a src or dst without a dimension of stride 1: loaded and stored element by element.
#pragma once

#include "flowk/detail/launch_bounds.h"
#include "permute/kernels/permute_elements.cuh"
#include "permute/kernels/permute_tile.cuh"

namespace flowk::permute {

// Copies a tile to shared memory element by element. Each run is one dimension.
template <int Bytes>
__device__ __forceinline__ void load_strided_tile(const StridedTileParams& params, const TileOrigin& tile,
                                                  unsigned char* shared_tile) {
  const uint32_t run = params.src_run_elements.divisor;
  wait_on_dependent_grids();
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < tile.src_row_end * run; item += tile_threads) {
    const uint32_t src_row = params.src_run_elements.divide(item);
    const int32_t in_row = static_cast<int32_t>(item - src_row * run);
    if (in_row * Bytes >= tile.src_run_bytes) continue;
    int64_t offset;
    int32_t shared_offset;
    locate_tile_row(params.tile.src_row_dims, params.tile.src_row_rank, src_row, &offset, &shared_offset);
    *reinterpret_cast<Pack<Bytes>*>(shared_tile + shared_offset + in_row * Bytes) =
        *reinterpret_cast<const Pack<Bytes>*>(tile.src + offset + in_row * params.src_element_stride);
  }
}

// Calls work(offset in shared memory, address in dst) for every element of the tile, in dst order.
template <class Work>
__device__ __forceinline__ void for_each_strided_element(const StridedTileParams& params, const TileOrigin& tile,
                                                         const Work& work) {
  const uint32_t run = params.dst_run_elements.divisor;
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < tile.dst_row_end * run; item += tile_threads) {
    const uint32_t dst_row = params.dst_run_elements.divide(item);
    const int32_t e = static_cast<int32_t>(item - dst_row * run);
    if (e >= tile.dst_element_end) continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.tile.dst_row_dims, params.tile.dst_row_rank, dst_row, &offset, &column);
    work(e * params.run_pitch + column, tile.dst + offset + e * params.dst_element_stride);
  }
}

// dst[r', e'] = src[r, c] for a tile with two runs, each of one dimension of any stride: an element has source row r
// and offset c in the source run, and destination row r' and offset e' in the destination run.
template <class Elements>
__global__ void __launch_bounds__(tile_threads, fitting_blocks(tile_threads, min_tile_blocks<Elements>))
    strided_tile(const __grid_constant__ GridConstant<StridedTileParams> params,
                 const __grid_constant__ GridConstant<Elements> elements) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<true>(params.tile);
  elements.visit_src_size([&](auto bytes) { load_strided_tile<decltype(bytes)::value>(params, tile, shared_tile); });
  __syncthreads();
  if constexpr (std::is_same_v<Elements, AnyMoved>) {
    elements.visit_src_size([&](auto bytes) {
      using Moved = Pack<decltype(bytes)::value>;
      for_each_strided_element(params, tile, [&](int32_t shared_offset, unsigned char* address) {
        *reinterpret_cast<Moved*>(address) = *reinterpret_cast<const Moved*>(shared_tile + shared_offset);
      });
    });
  } else {
    for_each_strided_element(params, tile, [&](int32_t shared_offset, unsigned char* address) {
      elements.convert_one(shared_tile + shared_offset, address);
    });
  }
}

}  // namespace flowk::permute
