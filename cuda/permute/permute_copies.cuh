// SPDX-License-Identifier: Apache-2.0
// The kernels of permute. Each moves elements unchanged: dst[i] = src[i] for every index i, with strides of its own on
// each side.
#pragma once

#include "core/divide.h"
#include "core/vector.cuh"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "permute/permute_plan.h"

namespace flowk::permute {

constexpr int max_copy_rank = 5;  // of rows, known to the compiler

constexpr int any_rank = -1;

// Takes the index of a row apart and adds up the strides. The first dimensions are entered by constant index, so that
// their parameters are operands of the instructions; with a rank known to the compiler no more than those are.
template <class Index, int kRank>
__device__ __forceinline__ void locate_row(const CopyParams& params, Index row, int64_t* src_offset,
                                           int64_t* dst_offset) {
  constexpr int num_unrolled = sizeof(Index) == 4 ? max_copy_rank : 0;
  *src_offset = 0;
  *dst_offset = 0;
  const int rank = kRank == any_rank ? params.rank : kRank;
  const auto enter_dim = [&](int d) {
    Index index = row;
    if (d + 1 < rank) {
      if constexpr (sizeof(Index) == 4) {
        index = take_index(&row, params.dims[d].divider);
      } else {
        const Index quotient = row / params.dims[d].extent;
        index = row - quotient * params.dims[d].extent;
        row = quotient;
      }
    }
    *src_offset += static_cast<int64_t>(index) * params.dims[d].src_stride;
    *dst_offset += static_cast<int64_t>(index) * params.dims[d].dst_stride;
  };
#pragma unroll
  for (int d = 0; d < num_unrolled; ++d)
    if (d < rank) enter_dim(d);
#pragma unroll 1
  for (int d = num_unrolled; d < rank; ++d) enter_dim(d);
}

// Splits a unit's index into its row and its place in the row.
template <class Index, int kRank>
__device__ __forceinline__ Index take_unit(const CopyParams& params, Index* row) {
  if (kRank == 0 || (kRank == any_rank && params.rank == 0)) {
    const Index unit = *row;
    *row = 0;
    return unit;
  }
  if constexpr (sizeof(Index) == 4) {
    return take_index(row, params.units_per_row);
  } else {
    const Index quotient = *row / params.wide_units_per_row;
    const Index unit = *row - quotient * params.wide_units_per_row;
    *row = quotient;
    return unit;
  }
}

// Rows of aligned units: dst[r, u] = src[r, u], src and dst (rows, units_per_row), a unit of Bytes bytes, in dst order.
// A block moves 256 neighbouring units, a thread one.
template <int Bytes, class Index, int kRank>
__global__ void __launch_bounds__(copy_threads) copy_rows(const __grid_constant__ CopyParams params) {
  launch_dependent_grids();
  const int64_t linear = static_cast<int64_t>(blockIdx.x) * copy_threads + threadIdx.x;
  if (linear >= params.num_units) return;
  Index row = static_cast<Index>(linear);
  const int64_t in_row = static_cast<int64_t>(take_unit<Index, kRank>(params, &row)) * Bytes;
  int64_t src_offset, dst_offset;
  locate_row<Index, kRank>(params, row, &src_offset, &dst_offset);
  wait_on_dependent_grids();
  *reinterpret_cast<Pack<Bytes>*>(params.dst + dst_offset + in_row) =
      *reinterpret_cast<const Pack<Bytes>*>(params.src + src_offset + in_row);
}

// Rows at any alignment: dst[r, j] = src[r, j], src and dst (rows, row_bytes).
// A thread owns one 16-byte vector of dst memory that row r touches, loads the one or two aligned vectors of src that
// hold its bytes, shifts them into place, and stores the vector: whole inside the row, by elements of Bytes bytes at
// its ends.
//
// Reversed, an element of a row is at the place of its mirror image: dst[r, e] = src[r, n - 1 - e]; dst and src are the
// lowest addresses.
template <int Bytes, class Index, bool kReversed>
__global__ void __launch_bounds__(copy_threads) copy_shifted_rows(const __grid_constant__ CopyParams params) {
  launch_dependent_grids();
  const int64_t linear = static_cast<int64_t>(blockIdx.x) * copy_threads + threadIdx.x;
  if (linear >= params.num_units) return;
  Index row = static_cast<Index>(linear);
  const Index unit = take_unit<Index, any_rank>(params, &row);
  int64_t src_offset, dst_offset;
  locate_row<Index, any_rank>(params, row, &src_offset, &dst_offset);
  unsigned char* dst_row = params.dst + dst_offset;
  const int64_t in_row = static_cast<int64_t>(unit) * vector_bytes -
                         static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst_row) % vector_bytes);
  const int first = in_row < 0 ? static_cast<int>(-in_row) : 0;
  const int64_t remaining = params.row_bytes - in_row;
  const int last = remaining < vector_bytes ? static_cast<int>(remaining) : vector_bytes;
  if (first >= last) return;
  // The vector's bytes stand at src ... src + 16; only the aligned vectors that hold [begin, end) of them are read.
  const unsigned char* src = params.src + src_offset + (kReversed ? params.row_bytes - in_row - vector_bytes : in_row);
  const int begin = kReversed ? vector_bytes - last : first, end = kReversed ? vector_bytes - first : last;
  const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(src) % vector_bytes);
  wait_on_dependent_grids();
  const uint4 zero = {0, 0, 0, 0};
  const uint4 low = shift + begin < vector_bytes ? load_vector_before(src - shift, params.src_end) : zero;
  const uint4 high = shift + end > vector_bytes ? load_vector_before(src - shift + vector_bytes, params.src_end) : zero;
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
