// SPDX-License-Identifier: Apache-2.0
// The kernels of permute that put 2 to 4 planes together into pixels, or take pixels apart into planes.
//
//   channel_interleave:    dst[b, n, c] = src[b, c, n]     src is (batch..., channels, pixels), dst (batch..., pixels,
//   channels) channel_deinterleave:  dst[b, c, n] = src[b, n, c]     the other way round
//
// A thread owns 16 bytes of every plane, which are `channels` chunks of 16 bytes of neighbouring pixels, and moves
// elements between the two by register permutations of constant indices. A tile is as many neighbouring chunks of a
// plane as it has threads; its pixels are one contiguous span, which passes through shared memory so that a warp moves
// whole lines. A block owns one tile, or several small ones.
#pragma once

#include "core/divide.h"
#include "core/grid_order.cuh"
#include "core/pack.cuh"
#include "core/shared.cuh"
#include "permute/permute_plan.h"

namespace flowk {

// Where a thread's tile stands.
struct ChannelTile {
  const unsigned char* src;
  unsigned char* dst;
  uint32_t num_chunks;  // of each plane
  uint32_t thread;      // of the tile's num_threads
  uint32_t num_threads;
  uint32_t shared_first;  // the chunk of shared memory that the tile's part starts with
};

__device__ __forceinline__ ChannelTile locate_channel_tile(const ChannelParams& params) {
  allow_next_grid();
  const uint32_t in_block = threadIdx.x >> params.thread_bits;
  const uint32_t num_threads = params.tiles_per_block == 1 ? blockDim.x : 1u << params.thread_bits;
  ChannelTile tile = {params.src,  params.dst,
                      num_threads, threadIdx.x & ((1u << params.thread_bits) - 1),
                      num_threads, in_block * params.tile_shared_chunks};
  uint32_t linear = blockIdx.x * params.tiles_per_block + in_block;
  const bool is_past = linear >= params.num_tiles;
  for (int d = 0; d < params.grid_rank; ++d) {
    const int64_t index = d + 1 < params.grid_rank ? take_index(&linear, params.grid[d].divider) : linear;
    tile.src += index * params.grid[d].src_step;
    tile.dst += index * params.grid[d].dst_step;
    if (d == 0) {
      const int64_t remaining = params.plane_chunks - index * num_threads;
      if (remaining < tile.num_chunks) tile.num_chunks = static_cast<uint32_t>(remaining);
    }
  }
  if (is_past) tile.num_chunks = 0;
  wait_for_previous_grid();
  return tile;
}

// Chunks between the last 128-byte line that starts at or before `pixels` and `pixels` itself: the span stands in
// shared memory as many chunks from the start, so that lines of global memory are lines of shared memory too.
__device__ __forceinline__ uint32_t chunks_into_line(const void* pixels) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pixels) % 128) / chunk_bytes;
}

// The address of chunk `place` of shared memory. Eight threads move their 16 bytes at once: neighbouring chunks in the
// copies, every kChannels-th chunk at the thread's own pixels. An odd step meets all banks; for 2 and 4 channels chunks
// of every line are swapped by the line's number, which keeps the first and spreads the second over all banks.
template <int kChannels>
__device__ __forceinline__ uint4* shared_chunk(uint32_t place) {
  constexpr uint32_t mask = kChannels % 2 == 0 ? kChannels - 1 : 0;
  return reinterpret_cast<uint4*>(&shared<unsigned char>()) + (place ^ (place >> 3 & mask));
}

template <int Bytes, int kChannels>
__global__ void __launch_bounds__(max_channel_threads)
    channel_interleave(const __grid_constant__ ChannelParams params) {
  static_assert(kChannels >= 2 && kChannels <= 4);
  constexpr int elements_per_chunk = chunk_bytes / Bytes;
  const ChannelTile tile = locate_channel_tile(params);
  const uint32_t first_place = chunks_into_line(tile.dst);
  if (tile.thread < tile.num_chunks) {
    const unsigned char* src = tile.src + tile.thread * chunk_bytes;
    Chunk<Bytes> planes[kChannels], pixels[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      planes[c].whole = *reinterpret_cast<const uint4*>(src + c * params.plane_stride);
#pragma unroll
    for (int n = 0; n < elements_per_chunk; ++n)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const int element = n * kChannels + c;
        pixels[element / elements_per_chunk].elements[element % elements_per_chunk] = planes[c].elements[n];
      }
#pragma unroll
    for (int i = 0; i < kChannels; ++i)
      *shared_chunk<kChannels>(tile.shared_first + first_place + tile.thread * kChannels + i) = pixels[i].whole;
  }
  __syncthreads();
  const uint32_t num_chunks = tile.num_chunks * kChannels;
#pragma unroll
  for (int pass = 0; pass <= kChannels; ++pass) {
    const uint32_t place = tile.thread + pass * tile.num_threads;
    const uint32_t chunk = place - first_place;  // wraps before the span
    if (chunk < num_chunks)
      *reinterpret_cast<uint4*>(tile.dst + chunk * chunk_bytes) = *shared_chunk<kChannels>(tile.shared_first + place);
  }
}

template <int Bytes, int kChannels>
__global__ void __launch_bounds__(max_channel_threads)
    channel_deinterleave(const __grid_constant__ ChannelParams params) {
  static_assert(kChannels >= 2 && kChannels <= 4);
  constexpr int elements_per_chunk = chunk_bytes / Bytes;
  const ChannelTile tile = locate_channel_tile(params);
  const uint32_t first_place = chunks_into_line(tile.src);
  const uint32_t num_chunks = tile.num_chunks * kChannels;
#pragma unroll
  for (int pass = 0; pass <= kChannels; ++pass) {
    const uint32_t place = tile.thread + pass * tile.num_threads;
    const uint32_t chunk = place - first_place;  // wraps before the span
    if (chunk < num_chunks)
      async_copy_chunk(shared_chunk<kChannels>(tile.shared_first + place), tile.src + chunk * chunk_bytes);
  }
  async_copy_wait();
  __syncthreads();
  if (tile.thread >= tile.num_chunks) return;
  Chunk<Bytes> pixels[kChannels], planes[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i)
    pixels[i].whole = *shared_chunk<kChannels>(tile.shared_first + first_place + tile.thread * kChannels + i);
#pragma unroll
  for (int n = 0; n < elements_per_chunk; ++n)
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int element = n * kChannels + c;
      planes[c].elements[n] = pixels[element / elements_per_chunk].elements[element % elements_per_chunk];
    }
  unsigned char* dst = tile.dst + tile.thread * chunk_bytes;
#pragma unroll
  for (int c = 0; c < kChannels; ++c) *reinterpret_cast<uint4*>(dst + c * params.plane_stride) = planes[c].whole;
}

}  // namespace flowk
