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
#include "permute/permute_gather.cuh"
#include "permute/permute_plan.h"

namespace flowk {

constexpr int unrolled_grid_rank = 4;
constexpr int most_dims_a_thread = 2;  // of the grid
constexpr uint32_t warp_threads = 32;
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

// What a block of a grid of many dimensions finds out once for all its threads: a TileOrigin, as offsets.
struct TileOffsets {
  int64_t src = 0;
  int64_t dst = 0;
  int32_t src_indices;  // of the cut dimensions, inside
  int32_t dst_index_begin;
  int32_t dst_index_end;
};
static_assert(sizeof(TileOffsets) <= tile_offsets_bytes);

__device__ __forceinline__ TileOffsets take_tile_apart(const TileParams& params) {
  TileOffsets tile;
  tile.src_indices = params.src_block;
  tile.dst_index_begin = 0;
  tile.dst_index_end = params.dst_block + params.halo;
  uint32_t linear = blockIdx.x;
  const auto enter_dim = [&](int d) {
    const uint32_t index = d + 1 < params.grid_rank ? take_index(&linear, params.grid[d].divider) : linear;
    tile.src += static_cast<int64_t>(index) * params.grid[d].src_step;
    tile.dst += static_cast<int64_t>(index) * params.grid[d].dst_step;
    const uint32_t blocks_left = params.grid[d].divider.divisor - index;
    if (d == params.src_cut && blocks_left == 1) tile.src_indices = params.src_last_block;
    if (d == params.dst_cut) {
      if (index == 0) tile.dst_index_begin = params.halo;
      if (blocks_left == 1) tile.dst_index_end = params.dst_last_end;
      if (blocks_left == 2) tile.dst_index_end = params.dst_second_last_end;
    }
  };
  // The first dimensions by constant index, so that their parameters are operands of the instructions.
#pragma unroll
  for (int d = 0; d < unrolled_grid_rank; ++d)
    if (d < params.grid_rank) enter_dim(d);
#pragma unroll 1
  for (int d = unrolled_grid_rank; d < params.grid_rank; ++d) enter_dim(d);
  return tile;
}

// Every kernel of tiles begins with this: it returns once the stream's previous kernel has ended. Taking a tile's index
// apart costs 50 instructions a dimension, as much as two chunks: from three on the first warp does it for the block,
// but for tiled_transpose, which has no register left.
template <bool kTogether>
__device__ __forceinline__ TileOrigin locate_tile(const TileParams& params) {
  allow_next_grid();
  const bool is_shared = kTogether && params.grid_rank > most_dims_a_thread;
  TileOffsets offsets;
  if (!is_shared || threadIdx.x < warp_threads) offsets = take_tile_apart(params);
  if (is_shared) {
    TileOffsets* of_block = reinterpret_cast<TileOffsets*>(&shared<unsigned char>() + params.tile_offsets_offset_bytes);
    if (threadIdx.x == 0) *of_block = offsets;
    __syncthreads();
    offsets = *of_block;
  }
  const auto count = [&](const TileCount& of) {
    const int32_t indices = of.cut == TileCount::whole        ? 1
                            : of.cut == TileCount::of_src_cut ? offsets.src_indices
                                                              : offsets.dst_index_end;
    return of.per_index * indices >> of.shift;
  };
  TileOrigin tile;
  tile.src = params.src + offsets.src;
  tile.dst = params.dst + offsets.dst;
  tile.src_run_bytes = count(params.src_run_bytes);
  tile.src_row_end = static_cast<uint32_t>(count(params.src_rows));
  // 0 without a halo. Rows and elements are numbered alike where some of the halo's are left out.
  tile.src_row_begin =
      static_cast<uint32_t>(max(params.src_rows.per_index * offsets.dst_index_begin, params.skipped_elements));
  tile.dst_row_end = static_cast<uint32_t>(count(params.dst_rows));
  tile.dst_element_end = count(params.dst_run_elements);
  tile.dst_element_begin = max(params.dst_run_elements.per_index * offsets.dst_index_begin, params.skipped_elements);
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

// What the tile's start is moved by in shared memory, for places that agree with addresses modulo 16 or more.
__device__ __forceinline__ int32_t tile_shift(const TileParams& params, const TileOrigin& tile) {
  return params.shared_lead_bytes + static_cast<int32_t>(reinterpret_cast<uintptr_t>(tile.src) & params.shift_mask);
}

// Copies the tile to shared memory in the aligned 16-byte chunks that hold its bytes. A thread keeps its column and
// steps from row to row. Addresses and places agree modulo 16, so that the chunk at a column of a row is where either
// is rounded down.
template <bool kAligned>
__device__ __forceinline__ void load_tile(const TileParams& params, const TileOrigin& tile, unsigned char* shared_tile,
                                          int32_t shift) {
  const uint32_t row_in_pass = params.chunks_per_src_row.divide(threadIdx.x);
  const int32_t column =
      static_cast<int32_t>(threadIdx.x - row_in_pass * params.chunks_per_src_row.divisor) * chunk_bytes;
  if (row_in_pass >= params.src_rows_per_pass || (kAligned && column >= tile.src_run_bytes)) return;
  const SharedAddress base = shared_address(shared_tile);
  // The chunk that holds `at`, `in_row` bytes into its row, which stands at `place`.
  const auto load = [&](const unsigned char* at, int32_t in_row, int32_t place, uint32_t src_row,
                        bool ends_before_src) {
    const auto into_chunk = static_cast<int32_t>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at)) % chunk_bytes);
    if (!kAligned && in_row - into_chunk >= tile.src_run_bytes) return;
    at -= into_chunk;
    place = kAligned ? place ^ swizzle_of_row(params, src_row) : swizzle_place(params, place - into_chunk);
    if (kAligned || ends_before_src)
      async_copy_chunk(base + place, at);
    else
      async_copy_chunk_head(shared_tile + place, at, params.src_end - at);
  };
  uint32_t src_row = tile.src_row_begin + row_in_pass;
  int64_t offset;
  int32_t place;
  const bool ends_before_src = kAligned || params.src_end - tile.src >= params.src_tile_bytes;
  if (params.src_row_rank <= 2 && !params.src_row_is_wide && ends_before_src) {
    locate_tile_row(params.src_row_dims, params.src_row_rank, src_row, &offset, &place);
    const unsigned char* at = tile.src + offset + column;
    place += shift + column;
    uint32_t innermost = src_row;  // its index
    if (params.src_row_rank == 2) {
      uint32_t outer = src_row;
      innermost = take_index(&outer, params.src_row_dims[0].divider);
    }
#pragma unroll 1
    while (src_row < tile.src_row_end) {
#pragma unroll
      for (int i = 0; i < rows_in_flight; ++i) {
        if (src_row < tile.src_row_end) load(at, column, place, src_row, true);
        src_row += params.src_rows_per_pass;
        at += params.src_pass.step;
        place += params.src_pass.shared_step;
        innermost += params.src_pass.innermost;
        if (innermost >= params.src_pass.end) {
          innermost -= params.src_pass.end;
          at += params.src_pass.wrap_step;
          place += params.src_pass.wrap_shared_step;
        }
      }
    }
    return;
  }
#pragma unroll 1
  for (; src_row < tile.src_row_end; src_row += params.src_rows_per_pass) {
    locate_tile_row(params.src_row_dims, params.src_row_rank, src_row, &offset, &place);
    int32_t in_row = column;
#pragma unroll 4
    do {
      load(tile.src + offset + in_row, in_row, shift + place + in_row, src_row, ends_before_src);
      in_row += tile_threads * chunk_bytes;
    } while (params.src_row_is_wide && in_row < tile.src_run_bytes + (kAligned ? 0 : chunk_bytes));
  }
}

// A thread's chunks of the destination rows: chunks of one row stand in groups, all rows of a group of chunks come
// before the next group, so that a warp writes whole lines and reads neighbouring columns. A thread keeps its place in
// the group.
struct StoreWalk {
  uint32_t dst_row;
  uint32_t chunk;  // of the row

  __device__ __forceinline__ explicit StoreWalk(const TileParams& params) {
    uint32_t group = threadIdx.x;
    chunk = take_index(&group, params.chunks_per_group);
    const bool is_idle = group >= params.store_items_per_pass;
    dst_row = take_index(&group, params.num_dst_rows);
    chunk += group * params.chunks_per_group.divisor;
    if (is_idle) chunk = params.num_store_chunks;
  }
  __device__ __forceinline__ bool is_done(const TileParams& params) const { return chunk >= params.num_store_chunks; }
  __device__ __forceinline__ void step(const TileParams& params) {
    dst_row += params.store_pass_rows;
    chunk += params.store_pass_chunks;
    if (dst_row < params.num_dst_rows.divisor) return;
    dst_row -= params.num_dst_rows.divisor;
    chunk += params.chunks_per_group.divisor;
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

// Is the chunk `in_row` bytes into a tile's destination row, which starts at `row`, the tile's to store? With a halo a
// tile begins at the last sector's start at or before its row, and ends before the next tile's.
__device__ __forceinline__ bool is_in_window(const TileParams& params, const unsigned char* row, int32_t in_row) {
  if (params.window_mask == 0) return true;
  const auto start = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row));
  const auto into_sector = [&](uint32_t at) { return static_cast<int32_t>(at & params.window_mask); };
  return in_row >= -into_sector(start) &&
         in_row < params.window_bytes - into_sector(start + static_cast<uint32_t>(params.window_bytes));
}

// Turns words, each holding one element of every row of a group, into one chunk for every row of the group. `row` is
// the start of the first.
template <int Bytes>
__device__ __forceinline__ void store_rows_of_words(const TileParams& params,
                                                    const uint32_t (&words)[chunk_bytes / Bytes], unsigned char* row,
                                                    int32_t in_row) {
  const auto store = [&](int i, const uint4& chunk) {
    unsigned char* at = row + i * params.dst_row_step;
    if (is_in_window(params, at, in_row)) *reinterpret_cast<uint4*>(at + in_row) = chunk;
  };
  if constexpr (Bytes == 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t select = i == 0 ? 0x5410 : 0x7632;
      store(i, make_uint4(__byte_perm(words[0], words[1], select), __byte_perm(words[2], words[3], select),
                          __byte_perm(words[4], words[5], select), __byte_perm(words[6], words[7], select)));
    }
  } else {
    uint32_t out[4][4];  // [word][row]
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t group[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
      transpose_bytes(group, out[i]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) store(i, make_uint4(out[0][i], out[1][i], out[2][i], out[3][i]));
  }
}

// Runs that share no dimension, 16-byte aligned throughout: source row e of the tile holds element e of every
// destination run. Elements of 1 and 2 bytes are read as words: one word is an element of 4 or 2 neighbouring
// destination rows, which the thread stores together. Swizzled so that neither side has bank conflicts.
template <int Bytes>
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    tiled_transpose(const __grid_constant__ TileParams params) {
  constexpr int elements_per_chunk = chunk_bytes / Bytes;
  constexpr int items_in_flight = Bytes == 1 ? 1 : 2;
  using Word = Pack<(Bytes < 4 ? 4 : Bytes)>;
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<false>(params);
  const int32_t shift = tile_shift(params, tile);
  load_tile<true>(params, tile, shared_tile, shift);
  async_copy_wait();
  __syncthreads();

  StoreWalk walk(params);
#pragma unroll 1
  while (!walk.is_done(params)) {
    Word words[items_in_flight][elements_per_chunk];
    unsigned char* rows[items_in_flight];
    int32_t in_rows[items_in_flight];  // < the row's start only in a halo
#pragma unroll
    for (int k = 0; k < items_in_flight; ++k) {
      const int32_t element = params.skipped_elements + static_cast<int32_t>(walk.chunk) * elements_per_chunk;
      const bool is_inside = !walk.is_done(params) && walk.dst_row < tile.dst_row_end &&
                             element >= tile.dst_element_begin && element < tile.dst_element_end;
      int64_t offset;
      int32_t column;
      locate_tile_row(params.dst_row_dims, params.dst_row_rank, walk.dst_row, &offset, &column);
      rows[k] = is_inside ? tile.dst + offset : nullptr;
      in_rows[k] = element * Bytes - params.window_start_bytes;
      const int32_t place = shift + element * params.run_pitch + column;
      const int32_t swizzle = swizzle_of_row(params, static_cast<uint32_t>(element));
      if (is_inside) {
#pragma unroll
        for (int i = 0; i < elements_per_chunk; ++i)
          words[k][i] = *reinterpret_cast<const Word*>(shared_tile + ((place + i * params.run_pitch) ^ swizzle));
      }
      walk.step(params);
    }
#pragma unroll
    for (int k = 0; k < items_in_flight; ++k) {
      if (rows[k] == nullptr) continue;
      if constexpr (Bytes < 4) {
        store_rows_of_words<Bytes>(params, words[k], rows[k], in_rows[k]);
      } else if (is_in_window(params, rows[k], in_rows[k])) {
        Chunk<Bytes> out;
#pragma unroll
        for (int i = 0; i < elements_per_chunk; ++i) out.elements[i] = words[k][i];
        *reinterpret_cast<uint4*>(rows[k] + in_rows[k]) = out.whole;
      }
    }
  }
}

// A destination row of the tile, from the granule that it starts in; a block makes a table of them in shared memory,
// since the index of a row takes a chunk's worth of instructions to take apart.
struct alignas(chunk_bytes) DstRow {
  int64_t offset;   // of the granule from the tile's start in dst
  int32_t column;   // in shared memory
  int16_t element;  // of the run, at `address`: < 0 where the row starts inside its granule
  uint16_t end;     // one past the last that is this tile's
};
static_assert(sizeof(DstRow) == dst_row_bytes);

template <int Bytes>
__device__ __forceinline__ void make_dst_rows(const TileParams& params, const TileOrigin& tile, int32_t shift,
                                              DstRow* rows) {
#pragma unroll 1
  for (uint32_t dst_row = threadIdx.x; dst_row < tile.dst_row_end; dst_row += tile_threads) {
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
    unsigned char* row = tile.dst + offset;
    const auto into_granule = [](const unsigned char* at, uint32_t mask) {
      return static_cast<int32_t>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at)) & mask);
    };
    const int32_t before_row = into_granule(row, static_cast<uint32_t>(params.dst_granule - 1));
    // With a halo the row goes on, in the next tile, from the granule that this one ends in.
    const int32_t after_window = into_granule(row + params.window_bytes, params.window_mask);
    const int32_t end = min(tile.dst_element_end, params.window_end - after_window / Bytes);
    const int32_t halo_elements = params.window_end - params.window_bytes / Bytes;
    rows[dst_row] = {offset - before_row, column + shift, static_cast<int16_t>(halo_elements - before_row / Bytes),
                     static_cast<uint16_t>(max(end, 0))};
  }
}

// A chunk of a destination row, and which of its elements [first, last) are the tile's.
struct RowChunk {
  unsigned char* address;
  int32_t column;
  int32_t element;  // of the run, at `address`
  int32_t first;
  int32_t last;
};

// The walk's chunk: first >= last where it lies outside. Destination rows are cut into chunks from their granule on, so
// that every chunk inside a row is stored whole.
template <int Bytes>
__device__ __forceinline__ RowChunk locate_chunk(const TileOrigin& tile, const DstRow* rows, const StoreWalk& walk) {
  constexpr int elements_per_chunk = chunk_bytes / Bytes;
  const DstRow row = rows[walk.dst_row];
  const int32_t index = static_cast<int32_t>(walk.chunk);
  RowChunk chunk;
  chunk.address = tile.dst + (row.offset + index * chunk_bytes);
  chunk.column = row.column;
  chunk.element = row.element + index * elements_per_chunk;
  chunk.first = max(tile.dst_element_begin - chunk.element, 0);
  chunk.last = min(row.end - chunk.element, elements_per_chunk);
  return chunk;
}

// Stores a chunk whose elements are those of the run from `start` on: at a row's ends the tile has not all that the
// chunk holds, and the nearest that it has were gathered.
template <int Bytes>
__device__ __forceinline__ void store_row_chunk(const RowChunk& chunk, int32_t start, Chunk<Bytes> elements) {
  if (start == chunk.element && chunk.last - chunk.first == chunk_bytes / Bytes) {
    *reinterpret_cast<uint4*>(chunk.address) = elements.whole;
    return;
  }
  const uint4 zero = {0, 0, 0, 0};
  const int32_t shift = (chunk.element - start) * Bytes;
  if (shift > 0) elements.whole = shift_chunks(elements.whole, zero, shift);
  if (shift < 0) elements.whole = shift_chunks(zero, elements.whole, chunk_bytes + shift);
  store_partial_chunk<Bytes>(chunk.address, elements, chunk.first, chunk.last);
}

// Any runs, extents and alignment: where element e of the run stands in shared memory is e * run_pitch, or comes from a
// table that the block makes while its loads are under way.
template <int Bytes, bool kTable, bool kSwizzle>
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    two_sided_tile(const __grid_constant__ TileParams params) {
  constexpr int elements_per_chunk = chunk_bytes / Bytes;
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<true>(params);
  const int32_t shift = tile_shift(params, tile);
  load_tile<false>(params, tile, shared_tile, shift);
  if constexpr (kTable) {
    const auto table = reinterpret_cast<TileTableEntry*>(shared_tile + params.table_offset_bytes);
    make_table(params, params.num_table_entries, table);
  }
  DstRow* rows = reinterpret_cast<DstRow*>(shared_tile + params.rows_offset_bytes);
  make_dst_rows<Bytes>(params, tile, shift, rows);
  async_copy_wait();
  __syncthreads();

  const int32_t last_start = tile.dst_element_end - elements_per_chunk;
#pragma unroll 1
  for (StoreWalk walk(params); !walk.is_done(params); walk.step(params)) {
    if (walk.dst_row >= tile.dst_row_end) continue;
    const RowChunk chunk = locate_chunk<Bytes>(tile, rows, walk);
    if (chunk.first >= chunk.last) continue;
    if (last_start >= tile.dst_element_begin) {
      const int32_t start = min(max(chunk.element, tile.dst_element_begin), last_start);
      Element<Bytes> elements[elements_per_chunk];
      gather<Bytes, elements_per_chunk, kTable, kSwizzle>(params, shared_tile, start, chunk.column, elements);
      store_row_chunk<Bytes>(chunk, start, chunk_of<Bytes>(elements));
    } else {  // runs of less than a chunk
#pragma unroll 1
      for (int32_t i = chunk.first; i < chunk.last; ++i) {
        Element<Bytes> element[1];
        gather<Bytes, 1, kTable, kSwizzle>(params, shared_tile, chunk.element + i, chunk.column, element);
        *reinterpret_cast<Pack<Bytes>*>(chunk.address + i * Bytes) = static_cast<Pack<Bytes>>(element[0]);
      }
    }
  }
}

// Copies a tile to shared memory element by element, for sides without a dimension of stride 1. Each run is one
// dimension.
template <int Bytes>
__device__ __forceinline__ void load_strided_tile(const TileParams& params, const TileOrigin& tile,
                                                  unsigned char* shared_tile) {
  const uint32_t run = params.chunks_per_src_row.divisor;
#pragma unroll 1
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
}

// Visits every element of the tile in dst order: work(its place in shared memory, its address in dst).
template <class Work>
__device__ __forceinline__ void for_each_strided_element(const TileParams& params, const TileOrigin& tile,
                                                         const Work& work) {
  const uint32_t run = params.chunks_per_group.divisor;
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < tile.dst_row_end * run; item += tile_threads) {
    const uint32_t dst_row = params.chunks_per_group.divide(item);
    const int32_t e = static_cast<int32_t>(item - dst_row * run);
    if (e >= tile.dst_element_end) continue;
    int64_t offset;
    int32_t column;
    locate_tile_row(params.dst_row_dims, params.dst_row_rank, dst_row, &offset, &column);
    work(e * params.run_pitch + column, tile.dst + offset + e * params.dst_element_stride);
  }
}

// As two_sided_tile, but element by element on both sides.
template <int Bytes>
__global__ void __launch_bounds__(tile_threads, tile_min_blocks)
    strided_tile(const __grid_constant__ TileParams params) {
  unsigned char* shared_tile = &shared<unsigned char>();
  const TileOrigin tile = locate_tile<true>(params);
  load_strided_tile<Bytes>(params, tile, shared_tile);
  __syncthreads();
  for_each_strided_element(params, tile, [&](int32_t place, unsigned char* address) {
    *reinterpret_cast<Pack<Bytes>*>(address) = *reinterpret_cast<const Pack<Bytes>*>(shared_tile + place);
  });
}

}  // namespace flowk
