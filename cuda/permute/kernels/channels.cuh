// SPDX-License-Identifier: Apache-2.0
// Planes to pixels of 2 to 4 channels, and back.
//
// A thread owns 16 bytes of every plane and the same pixels of the span, and permutes elements between them in
// registers. A tile has one vector per plane and thread; its pixels are one contiguous span, which passes through
// shared memory so that a warp moves whole lines. A block owns one tile, or several small ones.
#pragma once

#include "core/index_split.h"
#include "core/vector.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "permute/kernels/permute_elements.cuh"

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
  const PairBlock pair(params);
  ChannelTile tile = {params.src + pair.src_offset,
                      params.dst + pair.dst_offset,
                      num_threads,
                      threadIdx.x & ((1u << params.thread_bits) - 1),
                      num_threads,
                      in_block * params.tile_shared_vectors};
  uint32_t linear = pair.block * params.tiles_per_block + in_block;
  const bool is_past = linear >= params.num_tiles;
  const int64_t in_plane = take_dim(&linear, params.grid[0]);
  const int64_t remaining = params.plane_vectors - in_plane * num_threads;
  tile.src += in_plane * params.grid[0].src_step;
  tile.dst += in_plane * params.grid[0].dst_step;
  if (remaining < tile.num_vectors) tile.num_vectors = static_cast<uint32_t>(remaining);
  split_index<1>(linear, params.grid + 1, params.grid_rank - 1, [&](int d, int64_t index) {
    tile.src += index * params.grid[d + 1].src_step;
    tile.dst += index * params.grid[d + 1].dst_step;
  });
  if (is_past) tile.num_vectors = 0;
  wait_on_dependent_grids();
  return tile;
}

// Vectors from the start of the line to `pixels`. The span has the same offset in shared memory, so that lines of
// global memory are lines of shared memory.
__device__ __forceinline__ uint32_t vectors_into_line(const void* pixels) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pixels) % line_bytes) / vector_bytes;
}

// The pixels of one thread, in the widest packs that divide their bytes.
template <int kPlanarBytes, int kPixelBytes, int kChannels>
union ThreadPixels {
  static constexpr int num_pixels = vector_bytes / kPlanarBytes;
  static constexpr int num_bytes = num_pixels * kChannels * kPixelBytes;
  static constexpr int pack_bytes = num_bytes % 16 == 0 ? 16 : num_bytes % 8 == 0 ? 8 : 4;
  static constexpr int num_packs = num_bytes / pack_bytes;
  Pack<pack_bytes> packs[num_packs];
  uint32_t words[num_bytes / 4];
  Pack<kPixelBytes> elements[num_pixels * kChannels];

  // Bytes by the instruction that extends them too; the compiler would take two.
  __device__ __forceinline__ Element<kPixelBytes> element(int i) const {
    if constexpr (kPixelBytes == 1)
      return __byte_perm(words[i / 4], 0, 0x4440 + static_cast<uint32_t>(i) % 4);
    else
      return elements[i];
  }
};

// The address of vector `shared_index`. Eight threads move 16 bytes each at once: neighbouring vectors when they copy,
// vectors that are num_packs apart when they take their pixels. An odd step uses all banks. With an even step the
// vectors of a line are XORed with the line's number, which spreads both accesses over all banks.
template <class Pixels>
__device__ __forceinline__ uint4* shared_vector(uint32_t shared_index) {
  constexpr uint32_t step = Pixels::pack_bytes == vector_bytes ? Pixels::num_packs : 1;
  constexpr uint32_t mask = ((step & -step) - 1) % line_vectors;
  return reinterpret_cast<uint4*>(&shared<unsigned char>()) + (shared_index ^ (shared_index >> 3 & mask));
}

// Pack i of a thread's pixels in shared memory. The tile's span begins in vector `first_index` of its part.
template <class Pixels>
__device__ __forceinline__ auto& shared_pack(const ChannelTile& tile, uint32_t first_index, int i) {
  const uint32_t pack = tile.thread * Pixels::num_packs + i, first = tile.shared_first + first_index;
  if constexpr (Pixels::pack_bytes == vector_bytes)
    return *shared_vector<Pixels>(first + pack);
  else
    return reinterpret_cast<Pack<Pixels::pack_bytes>*>(shared_vector<Pixels>(first))[pack];
}

// Calls visit(address in shared memory, offset in bytes from the start of the span) for the vectors of the span that
// this thread copies. Offsets have 64 bits: with 32 the compiler spills in the kernel for all channel counts (sm_90).
template <class Pixels, class Visit>
__device__ __forceinline__ void for_each_vector(const ChannelTile& tile, uint32_t first_index, const Visit& visit) {
  const uint32_t num_vectors = tile.num_vectors * Pixels::num_bytes / vector_bytes;
#pragma unroll
  for (int pass = 0; pass <= Pixels::num_bytes / vector_bytes; ++pass) {
    const uint32_t shared_index = tile.thread + pass * tile.num_threads;
    const uint32_t vector = shared_index - first_index;  // wraps before the span
    if (vector < num_vectors)
      visit(shared_vector<Pixels>(tile.shared_first + shared_index), vector * int64_t{vector_bytes});
  }
}

template <int kChannels, class Elements>
__device__ __forceinline__ void interleave(const ChannelParams& params, const ChannelTile& tile,
                                           const Elements& elements) {
  using Pixels = ThreadPixels<Elements::src_bytes, Elements::dst_bytes, kChannels>;
  const uint32_t first_index = vectors_into_line(tile.dst);
  if (tile.thread < tile.num_vectors) {
    const unsigned char* src = tile.src + tile.thread * int64_t{vector_bytes};
    Vector<Elements::src_bytes> planes[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      planes[c].whole = *reinterpret_cast<const uint4*>(src + c * params.plane_stride);
    Pixels pixels;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      Pack<Elements::dst_bytes> plane[Pixels::num_pixels];
      elements.convert(planes[c].elements, plane);
#pragma unroll
      for (int n = 0; n < Pixels::num_pixels; ++n) pixels.elements[n * kChannels + c] = plane[n];
    }
#pragma unroll
    for (int i = 0; i < Pixels::num_packs; ++i) shared_pack<Pixels>(tile, first_index, i) = pixels.packs[i];
  }
  __syncthreads();
  for_each_vector<Pixels>(tile, first_index, [&](const uint4* shared_vector, int64_t offset) {
    *reinterpret_cast<uint4*>(tile.dst + offset) = *shared_vector;
  });
}

template <int kChannels, class Elements>
__device__ __forceinline__ void deinterleave(const ChannelParams& params, const ChannelTile& tile,
                                             const Elements& elements) {
  using Pixels = ThreadPixels<Elements::dst_bytes, Elements::src_bytes, kChannels>;
  const uint32_t first_index = vectors_into_line(tile.src);
  for_each_vector<Pixels>(tile, first_index, [&](uint4* shared_vector, int64_t offset) {
    async_copy_vector(shared_vector, tile.src + offset);
  });
  async_copy_wait();
  __syncthreads();
  if (tile.thread >= tile.num_vectors) return;
  Pixels pixels;
#pragma unroll
  for (int i = 0; i < Pixels::num_packs; ++i) pixels.packs[i] = shared_pack<Pixels>(tile, first_index, i);
  unsigned char* dst = tile.dst + tile.thread * int64_t{vector_bytes};
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    Vector<Elements::dst_bytes> out;
    if constexpr (is_moved<Elements>) {
#pragma unroll
      for (int n = 0; n < Pixels::num_pixels; ++n) out.elements[n] = pixels.elements[n * kChannels + c];
    } else {
      Element<Elements::src_bytes> plane[Pixels::num_pixels];
#pragma unroll
      for (int n = 0; n < Pixels::num_pixels; ++n) plane[n] = pixels.element(n * kChannels + c);
      out = elements.make_vector(plane);
    }
    *reinterpret_cast<uint4*>(dst + c * params.plane_stride) = out.whole;
  }
}

// kInterleave:  dst[b, n, c] = src[b, c, n]     src is (batch..., channels, pixels), dst (batch..., pixels, channels)
// otherwise:    dst[b, c, n] = src[b, n, c]     src is (batch..., pixels, channels), dst (batch..., channels, pixels)
template <class Elements, bool kInterleave>
__global__ void __launch_bounds__(max_channel_threads, fitting_blocks(max_channel_threads, is_moved<Elements> ? 12 : 0))
    channels(const __grid_constant__ GridConstant<ChannelParams> params,
             const __grid_constant__ GridConstant<Elements> elements) {
  const ChannelTile tile = locate_channel_tile(params);
  const auto move = [&](auto num_channels) {
    constexpr int count = decltype(num_channels)::value;
    if constexpr (kInterleave)
      interleave<count>(params, tile, elements);
    else
      deinterleave<count>(params, tile, elements);
  };
  if constexpr (is_moved<Elements>) {
    if (params.num_channels == 2) return move(std::integral_constant<int, 2>());
  }
  if (params.num_channels == 3) return move(std::integral_constant<int, 3>());
  move(std::integral_constant<int, 4>());
}

}  // namespace flowk::permute
