// SPDX-License-Identifier: Apache-2.0
// The kernels of permute with conversion on the way: dst[i] = narrow(scale * widen(src[i])) for every index i, with
// strides of its own on each side. The sizes of the elements are template parameters, their types a switch.
#pragma once

#include <algorithm>

#include "core/convert_chunk.cuh"
#include "permute/permute_convert_plan.h"
#include "permute/permute_copies.cuh"
#include "permute/permute_tiles.cuh"

namespace flowk {

// Neighbouring elements, moved in as few accesses as their bytes allow.
template <int Bytes, int kN>
union Elements {
  static constexpr int pack_bytes = Bytes * kN < chunk_bytes ? Bytes * kN : chunk_bytes;
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
  allow_next_grid();
  const int64_t linear = static_cast<int64_t>(blockIdx.x) * copy_threads + threadIdx.x;
  if (linear >= params.num_units) return;
  Index row = static_cast<Index>(linear);
  const Index unit = take_unit<Index, any_rank>(params, &row);
  int64_t src_offset, dst_offset;
  locate_row<Index, any_rank>(params, row, &src_offset, &dst_offset);
  unsigned char* dst = params.dst + dst_offset;
  const int before_row = static_cast<int>(reinterpret_cast<uintptr_t>(dst) % (group * kDstBytes)) / kDstBytes;
  const int64_t in_row = static_cast<int64_t>(unit) * group - before_row;
  const int first = in_row < 0 ? static_cast<int>(-in_row) : 0;
  const int64_t remaining = params.row_bytes / kDstBytes - in_row;
  const int last = remaining < group ? static_cast<int>(remaining) : group;
  if (first >= last) return;
  const bool is_whole = first == 0 && last == group;
  const unsigned char* src = params.src + src_offset + in_row * kSrcBytes;
  dst += in_row * kDstBytes;
  wait_for_previous_grid();
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

// Converts the elements of a chunk of dst in as many steps as keep the values in few registers.
template <int kSrcBytes, int kDstBytes, class Compute>
__device__ __forceinline__ void convert_chunk(const Conversion& conversion,
                                              const Pack<kSrcBytes> (&src)[chunk_bytes / kDstBytes],
                                              Chunk<kDstBytes>* dst) {
  constexpr int num_elements = chunk_bytes / kDstBytes;
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
// destination rows, whose chunks the thread stores one after the other.
template <int kSrcBytes, int kDstBytes, class Compute>
__global__ void __launch_bounds__(tile_threads)
    convert_transpose(const __grid_constant__ TileParams params, const __grid_constant__ Conversion conversion) {
  constexpr int elements_per_chunk = chunk_bytes / kDstBytes;
  constexpr int rows_per_item = kSrcBytes < 4 ? 4 / kSrcBytes : 1;
  using Word = Pack<(kSrcBytes < 4 ? 4 : kSrcBytes)>;
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile(params);
  const int32_t shift = static_cast<int32_t>(reinterpret_cast<uintptr_t>(tile.src) & params.shift_mask);
  load_tile<true>(params, tile, shared_tile, shift);
  async_copy_wait();
  __syncthreads();
#pragma unroll 1
  for (StoreWalk walk(params); walk.item < walk.num_items; walk.item += params.store_items_per_pass) {
    uint32_t dst_row;
    int32_t chunk;
    walk.locate(params, &dst_row, &chunk);
    const int32_t element = chunk * elements_per_chunk;
    if (dst_row >= tile.dst_row_end || element >= tile.dst_element_end) continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
    unsigned char* address = tile.dst + offset + chunk * chunk_bytes;
    const int32_t place = shift + element * params.run_pitch + column;
    const int32_t swizzle = swizzle_of_row(params, static_cast<uint32_t>(element));
    Word words[elements_per_chunk];
#pragma unroll
    for (int i = 0; i < elements_per_chunk; ++i)
      words[i] = *reinterpret_cast<const Word*>(shared_tile + ((place + i * params.run_pitch) ^ swizzle));
#pragma unroll 1
    for (int row = 0; row < rows_per_item; ++row) {
      Pack<kSrcBytes> in[elements_per_chunk];
      Chunk<kDstBytes> out;
#pragma unroll
      for (int i = 0; i < elements_per_chunk; ++i) {
        if constexpr (kSrcBytes < 4) {
          in[i] = static_cast<Pack<kSrcBytes>>(words[i]);
          words[i] >>= 8 * kSrcBytes;
        } else {
          in[i] = words[i];
        }
      }
      convert_chunk<kSrcBytes, kDstBytes, Compute>(conversion, in, &out);
      *reinterpret_cast<uint4*>(address) = out.whole;
      address += params.dst_row_step;
    }
  }
}

// A tile of any runs, extents and alignment, as two_sided_tile(): chunks of destination rows from their granule on,
// whose elements are gathered by an even pitch or by the table.
template <int kSrcBytes, int kDstBytes, class Compute, bool kTable>
__global__ void __launch_bounds__(tile_threads)
    convert_tile(const __grid_constant__ TileParams params, const __grid_constant__ Conversion conversion) {
  constexpr int elements_per_chunk = chunk_bytes / kDstBytes;
  unsigned char* shared_tile = &shared<unsigned char>();
  uint32_t* table = reinterpret_cast<uint32_t*>(shared_tile + params.table_offset_bytes);
  const TileOrigin tile = locate_tile(params);
  const int32_t shift = static_cast<int32_t>(reinterpret_cast<uintptr_t>(tile.src) & params.shift_mask);
  load_tile<false>(params, tile, shared_tile, shift);
  if constexpr (kTable) make_table(params, table);
  async_copy_wait();
  __syncthreads();

  const auto gather = [&](int32_t e, int32_t column) {
    const int32_t place = (kTable ? static_cast<int32_t>(table[e]) : e * params.run_pitch) + column;
    return *reinterpret_cast<const Pack<kSrcBytes>*>(shared_tile + swizzle_place(params, place));
  };
  const int32_t halo_elements = params.halo * params.dst_run_elements.per_index;
#pragma unroll 1
  for (StoreWalk walk(params); walk.item < walk.num_items; walk.item += params.store_items_per_pass) {
    uint32_t dst_row;
    int32_t chunk;
    walk.locate(params, &dst_row, &chunk);
    if (dst_row >= tile.dst_row_end) continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
    column += shift;
    unsigned char* row = tile.dst + offset;
    const int32_t before_row =
        static_cast<int32_t>(reinterpret_cast<uintptr_t>(row) & static_cast<uint32_t>(params.dst_granule - 1));
    unsigned char* address = row - before_row + chunk * chunk_bytes;
    const int32_t element = halo_elements - before_row / kDstBytes + chunk * elements_per_chunk;
    const int32_t first = tile.dst_element_begin > element ? tile.dst_element_begin - element : 0;
    const int32_t last =
        tile.dst_element_end - element < elements_per_chunk ? tile.dst_element_end - element : elements_per_chunk;
    if (first >= last) continue;
    const bool is_whole = first == 0 && last == elements_per_chunk;
    int32_t start = element + first;  // its index in its period; the last elements may lie in the next one
    if constexpr (kTable) {
      const int32_t period = static_cast<int32_t>(params.table_period.divide(static_cast<uint32_t>(start)));
      start -= period * static_cast<int32_t>(params.table_period.divisor);
      column += period * params.period_step;
    }
    Pack<kSrcBytes> in[elements_per_chunk];
    Chunk<kDstBytes> out;
    if (is_whole) {
#pragma unroll
      for (int i = 0; i < elements_per_chunk; ++i) in[i] = gather(start + i, column);
    } else {
#pragma unroll
      for (int i = 0; i < elements_per_chunk; ++i)
        in[i] = i >= first && i < last ? gather(start + i - first, column) : Pack<kSrcBytes>{};
    }
    convert_chunk<kSrcBytes, kDstBytes, Compute>(conversion, in, &out);
    if (is_whole)
      *reinterpret_cast<uint4*>(address) = out.whole;
    else
      store_partial_chunk<kDstBytes>(address, out, first, last);
  }
}

// Sides without a dimension of stride 1, element by element on both, as strided_tile().
template <int kSrcBytes, int kDstBytes, class Compute>
__global__ void __launch_bounds__(tile_threads)
    convert_strided_tile(const __grid_constant__ TileParams params, const __grid_constant__ Conversion conversion) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile(params);
  const uint32_t run = params.chunks_per_src_row.divisor;
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < tile.src_row_end * run; item += tile_threads) {
    const uint32_t src_row = params.chunks_per_src_row.divide(item);
    const int32_t in_row = static_cast<int32_t>(item - src_row * run);
    if (in_row * kSrcBytes >= tile.src_run_bytes) continue;
    int64_t offset;
    int32_t place;
    locate_tile_row(params.src_row_dims, params.src_row_rank, src_row, &offset, &place);
    *reinterpret_cast<Pack<kSrcBytes>*>(shared_tile + place + in_row * kSrcBytes) =
        *reinterpret_cast<const Pack<kSrcBytes>*>(tile.src + offset + in_row * params.src_element_stride);
  }
  __syncthreads();
  const uint32_t dst_run = params.chunks_per_group.divisor;
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < tile.dst_row_end * dst_run; item += tile_threads) {
    const uint32_t dst_row = params.chunks_per_group.divide(item);
    const int32_t e = static_cast<int32_t>(item - dst_row * dst_run);
    if (e >= tile.dst_element_end) continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
    const Pack<kSrcBytes> in[1] = {
        *reinterpret_cast<const Pack<kSrcBytes>*>(shared_tile + e * params.run_pitch + column)};
    Pack<kDstBytes> out[1];
    convert_elements<kSrcBytes, kDstBytes, Compute, 1>(conversion, in, out);
    *reinterpret_cast<Pack<kDstBytes>*>(tile.dst + offset + e * params.dst_element_stride) = out[0];
  }
}

}  // namespace flowk
