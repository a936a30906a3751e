// SPDX-License-Identifier: Apache-2.0
// The parts that all tile kernels use. A block moves one tile through shared memory:
//
//   dst[r', e'] = src[r, c]     where (r, c) is an element's source row and offset in the source run,
//                               and (r', e') its destination row and offset in the destination run
//
// permute_params.h defines the tile. The block copies source rows to shared memory asynchronously in 16-byte vectors.
// After a barrier each thread gathers 16-byte vectors of destination rows, element by element, and stores them whole.
#pragma once

#include "core/index_split.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "permute/kernels/permute_elements.cuh"
#include "permute/tile_index.h"

namespace flowk::permute {

constexpr int unrolled_grid_rank = 4;
constexpr int max_dims_per_thread = 2;  // of the grid
constexpr int rows_in_flight = 4;       // source rows per iteration of a thread

// The addresses of a block's tile, and which part of the tile is inside the tensor.
struct TileOrigin {
  const unsigned char* src;  // of source row 0, element 0
  unsigned char* dst;        // of destination row 0, element `halo elements` of the run
  uint32_t src_row_begin;    // source rows [begin, end) are inside
  uint32_t src_row_end;
  int32_t src_run_begin;  // bytes [begin, src_run_bytes) of each source row are inside
  int32_t src_run_bytes;
  uint32_t dst_row_end;       // destination rows, or sets stored together, [0, end) are inside
  int32_t dst_element_begin;  // elements [begin, end) of the destination run are loaded
  int32_t dst_element_end;
};

// What a TileOrigin is made from. It is computed once per block if the grid has many dimensions.
struct TileOffsets {
  int64_t src;
  int64_t dst;
  int32_t src_indices;  // of the cut dimensions, inside
  int32_t dst_index_begin;
  int32_t dst_index_end;
};
static_assert(sizeof(TileOffsets) <= tile_offsets_bytes);

__device__ __forceinline__ TileOffsets find_offsets(const TileParams& params) {
  const PairBlock pair(params);
  TileOffsets tile;
  tile.src = pair.src_offset;
  tile.dst = pair.dst_offset;
  int32_t src_slice = 0, dst_slice = 0;
  split_index<unrolled_grid_rank>(pair.block, params.grid, params.grid_rank, [&](int d, uint32_t index) {
    tile.src += static_cast<int64_t>(index) * params.grid[d].src_step;
    tile.dst += static_cast<int64_t>(index) * params.grid[d].dst_step;
    src_slice += static_cast<int32_t>(index) * params.grid[d].src_slices;
    dst_slice += static_cast<int32_t>(index) * params.grid[d].dst_slices;
  });
  const int32_t src_slices_left = params.num_src_slices - src_slice;
  const int32_t dst_slices_left = params.num_dst_slices - dst_slice;
  tile.src_indices = src_slices_left == 1 ? params.src_last_slice : params.src_slice;
  tile.dst_index_begin = dst_slice == 0 ? params.halo : 0;
  tile.dst_index_end = dst_slices_left == 1   ? params.dst_last_end
                       : dst_slices_left == 2 ? params.dst_second_last_end
                                              : params.dst_slice + params.halo;
  return tile;
}

// Every tile kernel begins with this, while the stream's previous kernel may still run. To split a tile's index takes
// many instructions per dimension, so from three dimensions on the first warp does it for the block (kTogether), except
// in aligned_tile, which has no register left.
template <bool kTogether>
__device__ __forceinline__ TileOrigin locate_tile(const TileParams& params) {
  launch_dependent_grids();
  const bool is_shared = kTogether && params.grid_rank > max_dims_per_thread;
  TileOffsets offsets;
  if (!is_shared || threadIdx.x < warp_lanes) offsets = find_offsets(params);
  if (is_shared) {
    TileOffsets* of_block = reinterpret_cast<TileOffsets*>(&shared<unsigned char>() + params.tile_offsets_offset_bytes);
    if (threadIdx.x == 0) *of_block = offsets;
    __syncthreads();
    offsets = *of_block;
  }
  const auto count = [&](const TileCount& of) { return of.total(offsets.src_indices, offsets.dst_index_end); };
  TileOrigin tile;
  tile.src = params.src + offsets.src;
  tile.dst = params.dst + offsets.dst;
  tile.src_run_bytes = count(params.src_run_bytes);
  tile.src_row_end = static_cast<uint32_t>(count(params.src_rows));
  // Not loaded: the halo before the first tile of a row, and halo rows that no destination row needs.
  const auto begin = [&](const TileCount& of) { return of.per_dst_index * offsets.dst_index_begin; };
  tile.src_run_begin = begin(params.src_run_bytes);
  tile.src_row_begin = static_cast<uint32_t>(max(begin(params.src_rows), params.skipped_src_rows));
  tile.dst_row_end = static_cast<uint32_t>(count(params.dst_rows) >> params.dst_row_shift);
  tile.dst_element_end = count(params.dst_run_elements);
  tile.dst_element_begin = max(begin(params.dst_run_elements), params.skipped_elements);
  return tile;
}

// Shared memory is swizzled for few bank conflicts: bits 4-6 of an offset, the vector in its line, are XORed with a
// key. aligned_tile has one key per source row, general_tile takes three higher bits of the offset.
__device__ __forceinline__ int32_t swizzle_of_row(const AlignedTileParams& params, uint32_t src_row) {
  return static_cast<int32_t>((src_row >> params.swizzle_shift) * params.swizzle_step & params.swizzle_bits);
}
__device__ __forceinline__ int32_t swizzle_offset(const GeneralTileParams& params, int32_t shared_offset) {
  return shared_offset ^ (shared_offset >> params.swizzle_shift & params.swizzle_bits);
}

// The offset of the tile in shared memory: it agrees with the address in src modulo shift_mask + 1.
__device__ __forceinline__ int32_t tile_shift(const TileLoad& params, const TileOrigin& tile) {
  return params.start_offset_bytes + static_cast<int32_t>(reinterpret_cast<uintptr_t>(tile.src) & params.shift_mask);
}

// Waits for the stream's previous kernel, then copies the aligned 16-byte vectors that hold the tile's bytes to shared
// memory. A thread keeps its column and steps from row to row. Addresses and offsets agree modulo 16: rounding both
// down finds the vector. swizzle(offset, source row) is where the vector at an offset in shared memory is kept.
template <bool kAligned, class Swizzle>
__device__ __forceinline__ void load_tile(const TileParams& params, const TileLoad& load, const TileOrigin& tile,
                                          unsigned char* shared_tile, int32_t shift, const Swizzle& swizzle) {
  const uint32_t row_in_pass = load.vectors_per_row.divide(threadIdx.x);
  const int32_t column = static_cast<int32_t>(threadIdx.x - row_in_pass * load.vectors_per_row.divisor) * vector_bytes;
  wait_on_dependent_grids();
  if (row_in_pass >= load.rows_per_pass || (kAligned && column >= tile.src_run_bytes)) return;
  const SharedAddress base = shared_address(shared_tile);
  const bool ends_before_src = kAligned || src_end_of(params) - tile.src >= load.tile_bytes;
  const auto into_vector = [](const unsigned char* at) {
    return kAligned ? 0 : static_cast<int32_t>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at)) % vector_bytes);
  };
  // Rounds down, which takes fewer instructions than to subtract.
  const auto rounded_down = [](const unsigned char* at) {
    return reinterpret_cast<const unsigned char*>(reinterpret_cast<uintptr_t>(at) & ~uintptr_t{vector_bytes - 1});
  };
  const auto vector_offset = [](int32_t shared_offset) {
    return kAligned ? shared_offset : shared_offset & -vector_bytes;
  };
  uint32_t src_row = tile.src_row_begin + row_in_pass;
  int64_t offset;
  int32_t shared_offset;
  const int32_t step = static_cast<int32_t>(blockDim.x) * vector_bytes;
  if (params.src_row_rank <= 2 && ends_before_src && tile.src_run_begin == 0) {
    locate_tile_row(params.src_row_dims, params.src_row_rank, src_row, &offset, &shared_offset);
    const unsigned char* at = tile.src + offset + column;
    shared_offset += shift + column;
    uint32_t innermost = src_row;  // its index
    if (params.src_row_rank == 2) {
      uint32_t outer = src_row;
      innermost = take_index(&outer, params.src_row_dims[0].divider);
    }
    const auto next_row = [&] {
      src_row += load.rows_per_pass;
      at += load.pass.step;
      shared_offset += load.pass.shared_step;
      innermost += load.pass.innermost;
      if (innermost >= load.pass.end) {
        innermost -= load.pass.end;
        at += load.pass.wrap_step;
        shared_offset += load.pass.wrap_shared_step;
      }
    };
    if (load.row_is_wide) {
#pragma unroll 1
      for (; src_row < tile.src_row_end; next_row()) {
        const unsigned char* from = rounded_down(at);
        int32_t to = vector_offset(shared_offset);
#pragma unroll 1
        for (int32_t in_row = column - into_vector(at); in_row < tile.src_run_bytes; in_row += step) {
          async_copy_vector(base + swizzle(to, src_row), from);
          from += step;
          to += step;
        }
      }
      return;
    }
#pragma unroll 1
    while (src_row < tile.src_row_end) {
#pragma unroll
      for (int i = 0; i < rows_in_flight; ++i) {
        if (src_row < tile.src_row_end && (kAligned || column - into_vector(at) < tile.src_run_bytes))
          async_copy_vector(base + swizzle(vector_offset(shared_offset), src_row), rounded_down(at));
        next_row();
      }
    }
    return;
  }
#pragma unroll 1
  for (; src_row < tile.src_row_end; src_row += load.rows_per_pass) {
    locate_tile_row(params.src_row_dims, params.src_row_rank, src_row, &offset, &shared_offset);
    const unsigned char* at = tile.src + offset + column;
    int32_t in_row = column - into_vector(at);
    if (in_row >= tile.src_run_bytes) continue;
    at = rounded_down(at);
    shared_offset = vector_offset(shift + shared_offset + column);
#pragma unroll 1
    do {
      if (kAligned || in_row + vector_bytes > tile.src_run_begin) {
        const int32_t kept_at = swizzle(shared_offset, src_row);
        if (ends_before_src)
          async_copy_vector(base + kept_at, at);
        else
          async_copy_vector_head(shared_tile + kept_at, at, src_end_of(params) - at);
      }
      in_row += step;
      at += step;
      shared_offset += step;
    } while (load.row_is_wide && in_row < tile.src_run_bytes);
  }
}

// A thread's vectors of the destination rows, in the order (segment of a row, row, vector of the segment): a warp
// writes whole lines and reads neighbouring columns. A thread keeps its vector of the segment.
struct StoreCursor {
  uint32_t dst_row;
  uint32_t vector;  // of the row

  __device__ __forceinline__ explicit StoreCursor(const TileStore& store) {
    uint32_t segment = threadIdx.x;
    vector = take_index(&segment, store.vectors_per_segment);
    const bool is_idle = segment >= store.items_per_pass;
    dst_row = take_index(&segment, store.num_rows);
    vector += segment * store.vectors_per_segment.divisor;
    if (is_idle) vector = store.num_vectors;
  }
  __device__ __forceinline__ bool is_done(const TileStore& store) const { return vector >= store.num_vectors; }
  __device__ __forceinline__ void step(const TileStore& store) {
    dst_row += store.pass_rows;
    vector += store.pass_vectors;
    if (dst_row < store.num_rows.divisor) return;
    dst_row -= store.num_rows.divisor;
    vector += store.vectors_per_segment.divisor;
  }
};

// A 4 x 4 transpose: byte i of columns[j] is byte j of rows[i].
__device__ __forceinline__ void transpose_bytes(const uint32_t (&rows)[4], uint32_t (&columns)[4]) {
  const uint32_t low01 = __byte_perm(rows[0], rows[1], 0x5140);
  const uint32_t low23 = __byte_perm(rows[2], rows[3], 0x5140);
  const uint32_t high01 = __byte_perm(rows[0], rows[1], 0x7362);
  const uint32_t high23 = __byte_perm(rows[2], rows[3], 0x7362);
  columns[0] = __byte_perm(low01, low23, 0x5410);
  columns[1] = __byte_perm(low01, low23, 0x7632);
  columns[2] = __byte_perm(high01, high23, 0x5410);
  columns[3] = __byte_perm(high01, high23, 0x7632);
}

}  // namespace flowk::permute
