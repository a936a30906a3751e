// SPDX-License-Identifier: Apache-2.0
// The kernels of permute that put 2 to 4 planes together into pixels, or take pixels apart into planes.
//
//   channel_interleave:    dst[b, n, c] = src[b, c, n]     src is (batch..., channels, pixels), dst (batch..., pixels,
//   channels) channel_deinterleave:  dst[b, c, n] = src[b, n, c]     the other way round
//
// A thread owns 16 bytes of every plane, which are `channels` vectors of 16 bytes of neighbouring pixels, and moves
// elements between the two by register permutations of constant indices. A tile is as many neighbouring vectors of a
// plane as it has threads; its pixels are one contiguous span, which passes through shared memory so that a warp moves
// whole lines. A block owns one tile, or several small ones.
#pragma once

#include "core/divide.h"
#include "core/vector.cuh"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "permute/permute_plan.h"

namespace flowk::permute {

// Where a thread's tile stands.
struct ChannelTile {
  const unsigned char* src;
  unsigned char* dst;
  uint32_t num_vectors;  // of each plane
  uint32_t thread;       // of the tile's num_threads
  uint32_t num_threads;
  uint32_t shared_first;  // the vector of shared memory that the tile's part starts with
};

__device__ __forceinline__ ChannelTile locate_channel_tile(const ChannelParams& params) {
  launch_dependent_grids();
  const uint32_t in_block = threadIdx.x >> params.thread_bits;
  const uint32_t num_threads = params.tiles_per_block == 1 ? blockDim.x : 1u << params.thread_bits;
  ChannelTile tile = {params.src,  params.dst,
                      num_threads, threadIdx.x & ((1u << params.thread_bits) - 1),
                      num_threads, in_block * params.tile_shared_vectors};
  uint32_t linear = blockIdx.x * params.tiles_per_block + in_block;
  const bool is_past = linear >= params.num_tiles;
  for (int d = 0; d < params.grid_rank; ++d) {
    const int64_t index = d + 1 < params.grid_rank ? take_index(&linear, params.grid[d].divider) : linear;
    tile.src += index * params.grid[d].src_step;
    tile.dst += index * params.grid[d].dst_step;
    if (d == 0) {
      const int64_t remaining = params.plane_vectors - index * num_threads;
      if (remaining < tile.num_vectors) tile.num_vectors = static_cast<uint32_t>(remaining);
    }
  }
  if (is_past) tile.num_vectors = 0;
  wait_on_dependent_grids();
  return tile;
}

// Vectors between the last 128-byte line that starts at or before `pixels` and `pixels` itself: the span stands in
// shared memory as many vectors from the start, so that lines of global memory are lines of shared memory too.
__device__ __forceinline__ uint32_t vectors_into_line(const void* pixels) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pixels) % 128) / vector_bytes;
}

// The address of vector `place` of shared memory. Eight threads move their 16 bytes at once: neighbouring vectors in
// the copies, every kChannels-th vector at the thread's own pixels. An odd step meets all banks; for 2 and 4 channels
// vectors of every line are swapped by the line's number, which keeps the first and spreads the second over all banks.
template <int kChannels>
__device__ __forceinline__ uint4* shared_vector(uint32_t place) {
  constexpr uint32_t mask = kChannels % 2 == 0 ? kChannels - 1 : 0;
  return reinterpret_cast<uint4*>(&shared<unsigned char>()) + (place ^ (place >> 3 & mask));
}

template <int Bytes, int kChannels>
__global__ void __launch_bounds__(max_channel_threads)
    channel_interleave(const __grid_constant__ ChannelParams params) {
  static_assert(kChannels >= 2 && kChannels <= 4);
  constexpr int elements_per_vector = vector_bytes / Bytes;
  const ChannelTile tile = locate_channel_tile(params);
  const uint32_t first_place = vectors_into_line(tile.dst);
  if (tile.thread < tile.num_vectors) {
    const unsigned char* src = tile.src + tile.thread * vector_bytes;
    Vector<Bytes> planes[kChannels], pixels[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      planes[c].whole = *reinterpret_cast<const uint4*>(src + c * params.plane_stride);
#pragma unroll
    for (int n = 0; n < elements_per_vector; ++n)
#pragma unroll
      for (int c = 0; c < kChannels; ++c) {
        const int element = n * kChannels + c;
        pixels[element / elements_per_vector].elements[element % elements_per_vector] = planes[c].elements[n];
      }
#pragma unroll
    for (int i = 0; i < kChannels; ++i)
      *shared_vector<kChannels>(tile.shared_first + first_place + tile.thread * kChannels + i) = pixels[i].whole;
  }
  __syncthreads();
  const uint32_t num_vectors = tile.num_vectors * kChannels;
#pragma unroll
  for (int pass = 0; pass <= kChannels; ++pass) {
    const uint32_t place = tile.thread + pass * tile.num_threads;
    const uint32_t vector = place - first_place;  // wraps before the span
    if (vector < num_vectors)
      *reinterpret_cast<uint4*>(tile.dst + vector * vector_bytes) =
          *shared_vector<kChannels>(tile.shared_first + place);
  }
}

template <int Bytes, int kChannels>
__global__ void __launch_bounds__(max_channel_threads)
    channel_deinterleave(const __grid_constant__ ChannelParams params) {
  static_assert(kChannels >= 2 && kChannels <= 4);
  constexpr int elements_per_vector = vector_bytes / Bytes;
  const ChannelTile tile = locate_channel_tile(params);
  const uint32_t first_place = vectors_into_line(tile.src);
  const uint32_t num_vectors = tile.num_vectors * kChannels;
#pragma unroll
  for (int pass = 0; pass <= kChannels; ++pass) {
    const uint32_t place = tile.thread + pass * tile.num_threads;
    const uint32_t vector = place - first_place;  // wraps before the span
    if (vector < num_vectors)
      async_copy_vector(shared_vector<kChannels>(tile.shared_first + place), tile.src + vector * vector_bytes);
  }
  async_copy_wait();
  __syncthreads();
  if (tile.thread >= tile.num_vectors) return;
  Vector<Bytes> pixels[kChannels], planes[kChannels];
#pragma unroll
  for (int i = 0; i < kChannels; ++i)
    pixels[i].whole = *shared_vector<kChannels>(tile.shared_first + first_place + tile.thread * kChannels + i);
#pragma unroll
  for (int n = 0; n < elements_per_vector; ++n)
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int element = n * kChannels + c;
      planes[c].elements[n] = pixels[element / elements_per_vector].elements[element % elements_per_vector];
    }
  unsigned char* dst = tile.dst + tile.thread * vector_bytes;
#pragma unroll
  for (int c = 0; c < kChannels; ++c) *reinterpret_cast<uint4*>(dst + c * params.plane_stride) = planes[c].whole;
}

}  // namespace flowk::permute
