// SPDX-License-Identifier: Apache-2.0
// Rows of a last dimension that stays last: aligned, at any alignment, converted, and reversed.
#pragma once

#include "core/index_split.h"
#include "core/vector.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "permute/kernels/permute_elements.cuh"

namespace flowk::permute {

// The loop over this many dimensions of the rows is unrolled, so that their parameters are operands of instructions.
constexpr int num_unrolled_dims = 5;

constexpr int any_rank = -1;
constexpr int any_narrow_rank = -2;  // any rank, and the index of an item fits 31 bits

// Where a thread's item is: its index in its row, and the row.
struct ItemOffsets {
  int64_t item = 0;
  int64_t src_offset = 0;
  int64_t dst_offset = 0;
};

template <class Index, int kRank>
__device__ __forceinline__ ItemOffsets split_item(const CopyParams& params, Index linear) {
  constexpr int num_unrolled = sizeof(Index) == 4 ? num_unrolled_dims : 0;
  const int rank = kRank < 0 ? params.rank : kRank;
  ItemOffsets at;
  if (rank == 0) {
    at.item = linear;
    return at;
  }
  at.item = take_dim(&linear, params.row_items);
  split_index<num_unrolled>(linear, params.dims, rank, [&](int d, Index index) {
    at.src_offset += static_cast<int64_t>(index) * params.dims[d].src_stride;
    at.dst_offset += static_cast<int64_t>(index) * params.dims[d].dst_stride;
  });
  return at;
}

// Where item `linear` is, of all rows of the block's pair.
template <int kRank>
__device__ __forceinline__ ItemOffsets locate_item(const CopyParams& params, const PairBlock& pair, int64_t linear) {
  ItemOffsets at{linear};
  if constexpr (kRank != 0) {
    if (kRank == any_rank && params.wide_index)
      at = split_item<uint64_t, any_rank>(params, static_cast<uint64_t>(linear));
    else
      at = split_item<uint32_t, kRank>(params, static_cast<uint32_t>(linear));
  }
  at.src_offset += pair.src_offset;
  at.dst_offset += pair.dst_offset;
  return at;
}

template <class Elements>
constexpr int items_per_thread = 1;  // a block's threads apart
template <int kSrcBytes, int kDstBytes, class Compute>
constexpr int items_per_thread<Converted<kSrcBytes, kDstBytes, Compute>> = converted_packs_per_thread;

// The first item of a thread.
template <int kItemsPerThread>
__device__ __forceinline__ int64_t linear_item(const PairBlock& pair) {
  return static_cast<int64_t>(pair.block) * (copy_threads * kItemsPerThread) + threadIdx.x;
}

// Neighbouring elements, moved in as few accesses as their bytes allow.
template <int Bytes, int kN>
union ElementPack {
  static constexpr int pack_bytes = Bytes * kN < vector_bytes ? Bytes * kN : vector_bytes;
  static constexpr int num_packs = Bytes * kN / pack_bytes;
  Pack<pack_bytes> packs[num_packs];
  Pack<Bytes> elements[kN];
};

// Aligned units of Bytes bytes: one per thread.
template <int kRank, int Bytes>
__device__ __forceinline__ void copy_item(const CopyParams& params, const PairBlock& pair, int64_t linear,
                                          const Moved<Bytes>&) {
  const ItemOffsets at = locate_item<kRank>(params, pair, linear);
  const int64_t in_row = at.item * Bytes;
  wait_on_dependent_grids();
  *reinterpret_cast<Pack<Bytes>*>(params.dst + at.dst_offset + in_row) =
      *reinterpret_cast<const Pack<Bytes>*>(params.src + at.src_offset + in_row);
}

// A pack of converted elements at any alignment: 16 bytes of the wider type and at least 4 of the narrower. Packs start
// on multiples of their bytes in dst. A whole pack is read at once if src is aligned too. Otherwise, and at the ends of
// a row, it is read by elements.
template <int kSrcBytes, int kDstBytes>
struct ConvertedPack {
  static constexpr int pack = convert_pack_elements(kSrcBytes, kDstBytes);
  using Source = ElementPack<kSrcBytes, pack>;
  using Destination = ElementPack<kDstBytes, pack>;
  const unsigned char* src;
  unsigned char* dst;
  int first, last;  // the elements that are in the row
  Source in;

  __device__ __forceinline__ void locate(const CopyParams& params, const ItemOffsets& at) {
    dst = params.dst + at.dst_offset;
    const int before_row =
        static_cast<int>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(dst)) % (pack * kDstBytes)) / kDstBytes;
    const int64_t in_row = at.item * pack - before_row;
    const int64_t remaining = params.row_bytes / kDstBytes - in_row;
    first = in_row < 0 ? static_cast<int>(-in_row) : 0;
    last = remaining < pack ? static_cast<int>(remaining) : pack;
    src = params.src + at.src_offset + in_row * kSrcBytes;
    dst += in_row * kDstBytes;
  }
  __device__ __forceinline__ bool is_whole() const { return first == 0 && last == pack; }
  __device__ __forceinline__ void load() {
    if (is_whole() && reinterpret_cast<uintptr_t>(src) % Source::pack_bytes == 0) {
#pragma unroll
      for (int i = 0; i < Source::num_packs; ++i)
        in.packs[i] = reinterpret_cast<const Pack<Source::pack_bytes>*>(src)[i];
    } else {
#pragma unroll
      for (int i = 0; i < pack; ++i)
        in.elements[i] = i >= first && i < last ? reinterpret_cast<const Pack<kSrcBytes>*>(src)[i] : Pack<kSrcBytes>{};
    }
  }
  template <class Elements>
  __device__ __forceinline__ void store(const Elements& elements) const {
    Destination out;
    elements.convert(in.elements, out.elements);
    if (is_whole()) {
#pragma unroll
      for (int i = 0; i < Destination::num_packs; ++i)
        reinterpret_cast<Pack<Destination::pack_bytes>*>(dst)[i] = out.packs[i];
      return;
    }
#pragma unroll
    for (int i = 0; i < pack; ++i)
      if (i >= first && i < last) reinterpret_cast<Pack<kDstBytes>*>(dst)[i] = out.elements[i];
  }
};

template <int kRank, int kSrcBytes, int kDstBytes, class Compute>
__device__ __forceinline__ void copy_item(const CopyParams& params, const PairBlock& pair, int64_t linear,
                                          const Converted<kSrcBytes, kDstBytes, Compute>& elements) {
  ConvertedPack<kSrcBytes, kDstBytes> packs[converted_packs_per_thread];
#pragma unroll
  for (auto& pack : packs) {
    pack.locate(params, locate_item<kRank>(params, pair, linear));
    if (linear >= params.num_items) pack.last = 0;
    linear += copy_threads;
  }
  wait_on_dependent_grids();
#pragma unroll
  for (auto& pack : packs) pack.load();
#pragma unroll
  for (const auto& pack : packs) pack.store(elements);
}
template <int kRank>
__device__ __forceinline__ void copy_item(const CopyParams& params, const PairBlock& pair, int64_t linear,
                                          const AnyConverted& elements) {
  const ItemOffsets at = locate_item<kRank>(params, pair, linear);
  wait_on_dependent_grids();
  elements.visit(
      [&]<int kSrcBytes, int kDstBytes, class Compute>(const Converted<kSrcBytes, kDstBytes, Compute>& converted) {
        ConvertedPack<kSrcBytes, kDstBytes> pack;
        pack.locate(params, at);
        pack.load();
        pack.store(converted);
      });
}

// dst[r, u] = src[r, u]: src and dst (rows, items per row), in dst order. An item is 16 aligned bytes; or, converted, a
// pack of elements at any alignment. A block takes neighbouring items.
template <class Elements, int kRank>
__global__ void __launch_bounds__(copy_threads) copy_rows(const __grid_constant__ GridConstant<CopyParams> params,
                                                          const __grid_constant__ GridConstant<Elements> elements) {
  launch_dependent_grids();
  PairBlock pair;
  if constexpr (kRank < 0) pair = PairBlock(params);
  const int64_t linear = linear_item<items_per_thread<Elements>>(pair);
  if (linear < params.num_items) copy_item<kRank>(params, pair, linear, elements);
}

// dst[r, e] = src[r, e], or with kReversed src[r, n - 1 - e]: rows of n elements at any alignment; src and dst are the
// lowest addresses. A thread stores one aligned vector of dst that has bytes of a row. It loads the one or two aligned
// vectors of src that hold these bytes and shifts them. At the ends of the row it stores elements.
template <int Bytes, bool kReversed>
__global__ void __launch_bounds__(copy_threads, fitting_blocks(copy_threads, copy_resident_threads / copy_threads))
    copy_shifted_rows(const __grid_constant__ GridConstant<CopyParams> params) {
  launch_dependent_grids();
  const PairBlock pair(params);
  const int64_t linear = linear_item<1>(pair);
  if (linear >= params.num_items) return;
  const ItemOffsets at = locate_item<any_rank>(params, pair, linear);
  unsigned char* dst_row = params.dst + at.dst_offset;
  const int64_t in_row =
      at.item * vector_bytes - static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst_row) % vector_bytes);
  const int first = in_row < 0 ? static_cast<int>(-in_row) : 0;
  const int64_t remaining = params.row_bytes - in_row;
  const int last = remaining < vector_bytes ? static_cast<int>(remaining) : vector_bytes;
  if (first >= last) return;
  // The vector's bytes stand at src ... src + 16; only the aligned vectors that hold [begin, end) of them are read.
  const unsigned char* src =
      params.src + at.src_offset + (kReversed ? params.row_bytes - in_row - vector_bytes : in_row);
  const int begin = kReversed ? vector_bytes - last : first, end = kReversed ? vector_bytes - first : last;
  const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(src) % vector_bytes);
  wait_on_dependent_grids();
  const unsigned char* src_end = params.src_end + pair.src_offset;
  const uint4 zero = {0, 0, 0, 0};
  const uint4 low = shift + begin < vector_bytes ? load_vector_before(src - shift, src_end) : zero;
  const uint4 high = shift + end > vector_bytes ? load_vector_before(src - shift + vector_bytes, src_end) : zero;
  Vector<Bytes> vector;
  vector.whole = shift_vectors(low, high, shift);
  if constexpr (kReversed) {
    Vector<Bytes> mirrored;
#pragma unroll
    for (int i = 0; i < vector_bytes / Bytes; ++i) mirrored.elements[i] = vector.elements[vector_bytes / Bytes - 1 - i];
    vector = mirrored;
  }
  if (first == 0 && last == vector_bytes)
    *reinterpret_cast<uint4*>(dst_row + in_row) = vector.whole;
  else
    store_partial_vector<Bytes>(dst_row + in_row, vector, first / Bytes, last / Bytes);
}

}  // namespace flowk::permute
