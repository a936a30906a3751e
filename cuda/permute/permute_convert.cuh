// SPDX-License-Identifier: Apache-2.0
// The kernels of permute with conversion on the way: dst[i] = narrow(scale * widen(src[i])) for every index i, with
// strides of its own on each side. The sizes of the elements are template parameters, their types a switch.
#pragma once

#include <algorithm>

#include "core/convert_vector.cuh"
#include "permute/permute_convert_plan.h"
#include "permute/permute_copies.cuh"
#include "permute/permute_transpose.cuh"
#include "permute/permute_two_sided.cuh"

namespace flowk::permute {

// Neighbouring elements, moved in as few accesses as their bytes allow.
template <int Bytes, int kN>
union Elements {
  static constexpr int pack_bytes = Bytes * kN < vector_bytes ? Bytes * kN : vector_bytes;
  static constexpr int num_packs = Bytes * kN / pack_bytes;
  Pack<pack_bytes> packs[num_packs];
  Pack<Bytes> elements[kN];
};

// Rows: dst[r, j] from src[r, j], src and dst (rows, row elements), each element beside the next on both sides.
// A thread owns a group of neighbouring elements that starts on a multiple of the group's size in dst: 16 bytes of the
// wider side, and at least 4 of the narrower one. It is read whole where src is aligned to it as well, by elements
// otherwise and at the ends of a row.
template <int kSrcBytes, int kDstBytes, class Compute, class Index>
__global__ void __launch_bounds__(copy_threads)
    convert_rows(const __grid_constant__ CopyParams params, const __grid_constant__ Conversion conversion) {
  constexpr int group = convert_group_elements(kSrcBytes, kDstBytes);
  using Source = Elements<kSrcBytes, group>;
  using Destination = Elements<kDstBytes, group>;
  launch_dependent_grids();
  const int64_t linear = static_cast<int64_t>(blockIdx.x) * copy_threads + threadIdx.x;
  if (linear >= params.num_units) return;
  Index row = static_cast<Index>(linear);
  const Index unit = take_unit<Index, any_rank>(params, &row);
  int64_t src_offset, dst_offset;
  locate_row<Index, any_rank>(params, row, &src_offset, &dst_offset);
  unsigned char* dst = params.dst + dst_offset;
  const int before_row =
      static_cast<int>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(dst)) % (group * kDstBytes)) / kDstBytes;
  const int64_t in_row = static_cast<int64_t>(unit) * group - before_row;
  const int first = in_row < 0 ? static_cast<int>(-in_row) : 0;
  const int64_t remaining = params.row_bytes / kDstBytes - in_row;
  const int last = remaining < group ? static_cast<int>(remaining) : group;
  if (first >= last) return;
  const bool is_whole = first == 0 && last == group;
  const unsigned char* src = params.src + src_offset + in_row * kSrcBytes;
  dst += in_row * kDstBytes;
  wait_on_dependent_grids();
  Source in;
  if (is_whole && reinterpret_cast<uintptr_t>(src) % Source::pack_bytes == 0) {
#pragma unroll
    for (int i = 0; i < Source::num_packs; ++i) in.packs[i] = reinterpret_cast<const Pack<Source::pack_bytes>*>(src)[i];
  } else {
#pragma unroll
    for (int i = 0; i < group; ++i)
      in.elements[i] = i >= first && i < last ? reinterpret_cast<const Pack<kSrcBytes>*>(src)[i] : Pack<kSrcBytes>{};
  }
  Destination out;
  convert_elements<kSrcBytes, kDstBytes, Compute, group>(conversion, in.elements, out.elements);
  if (is_whole) {
#pragma unroll
    for (int i = 0; i < Destination::num_packs; ++i)
      reinterpret_cast<Pack<Destination::pack_bytes>*>(dst)[i] = out.packs[i];
    return;
  }
#pragma unroll
  for (int i = 0; i < group; ++i)
    if (i >= first && i < last) reinterpret_cast<Pack<kDstBytes>*>(dst)[i] = out.elements[i];
}

// Converts the elements of a vector of dst in as many steps as keep the values in few registers.
template <int kSrcBytes, int kDstBytes, class Compute>
__device__ __forceinline__ void convert_vector(const Conversion& conversion,
                                               const Pack<kSrcBytes> (&src)[vector_bytes / kDstBytes],
                                               Vector<kDstBytes>* dst) {
  constexpr int num_elements = vector_bytes / kDstBytes;
  constexpr int most_at_once = std::is_same_v<Compute, double> ? 4 : 8;
  constexpr int at_once = num_elements < most_at_once ? num_elements : most_at_once;
#pragma unroll
  for (int begin = 0; begin < num_elements; begin += at_once) {
    Pack<kSrcBytes> in[at_once];
    Pack<kDstBytes> out[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) in[i] = src[begin + i];
    convert_elements<kSrcBytes, kDstBytes, Compute, at_once>(conversion, in, out);
#pragma unroll
    for (int i = 0; i < at_once; ++i) dst->elements[begin + i] = out[i];
  }
}

// A tile whose runs share no dimension, 16-byte aligned throughout, as tiled_transpose(): source row e of the tile
// holds element e of every destination run. Source elements of 1 and 2 bytes are read as words of 4 or 2 neighbouring
// destination rows, whose vectors the thread stores one after the other.
template <int kSrcBytes, int kDstBytes, class Compute>
__global__ void __launch_bounds__(tile_threads)
    convert_transpose(const __grid_constant__ TileParams params, const __grid_constant__ Conversion conversion) {
  constexpr int elements_per_vector = vector_bytes / kDstBytes;
  constexpr int rows_per_item = kSrcBytes < 4 ? 4 / kSrcBytes : 1;
  using Word = Pack<(kSrcBytes < 4 ? 4 : kSrcBytes)>;
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<false>(params);
  const int32_t shift = tile_shift(params, tile);
  load_tile<true>(params, tile, shared_tile, shift);
  async_copy_wait();
  __syncthreads();
#pragma unroll 1
  for (StoreWalk walk(params); !walk.is_done(params); walk.step(params)) {
    const int32_t element = params.skipped_elements + static_cast<int32_t>(walk.vector) * elements_per_vector;
    if (walk.dst_row >= tile.dst_row_end || element < tile.dst_element_begin || element >= tile.dst_element_end)
      continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, walk.dst_row, &offset, &column);
    unsigned char* dst = tile.dst + offset;
    const int32_t in_row = element * kDstBytes - params.window_start_bytes;  // < 0 only in a halo
    const int32_t place = shift + element * params.run_pitch + column;
    const int32_t swizzle = swizzle_of_row(params, static_cast<uint32_t>(element));
    Word words[elements_per_vector];
#pragma unroll
    for (int i = 0; i < elements_per_vector; ++i)
      words[i] = *reinterpret_cast<const Word*>(shared_tile + ((place + i * params.run_pitch) ^ swizzle));
#pragma unroll 1
    for (int row = 0; row < rows_per_item; ++row) {
      Pack<kSrcBytes> in[elements_per_vector];
      Vector<kDstBytes> out;
#pragma unroll
      for (int i = 0; i < elements_per_vector; ++i) {
        if constexpr (kSrcBytes < 4) {
          in[i] = static_cast<Pack<kSrcBytes>>(words[i]);
          words[i] >>= 8 * kSrcBytes;
        } else {
          in[i] = words[i];
        }
      }
      convert_vector<kSrcBytes, kDstBytes, Compute>(conversion, in, &out);
      if (is_in_window(params, dst, in_row)) *reinterpret_cast<uint4*>(dst + in_row) = out.whole;
      dst += params.dst_row_step;
    }
  }
}

// A tile of any runs, extents and alignment, as two_sided_tile().
template <int kSrcBytes, int kDstBytes, class Compute, bool kTable>
__global__ void __launch_bounds__(tile_threads)
    convert_tile(const __grid_constant__ TileParams params, const __grid_constant__ Conversion conversion) {
  constexpr int elements_per_vector = vector_bytes / kDstBytes;
  move_tile<kSrcBytes, kDstBytes, kTable, true>(
      params,
      [&](const Element<kSrcBytes>(&elements)[elements_per_vector]) {
        Pack<kSrcBytes> in[elements_per_vector];
        Vector<kDstBytes> out;
#pragma unroll
        for (int i = 0; i < elements_per_vector; ++i) in[i] = static_cast<Pack<kSrcBytes>>(elements[i]);
        convert_vector<kSrcBytes, kDstBytes, Compute>(conversion, in, &out);
        return out;
      },
      [&](const Element<kSrcBytes>& element) {
        const Pack<kSrcBytes> in[1] = {static_cast<Pack<kSrcBytes>>(element)};
        Pack<kDstBytes> out[1];
        convert_elements<kSrcBytes, kDstBytes, Compute, 1>(conversion, in, out);
        return out[0];
      });
}

// Sides without a dimension of stride 1, element by element on both, as strided_tile().
template <int kSrcBytes, int kDstBytes, class Compute>
__global__ void __launch_bounds__(tile_threads)
    convert_strided_tile(const __grid_constant__ TileParams params, const __grid_constant__ Conversion conversion) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<true>(params);
  load_strided_tile<kSrcBytes>(params, tile, shared_tile);
  __syncthreads();
  for_each_strided_element(params, tile, [&](int32_t place, unsigned char* address) {
    const Pack<kSrcBytes> in[1] = {*reinterpret_cast<const Pack<kSrcBytes>*>(shared_tile + place)};
    Pack<kDstBytes> out[1];
    convert_elements<kSrcBytes, kDstBytes, Compute, 1>(conversion, in, out);
    *reinterpret_cast<Pack<kDstBytes>*>(address) = out[0];
  });
}

}  // namespace flowk::permute
