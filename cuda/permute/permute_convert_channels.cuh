// SPDX-License-Identifier: Apache-2.0
// permute_channels.cuh with conversion: 3 or 4 planes become pixels of another type, or pixels planes.
//
//   convert_interleave:    dst[b, n, c] from src[b, c, n]     src is (batch..., channels, pixels)
//   convert_deinterleave:  dst[b, c, n] from src[b, n, c]     src is (batch..., pixels, channels)
//
// A thread owns 16 bytes of every plane, and the pixels of the same numbers, whose bytes are more or fewer than a
// vector a channel. They are one contiguous span of the block, which passes through shared memory in whole vectors.
#pragma once

#include "core/convert_vector.cuh"
#include "permute/permute_channels.cuh"
#include "permute/permute_convert_plan.h"

namespace flowk::permute {

// The pixels of one thread: as many as elements of a plane are in 16 bytes, in the widest packs that they are whole in.
template <int kPlanarBytes, int kPixelBytes, int kChannels>
union ThreadPixels {
  static constexpr int num_pixels = vector_bytes / kPlanarBytes;
  static constexpr int num_bytes = num_pixels * kChannels * kPixelBytes;
  static constexpr int pack_bytes = num_bytes % 16 == 0 ? 16 : num_bytes % 8 == 0 ? 8 : 4;
  Pack<pack_bytes> packs[num_bytes / pack_bytes];
  Pack<kPixelBytes> elements[num_pixels * kChannels];
};

template <int kSrcBytes, int kDstBytes, int kChannels>
__global__ void __launch_bounds__(max_channel_threads)
    convert_interleave(const __grid_constant__ ChannelParams params, const __grid_constant__ Conversion conversion) {
  using Pixels = ThreadPixels<kSrcBytes, kDstBytes, kChannels>;
  constexpr int num_packs = Pixels::num_bytes / Pixels::pack_bytes;
  const ChannelTile tile = locate_channel_tile(params);
  const uint32_t first_vector = vectors_into_line(tile.dst);
  unsigned char* span = &shared<unsigned char>() + first_vector * vector_bytes;
  if (threadIdx.x < tile.num_vectors) {
    const unsigned char* src = tile.src + threadIdx.x * vector_bytes;
    Vector<kSrcBytes> planes[kChannels];
#pragma unroll
    for (int c = 0; c < kChannels; ++c)
      planes[c].whole = *reinterpret_cast<const uint4*>(src + c * params.plane_stride);
    Pixels pixels;
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      Pack<kDstBytes> plane[Pixels::num_pixels];
      convert_elements<kSrcBytes, kDstBytes, float, Pixels::num_pixels>(conversion, planes[c].elements, plane);
#pragma unroll
      for (int n = 0; n < Pixels::num_pixels; ++n) pixels.elements[n * kChannels + c] = plane[n];
    }
    auto* packs = reinterpret_cast<Pack<Pixels::pack_bytes>*>(span + threadIdx.x * Pixels::num_bytes);
#pragma unroll
    for (int i = 0; i < num_packs; ++i) packs[i] = pixels.packs[i];
  }
  __syncthreads();
  const uint32_t num_vectors = tile.num_vectors * Pixels::num_bytes / vector_bytes;
#pragma unroll 2
  for (uint32_t place = threadIdx.x; place < first_vector + num_vectors; place += blockDim.x)
    if (place >= first_vector)
      reinterpret_cast<uint4*>(tile.dst)[place - first_vector] =
          reinterpret_cast<const uint4*>(span)[place - first_vector];
}

template <int kSrcBytes, int kDstBytes, int kChannels>
__global__ void __launch_bounds__(max_channel_threads)
    convert_deinterleave(const __grid_constant__ ChannelParams params, const __grid_constant__ Conversion conversion) {
  using Pixels = ThreadPixels<kDstBytes, kSrcBytes, kChannels>;
  constexpr int num_packs = Pixels::num_bytes / Pixels::pack_bytes;
  const ChannelTile tile = locate_channel_tile(params);
  const uint32_t first_vector = vectors_into_line(tile.src);
  unsigned char* span = &shared<unsigned char>() + first_vector * vector_bytes;
  const uint32_t num_vectors = tile.num_vectors * Pixels::num_bytes / vector_bytes;
#pragma unroll 2
  for (uint32_t place = threadIdx.x; place < first_vector + num_vectors; place += blockDim.x)
    if (place >= first_vector)
      async_copy_vector(span + (place - first_vector) * vector_bytes, tile.src + (place - first_vector) * vector_bytes);
  async_copy_wait();
  __syncthreads();
  if (threadIdx.x >= tile.num_vectors) return;
  const auto* packs = reinterpret_cast<const Pack<Pixels::pack_bytes>*>(span + threadIdx.x * Pixels::num_bytes);
  Pixels pixels;
#pragma unroll
  for (int i = 0; i < num_packs; ++i) pixels.packs[i] = packs[i];
  unsigned char* dst = tile.dst + threadIdx.x * vector_bytes;
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    Pack<kSrcBytes> plane[Pixels::num_pixels];
#pragma unroll
    for (int n = 0; n < Pixels::num_pixels; ++n) plane[n] = pixels.elements[n * kChannels + c];
    Vector<kDstBytes> out;
    convert_elements<kSrcBytes, kDstBytes, float, Pixels::num_pixels>(conversion, plane, out.elements);
    *reinterpret_cast<uint4*>(dst + c * params.plane_stride) = out.whole;
  }
}

}  // namespace flowk::permute
