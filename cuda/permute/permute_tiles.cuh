// SPDX-License-Identifier: Apache-2.0
// The tiled kernels of permute: one tile a block, read in src order, written in dst order, both through shared memory.
//
//   dst[r', e'] = src[r, c]     where (r, c) is an element's source row and place in the source run,
//                               and (r', e') its destination row and place in the destination run
//
// permute_plan.h says what a tile is. A block copies its source rows to shared memory in 16-byte chunks,
// asynchronously; after one barrier each thread gathers a 16-byte chunk of a destination row, element by element, and
// stores it whole.
#pragma once

#include "core/divide.h"
#include "core/grid_order.cuh"
#include "core/pack.cuh"
#include "core/shared.cuh"
#include "permute/permute_plan.h"

namespace flowk {

constexpr int unrolled_grid_rank = 4;
constexpr int rows_in_flight = 4;  // source rows that a thread asks for one after the other
// 40 registers leave room for 6 blocks of 256 threads an SM; left alone the compiler takes 72 and loses 10-17% (H200).
constexpr int tile_min_blocks = 6;

// Where a block's tile stands, and how much of it lies inside the tensor.
struct TileOrigin {
  const unsigned char* src;  // of source row 0, element 0
  unsigned char* dst;        // of destination row 0, element `halo elements` of the run
  uint32_t src_row_begin;    // source rows [begin, end) are inside
  uint32_t src_row_end;
  int32_t src_run_bytes;      // of each source row inside
  uint32_t dst_row_end;       // destination rows (or groups) [0, end) are inside
  int32_t dst_element_begin;  // elements [begin, end) of the destination run are loaded
  int32_t dst_element_end;
};

// Every kernel of tiles begins with this: it returns once the stream's previous kernel has ended.
__device__ __forceinline__ TileOrigin locate_tile(const TileParams& params) {
  allow_next_grid();
  TileOrigin tile;
  tile.src = params.src;
  tile.dst = params.dst;
  int32_t src_indices = params.src_block;  // of the cut dimensions, inside
  int32_t dst_index_begin = 0;
  int32_t dst_index_end = params.dst_block + params.halo;
  uint32_t linear = blockIdx.x;
  const auto enter_dim = [&](int d) {
    const int64_t index = d + 1 < params.grid_rank ? take_index(&linear, params.grid[d].divider) : linear;
    tile.src += index * params.grid[d].src_step;
    tile.dst += index * params.grid[d].dst_step;
    if (d == params.src_cut) {
      const int64_t remaining = params.src_extent - index * params.src_block;
      if (remaining < src_indices) src_indices = static_cast<int32_t>(remaining);
    }
    if (d == params.dst_cut) {
      if (index == 0) dst_index_begin = params.halo;
      const int64_t remaining = params.dst_extent - index * params.dst_block + params.halo;
      if (remaining < dst_index_end) dst_index_end = static_cast<int32_t>(remaining);
    }
  };
  // The first dimensions by constant index, so that their parameters are operands of the instructions.
#pragma unroll
  for (int d = 0; d < unrolled_grid_rank; ++d)
    if (d < params.grid_rank) enter_dim(d);
#pragma unroll 1
  for (int d = unrolled_grid_rank; d < params.grid_rank; ++d) enter_dim(d);
  const auto count = [&](const TileCount& of) {
    const int32_t indices = of.cut == TileCount::whole        ? 1
                            : of.cut == TileCount::of_src_cut ? src_indices
                                                              : dst_index_end;
    return of.per_index * indices >> of.shift;
  };
  tile.src_run_bytes = count(params.src_run_bytes);
  tile.src_row_end = static_cast<uint32_t>(count(params.src_rows));
  tile.src_row_begin = static_cast<uint32_t>(params.src_rows.per_index * dst_index_begin);  // 0 without a halo
  tile.dst_row_end = static_cast<uint32_t>(count(params.dst_rows));
  tile.dst_element_end = count(params.dst_run_elements);
  tile.dst_element_begin = params.dst_run_elements.per_index * dst_index_begin;
  wait_for_previous_grid();
  return tile;
}

// Takes the index of a row of the tile apart and adds up its offsets in global and shared memory. Most tiles have rows
// of one or two dimensions: those by constant index, the others in a loop that stays rolled.
__device__ __forceinline__ void locate_tile_row(const TileRowDim* dims, int rank, uint32_t row, int64_t* offset,
                                                int32_t* shared_offset) {
  *offset = 0;
  *shared_offset = 0;
  const auto enter_dim = [&](const TileRowDim& dim, uint32_t index) {
    *offset += static_cast<int64_t>(index) * dim.stride;
    *shared_offset += static_cast<int32_t>(index) * dim.shared_step;
  };
  if (rank <= 1) return enter_dim(dims[0], row);
  enter_dim(dims[0], take_index(&row, dims[0].divider));
  if (rank == 2) return enter_dim(dims[1], row);
#pragma unroll 1
  for (int d = 1; d + 1 < rank; ++d) enter_dim(dims[d], take_index(&row, dims[d].divider));
  enter_dim(dims[rank - 1], row);
}

// Places in shared memory are swizzled so that threads that read together meet in few banks: bits 4-6, the chunk in its
// line, are XORed with a key. tiled_transpose keeps a key for every source row, two_sided_tile takes three higher bits
// of the place itself.
__device__ __forceinline__ int32_t swizzle_of_row(const TileParams& params, uint32_t src_row) {
  return static_cast<int32_t>((src_row >> params.swizzle_shift) * params.swizzle_step & params.swizzle_bits);
}
__device__ __forceinline__ int32_t swizzle_place(const TileParams& params, int32_t place) {
  return place ^ (place >> params.swizzle_shift & params.swizzle_bits);
}

// Copies the tile to shared memory in the aligned 16-byte chunks that hold its bytes. A thread keeps its column and
// steps from row to row. A byte's place in shared memory and in src agree modulo 16: `shift` is what the tile's start
// needs for that.
template <bool kAligned>
__device__ __forceinline__ void load_tile(const TileParams& params, const TileOrigin& tile, unsigned char* shared_tile,
                                          int32_t shift) {
  const uint32_t row_in_pass = params.chunks_per_src_row.divide(threadIdx.x);
  const int32_t column =
      static_cast<int32_t>(threadIdx.x - row_in_pass * params.chunks_per_src_row.divisor) * chunk_bytes;
  if (row_in_pass >= params.src_rows_per_pass) return;
  const bool ends_before_src = kAligned || params.src_end - tile.src >= params.src_tile_bytes;
  // The chunks of a row that are this thread's; the row starts at `place` of shared memory.
  const auto load_row = [&](const unsigned char* row, int32_t place, uint32_t src_row) {
    const int32_t before_row = kAligned ? 0 : static_cast<int32_t>(reinterpret_cast<uintptr_t>(row) % chunk_bytes);
    const int32_t swizzle = kAligned ? swizzle_of_row(params, src_row) : 0;
    int32_t in_row = column - before_row;
    do {
      if (in_row >= tile.src_run_bytes) break;
      unsigned char* chunk =
          shared_tile + (kAligned ? (place + in_row) ^ swizzle : swizzle_place(params, place + in_row));
      if (ends_before_src)
        async_copy_chunk(chunk, row + in_row);
      else
        async_copy_chunk_head(chunk, row + in_row, params.src_end - (row + in_row));
      in_row += tile_threads * chunk_bytes;
    } while (params.src_row_is_wide);
  };
  uint32_t src_row = tile.src_row_begin + row_in_pass;
  if (params.src_row_rank <= 1) {
    const TileRowDim& dim = params.src_row_dims[0];
    const unsigned char* row = tile.src + static_cast<int64_t>(src_row) * dim.stride;
    int32_t place = shift + static_cast<int32_t>(src_row) * dim.shared_step;
    const int64_t row_step = params.src_pass_step;
    const int32_t place_step = static_cast<int32_t>(params.src_rows_per_pass) * dim.shared_step;
#pragma unroll 1
    while (src_row < tile.src_row_end) {
#pragma unroll
      for (int i = 0; i < rows_in_flight; ++i) {
        if (src_row < tile.src_row_end) load_row(row, place, src_row);
        src_row += params.src_rows_per_pass;
        row += row_step;
        place += place_step;
      }
    }
    return;
  }
#pragma unroll 1
  while (src_row < tile.src_row_end) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int64_t offset;
      int32_t place;
      locate_tile_row(params.src_row_dims, params.src_row_rank, src_row, &offset, &place);
      if (src_row < tile.src_row_end) load_row(tile.src + offset, shift + place, src_row);
      src_row += params.src_rows_per_pass;
    }
  }
}

// A thread's chunks of the destination rows: chunks of one row stand in groups, all rows of a group of chunks come
// before the next group, so that a warp writes whole lines and reads neighbouring columns. A thread keeps its place in
// the group.
struct StoreWalk {
  uint32_t in_group;
  uint32_t item;  // (group, destination row)
  uint32_t num_items;

  __device__ __forceinline__ explicit StoreWalk(const TileParams& params) {
    item = params.chunks_per_group.divide(threadIdx.x);
    in_group = threadIdx.x - item * params.chunks_per_group.divisor;
    num_items = item < params.store_items_per_pass ? params.num_store_items : 0;
  }
  __device__ __forceinline__ void locate(const TileParams& params, uint32_t* dst_row, int32_t* chunk) const {
    uint32_t group = item;
    *dst_row = take_index(&group, params.num_dst_rows);
    *chunk = static_cast<int32_t>(group * params.chunks_per_group.divisor + in_group);
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

// Turns `count` words, each holding one element of every row of a group, into one chunk for every row of the group.
template <int Bytes, int kRows>
__device__ __forceinline__ void store_rows_of_words(const uint32_t (&words)[chunk_bytes / Bytes],
                                                    unsigned char* address, int64_t row_step) {
  if constexpr (Bytes == 2) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint32_t select = row == 0 ? 0x5410 : 0x7632;
      *reinterpret_cast<uint4*>(address + row * row_step) =
          make_uint4(__byte_perm(words[0], words[1], select), __byte_perm(words[2], words[3], select),
                     __byte_perm(words[4], words[5], select), __byte_perm(words[6], words[7], select));
    }
  } else {
    uint32_t out[4][4];  // [word][row]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t group[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
      transpose_bytes(group, out[i]);
    }
#pragma unroll
    for (int row = 0; row < 4; ++row)
      *reinterpret_cast<uint4*>(address + row * row_step) =
          make_uint4(out[0][row], out[1][row], out[2][row], out[3][row]);
  }
}

// Runs that share no dimension, 16-byte aligned throughout: source row e of the tile holds element e of every
// destination run. Elements of 1 and 2 bytes are read as words: one word is an element of 4 or 2 neighbouring
// destination rows, which the thread stores together. Swizzled so that neither side has bank conflicts.
template <int Bytes>
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    tiled_transpose(const __grid_constant__ TileParams params) {
  constexpr int elements_per_chunk = chunk_bytes / Bytes;
  constexpr int rows_per_item = Bytes < 4 ? 4 / Bytes : 1;
  constexpr int items_in_flight = Bytes == 1 ? 1 : 2;
  using Word = Pack<(Bytes < 4 ? 4 : Bytes)>;
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile(params);
  const int32_t shift = static_cast<int32_t>(reinterpret_cast<uintptr_t>(tile.src) & params.shift_mask);
  load_tile<true>(params, tile, shared_tile, shift);
  async_copy_wait();
  __syncthreads();

  StoreWalk walk(params);
#pragma unroll 1
  while (walk.item < walk.num_items) {
    Word words[items_in_flight][elements_per_chunk];
    unsigned char* addresses[items_in_flight];
#pragma unroll
    for (int k = 0; k < items_in_flight; ++k) {
      uint32_t dst_row;
      int32_t chunk;
      walk.locate(params, &dst_row, &chunk);
      const int32_t element = chunk * elements_per_chunk;
      const bool is_inside = walk.item < walk.num_items && dst_row < tile.dst_row_end && element < tile.dst_element_end;
      int64_t offset;
      int32_t column;
      locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
      addresses[k] = is_inside ? tile.dst + offset + chunk * chunk_bytes : nullptr;
      const int32_t place = shift + element * params.run_pitch + column;
      const int32_t swizzle = swizzle_of_row(params, static_cast<uint32_t>(element));
      if (is_inside) {
#pragma unroll
        for (int i = 0; i < elements_per_chunk; ++i)
          words[k][i] = *reinterpret_cast<const Word*>(shared_tile + ((place + i * params.run_pitch) ^ swizzle));
      }
      walk.item += params.store_items_per_pass;
    }
#pragma unroll
    for (int k = 0; k < items_in_flight; ++k) {
      if (addresses[k] == nullptr) continue;
      if constexpr (rows_per_item == 1) {
        Chunk<Bytes> out;
#pragma unroll
        for (int i = 0; i < elements_per_chunk; ++i) out.elements[i] = words[k][i];
        *reinterpret_cast<uint4*>(addresses[k]) = out.whole;
      } else {
        store_rows_of_words<Bytes, rows_per_item>(words[k], addresses[k], params.dst_row_step);
      }
    }
  }
}

// Makes the table of where element e of the destination run stands in shared memory, before the swizzle. It covers one
// period, and as much of the next as a chunk that starts in the first can reach.
__device__ __forceinline__ void make_table(const TileParams& params, uint32_t* table) {
#pragma unroll 1
  for (uint32_t e = threadIdx.x; e < params.num_table_entries; e += tile_threads) {
    uint32_t rest = e, place = 0;
#pragma unroll 1
    for (int d = 0; d + 1 < params.table_rank; ++d)
      place += take_index(&rest, params.table[d].divider) * static_cast<uint32_t>(params.table[d].shared_step);
    table[e] = place + rest * static_cast<uint32_t>(params.table[params.table_rank - 1].shared_step);
  }
}

// Any runs, extents and alignment. Destination rows are cut into chunks from their granule on, so that every chunk
// inside a row is stored whole; where element e of the run stands in shared memory is e * run_pitch, or comes from a
// table that the block makes while its loads are under way.
template <int Bytes, bool kTable, bool kSwizzle>
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    two_sided_tile(const __grid_constant__ TileParams params) {
  constexpr int elements_per_chunk = chunk_bytes / Bytes;
  unsigned char* shared_tile = &shared<unsigned char>();
  uint32_t* table = reinterpret_cast<uint32_t*>(shared_tile + params.table_offset_bytes);
  const TileOrigin tile = locate_tile(params);
  const int32_t shift = static_cast<int32_t>(reinterpret_cast<uintptr_t>(tile.src) & params.shift_mask);
  load_tile<false>(params, tile, shared_tile, shift);
  if constexpr (kTable) make_table(params, table);
  async_copy_wait();
  __syncthreads();

  // Element `i` after one whose place is known by its index in the period and the column that both share.
  const auto gather = [&](int32_t e, int32_t column) {
    const int32_t place = (kTable ? static_cast<int32_t>(table[e]) : e * params.run_pitch) + column;
    return *reinterpret_cast<const Pack<Bytes>*>(shared_tile + (kSwizzle ? swizzle_place(params, place) : place));
  };
  // Leaves the index of `e` in its period and adds where the period starts to the column.
  const auto enter_period = [&](int32_t* e, int32_t* column) {
    if constexpr (kTable) {
      const int32_t period = static_cast<int32_t>(params.table_period.divide(static_cast<uint32_t>(*e)));
      *e -= period * static_cast<int32_t>(params.table_period.divisor);
      *column += period * params.period_step;
    }
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
    int32_t element = halo_elements - before_row / Bytes + chunk * elements_per_chunk;
    Chunk<Bytes> out;
    if (element >= tile.dst_element_begin && element + elements_per_chunk <= tile.dst_element_end) {
      enter_period(&element, &column);
#pragma unroll
      for (int i = 0; i < elements_per_chunk; ++i) out.elements[i] = gather(element + i, column);
      *reinterpret_cast<uint4*>(address) = out.whole;
      continue;
    }
    const int32_t first = tile.dst_element_begin > element ? tile.dst_element_begin - element : 0;
    const int32_t last =
        tile.dst_element_end - element < elements_per_chunk ? tile.dst_element_end - element : elements_per_chunk;
    if (first >= last) continue;
    int32_t start = element + first;  // the last elements of the row may lie in the next period
    enter_period(&start, &column);
#pragma unroll
    for (int i = 0; i < elements_per_chunk; ++i)
      if (i >= first && i < last) out.elements[i] = gather(start + i - first, column);
    store_partial_chunk<Bytes>(address, out, first, last);
  }
}

// Sides without a dimension of stride 1: as two_sided_tile, but element by element on both sides. Each run is one
// dimension.
template <int Bytes>
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    strided_tile(const __grid_constant__ TileParams params) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile(params);
  const uint32_t run = params.chunks_per_src_row.divisor;
  for (uint32_t item = threadIdx.x; item < tile.src_row_end * run; item += tile_threads) {
    const uint32_t src_row = params.chunks_per_src_row.divide(item);
    const int32_t in_row = static_cast<int32_t>(item - src_row * run);
    if (in_row * Bytes >= tile.src_run_bytes) continue;
    int64_t offset;
    int32_t place;
    locate_tile_row(params.src_row_dims, params.src_row_rank, src_row, &offset, &place);
    *reinterpret_cast<Pack<Bytes>*>(shared_tile + place + in_row * Bytes) =
        *reinterpret_cast<const Pack<Bytes>*>(tile.src + offset + in_row * params.src_element_stride);
  }
  __syncthreads();
  const uint32_t dst_run = params.chunks_per_group.divisor;
  for (uint32_t item = threadIdx.x; item < tile.dst_row_end * dst_run; item += tile_threads) {
    const uint32_t dst_row = params.chunks_per_group.divide(item);
    const int32_t e = static_cast<int32_t>(item - dst_row * dst_run);
    if (e >= tile.dst_element_end) continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
    *reinterpret_cast<Pack<Bytes>*>(tile.dst + offset + e * params.dst_element_stride) =
        *reinterpret_cast<const Pack<Bytes>*>(shared_tile + e * params.run_pitch + column);
  }
}

}  // namespace flowk
