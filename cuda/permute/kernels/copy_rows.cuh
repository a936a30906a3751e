// SPDX-License-Identifier: Apache-2.0
// Rows whose last dimension stays last: aligned, at any alignment, converted, and reversed.
#pragma once

#include "core/divide.h"
#include "core/vector.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "permute/kernels/permute_elements.cuh"

namespace flowk::permute {

constexpr int max_copy_rank = 5;  // dimensions of the rows that a kernel is compiled for

constexpr int any_rank = -1;
constexpr int any_narrow_rank = -2;  // any rank, and the index of a unit fits 31 bits

// Where a thread's unit is: its index in its row, and the row.
struct UnitOffsets {
  int64_t unit = 0;
  int64_t src_offset = 0;
  int64_t dst_offset = 0;
};

// Splits the index of a unit into those of its row's dimensions: uint32_t by multiplication, uint64_t by division. The
// first dimensions are entered by constant index, so that their parameters are operands of the instructions.
template <class Index, int kRank>
__device__ __forceinline__ UnitOffsets split_index(const CopyParams& params, Index rest) {
  constexpr int num_unrolled = sizeof(Index) == 4 ? max_copy_rank : 0;
  const int rank = kRank < 0 ? params.rank : kRank;
  UnitOffsets at;
  const auto take = [&](const Divider& divider, int64_t extent) {
    if constexpr (sizeof(Index) == 4) {
      return take_index(&rest, divider);
    } else {
      const Index quotient = rest / extent, index = rest - quotient * extent;
      rest = quotient;
      return index;
    }
  };
  const auto enter_dim = [&](int d) {
    Index index = rest;
    if (d + 1 < rank) index = take(params.dims[d].divider, params.dims[d].extent);
    at.src_offset += static_cast<int64_t>(index) * params.dims[d].src_stride;
    at.dst_offset += static_cast<int64_t>(index) * params.dims[d].dst_stride;
  };
  if (rank == 0) {
    at.unit = rest;
    return at;
  }
  at.unit = take(params.units_per_row, params.wide_units_per_row);
#pragma unroll
  for (int d = 0; d < num_unrolled; ++d)
    if (d < rank) enter_dim(d);
#pragma unroll 1
  for (int d = num_unrolled; d < rank; ++d) enter_dim(d);
  return at;
}

// Where unit `linear` is, of all rows of the block's pair.
template <int kRank>
__device__ __forceinline__ UnitOffsets locate_unit(const CopyParams& params, const PairBlock& pair, int64_t linear) {
  UnitOffsets at{linear};
  if constexpr (kRank != 0) {
    if (kRank == any_rank && params.wide_index)
      at = split_index<uint64_t, any_rank>(params, static_cast<uint64_t>(linear));
    else
      at = split_index<uint32_t, kRank>(params, static_cast<uint32_t>(linear));
  }
  at.src_offset += pair.src_offset;
  at.dst_offset += pair.dst_offset;
  return at;
}

__device__ __forceinline__ int64_t linear_unit(const PairBlock& pair) {
  return static_cast<int64_t>(pair.block) * copy_threads + threadIdx.x;
}

// Neighbouring elements, moved in as few accesses as their bytes allow.
template <int Bytes, int kN>
union ElementGroup {
  static constexpr int pack_bytes = Bytes * kN < vector_bytes ? Bytes * kN : vector_bytes;
  static constexpr int num_packs = Bytes * kN / pack_bytes;
  Pack<pack_bytes> packs[num_packs];
  Pack<Bytes> elements[kN];
};

// Aligned units of Bytes bytes: one unit per thread.
template <int kRank, int Bytes>
__device__ __forceinline__ void copy_unit(const CopyParams& params, const PairBlock& pair, int64_t linear,
                                          const Moved<Bytes>&) {
  const UnitOffsets at = locate_unit<kRank>(params, pair, linear);
  const int64_t in_row = at.unit * Bytes;
  wait_on_dependent_grids();
  *reinterpret_cast<Pack<Bytes>*>(params.dst + at.dst_offset + in_row) =
      *reinterpret_cast<const Pack<Bytes>*>(params.src + at.src_offset + in_row);
}

// Converted elements at any alignment: one group per thread, 16 bytes of the wider side and at least 4 of the narrower.
// Groups start on multiples of their bytes in dst. A group is read whole where src is aligned too, by elements
// otherwise and at the ends of a row.
template <int kSrcBytes, int kDstBytes, class Compute>
__device__ __forceinline__ void convert_group(const CopyParams& params, const UnitOffsets& at,
                                              const Converted<kSrcBytes, kDstBytes, Compute>& elements) {
  constexpr int group = convert_group_elements(kSrcBytes, kDstBytes);
  using Source = ElementGroup<kSrcBytes, group>;
  using Destination = ElementGroup<kDstBytes, group>;
  unsigned char* dst = params.dst + at.dst_offset;
  const int before_row =
      static_cast<int>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(dst)) % (group * kDstBytes)) / kDstBytes;
  const int64_t in_row = at.unit * group - before_row;
  const int first = in_row < 0 ? static_cast<int>(-in_row) : 0;
  const int64_t remaining = params.row_bytes / kDstBytes - in_row;
  const int last = remaining < group ? static_cast<int>(remaining) : group;
  if (first >= last) return;
  const bool is_whole = first == 0 && last == group;
  const unsigned char* src = params.src + at.src_offset + in_row * kSrcBytes;
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
  elements.convert(in.elements, out.elements);
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
template <int kRank, int kSrcBytes, int kDstBytes, class Compute>
__device__ __forceinline__ void copy_unit(const CopyParams& params, const PairBlock& pair, int64_t linear,
                                          const Converted<kSrcBytes, kDstBytes, Compute>& elements) {
  convert_group(params, locate_unit<kRank>(params, pair, linear), elements);
}
template <int kRank>
__device__ __forceinline__ void copy_unit(const CopyParams& params, const PairBlock& pair, int64_t linear,
                                          const AnyConverted& elements) {
  const UnitOffsets at = locate_unit<kRank>(params, pair, linear);
  elements.visit([&](const auto& converted) { convert_group(params, at, converted); });
}

// dst[r, u] = src[r, u]: src and dst (rows, units per row), in dst order. A unit is 16 aligned bytes; or, converted, a
// group of elements at any alignment. A block takes 256 neighbouring units.
template <class Elements, int kRank>
__global__ void __launch_bounds__(copy_threads) copy_rows(const __grid_constant__ GridConstant<CopyParams> params,
                                                          const __grid_constant__ GridConstant<Elements> elements) {
  launch_dependent_grids();
  PairBlock pair;
  if constexpr (kRank < 0) pair = PairBlock(params);
  const int64_t linear = linear_unit(pair);
  if (linear < params.num_units) copy_unit<kRank>(params, pair, linear, elements);
}

// One 16-byte vector of dst memory that row r touches per thread: loads the one or two aligned vectors of src that hold
// its bytes, shifts them into offset, and stores the vector: whole inside the row, by elements at its ends.
template <int Bytes, bool kReversed>
__device__ __forceinline__ void copy_shifted_vector(const CopyParams& params) {
  launch_dependent_grids();
  const PairBlock pair(params);
  const int64_t linear = linear_unit(pair);
  if (linear >= params.num_units) return;
  const UnitOffsets at = locate_unit<any_rank>(params, pair, linear);
  unsigned char* dst_row = params.dst + at.dst_offset;
  const int64_t in_row =
      at.unit * vector_bytes - static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst_row) % vector_bytes);
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

// dst[r, j] = src[r, j]: rows of bytes at any alignment.
template <int Bytes>
__global__ void __launch_bounds__(copy_threads, fitting_blocks(copy_threads, copy_resident_threads / copy_threads))
    copy_shifted_rows(const __grid_constant__ GridConstant<CopyParams> params) {
  copy_shifted_vector<Bytes, false>(params);
}

// dst[r, e] = src[r, n - 1 - e]: rows of n elements at any alignment; src and dst are the lowest addresses.
template <int Bytes>
__global__ void __launch_bounds__(copy_threads, fitting_blocks(copy_threads, copy_resident_threads / copy_threads))
    copy_reversed_rows(const __grid_constant__ GridConstant<CopyParams> params) {
  copy_shifted_vector<Bytes, true>(params);
}

}  // namespace flowk::permute
