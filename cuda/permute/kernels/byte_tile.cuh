// SPDX-License-Identifier: Apache-2.0
// The tile of 1-byte elements that are not aligned in both src and dst: transposed by 32-bit words, in two steps.
#pragma once

#include "flowk/detail/launch_bounds.h"
#include "permute/kernels/permute_gather.cuh"

namespace flowk::permute {

// How a thread reads the words of its columns: they start anywhere in a word of shared memory; or they start on words;
// or they start on words and the threads of a warp take them in rotated order, so that threads with rows that start in
// the same bank use different banks.
enum class WordOrder { shifted, on_words, rotated };

// Reads kN words at any offset.
template <class Offset, int kN>
__device__ __forceinline__ void read_words(const unsigned char* shared_tile, Offset shared_offset,
                                           uint32_t (&words)[kN]) {
  const auto from = reinterpret_cast<const uint32_t*>(shared_tile + (shared_offset & ~Offset{3}));
  uint32_t low = from[0];
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    const uint32_t high = from[i + 1];
    words[i] = __funnelshift_r(low, high, 8 * static_cast<uint32_t>(shared_offset));  // by the low 5 bits
    low = high;
  }
}

// Reads 4 words of a source row at `shared_offset`, `first` first.
template <WordOrder kOrder>
__device__ __forceinline__ void read_src_row(const unsigned char* shared_tile, uint32_t shared_offset, int first,
                                             uint32_t (&words)[max_words_per_item]) {
  if constexpr (kOrder == WordOrder::shifted) return read_words(shared_tile, shared_offset, words);
  const auto row = reinterpret_cast<const uint32_t*>(shared_tile + shared_offset);
#pragma unroll
  for (int j = 0; j < max_words_per_item; ++j) words[j] = row[kOrder == WordOrder::rotated ? (j + first) & 3 : j];
}

// One item, in registers while the tile is transposed.
struct TransposedItem {
  uint32_t columns[max_words_per_item * columns_per_word];
  int32_t place;          // the first column in the high half, the element in the low one
  int32_t shared_offset;  // of the first column's word; or no_item

  __device__ __forceinline__ int32_t column() const { return place >> 16; }
  __device__ __forceinline__ int32_t element() const { return place & 0xffff; }
};
constexpr int32_t no_item = -65536;

// How many columns of the tile are inside the tensor: `num` for each of `num_outer` indices of the outer dimension.
struct ColumnCount {
  int32_t num;
  uint32_t num_outer;

  __device__ __forceinline__ ColumnCount(const ByteTileParams& params, const TileOrigin& tile)
      : num(static_cast<int32_t>(params.has_outer ? params.inner_columns.divisor : tile.dst_row_end)),
        num_outer(params.has_outer ? params.inner_columns.divide(tile.dst_row_end) : 1) {}
};

// Reads the items of a thread, and transposes them 4 x 4 bytes at a time: columns[4 * j + i] is the word of column i of
// word j.
template <WordOrder kOrder>
__device__ __forceinline__ void read_items(const ByteTileParams& params, const TileOrigin& tile,
                                           const ColumnCount& count, const unsigned char* shared_tile, int32_t shift,
                                           TransposedItem (&items)[max_items_per_thread]) {
#pragma unroll
  for (int k = 0; k < max_items_per_thread; ++k) {
    uint32_t outer = threadIdx.x + k * blockDim.x;
    const bool is_idle = outer >= params.num_items;
    const uint32_t word = take_index(&outer, params.words_per_run);
    const uint32_t set = take_index(&outer, params.sets_per_outer);
    const auto element = static_cast<int32_t>(rows_per_item * word);
    const int32_t column =
        static_cast<int32_t>(set) * columns_per_word * params.words_per_item -
        (kOrder == WordOrder::shifted ? skew_of(word, params.skew_shift, params.skew_mask) : shift & 3);
    items[k].shared_offset = no_item;
    if (is_idle || outer >= count.num_outer || column >= count.num || element >= tile.dst_element_end ||
        element + rows_per_item <= tile.dst_element_begin)
      continue;
    items[k].place = column << 16 | element;
    items[k].shared_offset =
        static_cast<int32_t>(outer) * params.dst_outer_step + column * params.columns_pitch + element;
    const int first = kOrder == WordOrder::rotated ? first_word_of(element, params.rotation_shift) : 0;
    const int32_t start = shift + column + static_cast<int32_t>(outer) * params.src_outer_step;
    uint2 four = {};  // offsets
    if (params.table.rank > 1)
      four = *reinterpret_cast<const uint2*>(shared_tile + params.table.offset_bytes +
                                             element * static_cast<int32_t>(sizeof(RunTableEntry)));
    uint32_t rows[rows_per_item][max_words_per_item];
#pragma unroll
    for (int i = 0; i < rows_per_item; ++i) {
      const uint32_t pair = i < 2 ? four.x : four.y;
      uint32_t offset = i % 2 == 0 ? pair & 0xffff : pair >> 16;
      if (params.table.rank <= 1)
        offset = min(static_cast<uint32_t>(element + i), params.table.num_entries - 1) *
                 static_cast<uint32_t>(params.table.dims[0].shared_step);
      read_src_row<kOrder>(shared_tile, offset + static_cast<uint32_t>(start), first, rows[i]);
    }
#pragma unroll
    for (int j = 0; j < max_words_per_item; ++j) {
      const uint32_t words[4] = {rows[0][j], rows[1][j], rows[2][j], rows[3][j]};
      uint32_t columns[columns_per_word];
      transpose_bytes(words, columns);
#pragma unroll
      for (int i = 0; i < columns_per_word; ++i) items[k].columns[columns_per_word * j + i] = columns[i];
    }
  }
}

// Stores the first `num_bytes` bytes of a word to shared memory, kBytes at once. With kBytes = 4 it stores the whole
// word.
template <int kBytes>
__device__ __forceinline__ void store_word(SharedAddress at, uint32_t word, int32_t num_bytes) {
#pragma unroll
  for (int i = 0; i < 4; i += kBytes)
    if (kBytes == 4 || i < num_bytes) store_shared<kBytes>(at + i, word >> 8 * i);
}

// Writes the items of a thread to columns.
template <int kBytes>
__device__ __forceinline__ void write_items(const ByteTileParams& params, const ColumnCount& count,
                                            SharedAddress shared_columns,
                                            const TransposedItem (&items)[max_items_per_thread]) {
#pragma unroll
  for (int k = 0; k < max_items_per_thread; ++k) {
    const TransposedItem& item = items[k];
    if (item.shared_offset == no_item) continue;
    const int first = first_word_of(item.element(), params.rotation_shift);
    const int32_t num_bytes = static_cast<int32_t>(params.table.num_entries) - item.element();
    const bool is_inside = item.column() >= 0 && item.column() + columns_per_word * params.words_per_item <= count.num;
    const auto write = [&](const auto& may_write) {
#pragma unroll
      for (int j = 0; j < max_words_per_item; ++j) {
        if (j >= params.words_per_item) break;
        const int32_t in_item = columns_per_word * ((j + first) & 3);
        SharedAddress at = shared_columns + (item.shared_offset + in_item * params.columns_pitch);
#pragma unroll
        for (int i = 0; i < columns_per_word; ++i, at += params.columns_pitch)
          if (may_write(item.column() + in_item + i))
            store_word<kBytes>(at, item.columns[columns_per_word * j + i], num_bytes);
      }
    };
    if (kBytes == 4 && is_inside)
      write([](int32_t) { return true; });
    else
      write([&](int32_t column) { return static_cast<uint32_t>(column) < static_cast<uint32_t>(count.num); });
  }
}

// How many destination rows of the tile are inside the tensor, and how many runs each has.
struct JoinedRows {
  uint32_t rows;
  uint32_t runs;

  __device__ __forceinline__ JoinedRows(const ByteTileParams& params, const TileOrigin& tile)
      : rows(params.run_join.divide(tile.dst_row_end)), runs(params.run_join.divisor) {
    if (!params.joins_src_cut) return;
    runs = rows;
    rows = params.run_join.divisor;
  }
};

// A destination row of the tile: head bytes, whole aligned vectors of dst, tail bytes.
struct alignas(vector_bytes) VectoredRow {
  unsigned char* address;  // of the first vector
  uint16_t shared_offset;  // of the first vector, from the columns' start in shared memory
  uint16_t vectors;
  uint8_t head;
  uint8_t tail;
  uint16_t skipped_vectors;  // before the first, that would fill its granule
};
static_assert(sizeof(VectoredRow) == dst_row_bytes);

// Finds what each destination row of the tile stores. A row outside the tensor stores nothing. With a halo, a row
// begins and ends at multiples of params.dst_granule bytes, and the next tile begins where it ends.
__device__ __forceinline__ void make_vectored_rows(const ByteTileParams& params, const TileOrigin& tile,
                                                   const JoinedRows& joined, int32_t columns_shift, VectoredRow* rows) {
#pragma unroll 1
  for (uint32_t dst_row = threadIdx.x; dst_row < params.store.num_rows.divisor; dst_row += blockDim.x) {
    int64_t offset;
    int32_t shared_offset;
    locate_tile_row(params.tile.dst_row_dims, params.tile.dst_row_rank, dst_row, &offset, &shared_offset);
    const auto address = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(tile.dst + offset));
    const auto before = static_cast<int32_t>(address & params.store.span_end_mask);
    const auto after =
        static_cast<int32_t>((address + static_cast<uint32_t>(params.store.span_bytes)) & params.store.span_end_mask);
    const int32_t begin = max(params.halo_bytes - before, tile.dst_element_begin);
    const int32_t end = min(params.halo_bytes + params.store.span_bytes - after, tile.dst_element_end);
    const int32_t bytes = dst_row < joined.rows ? max(end - begin, 0) * static_cast<int32_t>(joined.runs) : 0;
    unsigned char* start = tile.dst + (offset + (begin - params.halo_bytes));
    const auto first = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(start));
    const int32_t head = min(static_cast<int32_t>((0 - first) % vector_bytes), bytes);
    rows[dst_row] = {
        start + head,
        static_cast<uint16_t>(columns_shift + shared_offset + begin + head),
        static_cast<uint16_t>((bytes - head) / vector_bytes),
        static_cast<uint8_t>(head),
        static_cast<uint8_t>((bytes - head) % vector_bytes),
        static_cast<uint16_t>(((first + static_cast<uint32_t>(head)) & static_cast<uint32_t>(params.dst_granule - 1)) /
                              vector_bytes)};
  }
}

// Stores a row's head or tail as a byte, a half word and up to three words.
__device__ __forceinline__ void store_row_end(const VectoredRow& row, bool is_tail,
                                              const unsigned char* shared_columns) {
  const int32_t bytes = is_tail ? row.tail : row.head;
  const int32_t to_vector = is_tail ? row.vectors * vector_bytes : -vector_bytes;
  unsigned char* vector = row.address + to_vector;
  const int32_t shared_offset = row.shared_offset + to_vector;
  const int32_t first = is_tail ? 0 : vector_bytes - bytes, last = is_tail ? bytes : vector_bytes;
  if (reinterpret_cast<uintptr_t>(vector) % vector_bytes != 0) {  // the row ends in the vector that it starts in
#pragma unroll 1
    for (int32_t i = first; i < last; ++i) vector[i] = shared_columns[shared_offset + i];
    return;
  }
  const int32_t odd_end = is_tail ? last : first;
  if (odd_end & 1) {
    const int32_t at = is_tail ? last - 1 : first;
    vector[at] = shared_columns[shared_offset + at];
  }
  const int32_t even_end = is_tail ? last : first + 1;
  if (even_end & 2) {
    const int32_t at = is_tail ? last & ~3 : even_end & ~1;
    const uint32_t low = shared_columns[shared_offset + at], high = shared_columns[shared_offset + at + 1];
    *reinterpret_cast<uint16_t*>(vector + at) = static_cast<uint16_t>(low | high << 8);
  }
  const int32_t first_word = (first + 3) >> 2, num_words = (last >> 2) - first_word;
  uint32_t words[3];
  read_words(shared_columns, shared_offset + 4 * first_word, words);
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (i < num_words) reinterpret_cast<uint32_t*>(vector)[first_word + i] = words[i];
}

// Stores heads and tails, one per thread: fewer instructions than half a warp per end, one byte per thread.
__device__ __forceinline__ void store_row_ends(const JoinedRows& joined, const VectoredRow* rows,
                                               const unsigned char* shared_columns) {
#pragma unroll 1
  for (uint32_t item = threadIdx.x; item < 2 * joined.rows; item += blockDim.x) {
    const VectoredRow row = read_row(rows + item / 2);
    const bool is_tail = item % 2 != 0;
    if ((is_tail ? row.tail : row.head) != 0) store_row_end(row, is_tail, shared_columns);
  }
}

// dst[c, e] = src[e, c] for a tile of 1-byte elements whose runs share no dimension: (source rows, columns) in src,
// (destination rows, run elements) in dst. A gather by bytes reads shared memory once per byte; words take a third:
//   1. source rows are copied to shared memory in 16-byte vectors;
//   2. a thread reads up to two items of 4 rows by up to 16 columns and transposes 4 x 4 bytes at a time; after a
//      barrier it writes the words of each column to the same shared memory. Runs that lie one after the other in dst
//      do so there, and are one destination row;
//   3. a thread reads a vector of a destination row and stores it. A vector that is aligned in shared memory too is
//   read
//      at once, another as five words that are shifted. Heads and tails follow.
__global__ void __launch_bounds__(tile_threads, fitting_blocks(tile_threads, byte_tile_resident_threads / tile_threads))
    byte_tile(const __grid_constant__ GridConstant<ByteTileParams> params) {
  unsigned char* shared_tile = &shared<unsigned char>();
  VectoredRow* rows = reinterpret_cast<VectoredRow*>(shared_tile + params.rows_offset_bytes);
  const TileOrigin tile = locate_tile<true>(params.tile);
  const int32_t shift = tile_shift(params.load, tile);
  const auto into_vector = static_cast<int32_t>(
      static_cast<uint32_t>(reinterpret_cast<uintptr_t>(tile.dst - params.halo_bytes)) % vector_bytes);
  const int32_t columns_shift = params.dst_rows_are_aligned ? into_vector : 0;
  load_tile<false>(params.tile, params.load, tile, shared_tile, shift,
                   [](int32_t shared_offset, uint32_t) { return shared_offset; });
  if (params.table.rank > 1) make_table(params.table, rows_per_item * params.words_per_run.divisor, shared_tile);
  const JoinedRows joined(params, tile);
  make_vectored_rows(params, tile, joined, columns_shift, rows);
  async_copy_wait();
  __syncthreads();

  // Columns replace the source rows in shared memory. A block's threads hold all items at once.
  const ColumnCount count(params, tile);
  TransposedItem items[max_items_per_thread];
  if (!params.src_rows_are_words)
    read_items<WordOrder::shifted>(params, tile, count, shared_tile, shift, items);
  else if (params.rotation_shift == no_rotation)
    read_items<WordOrder::on_words>(params, tile, count, shared_tile, shift, items);
  else
    read_items<WordOrder::rotated>(params, tile, count, shared_tile, shift, items);
  __syncthreads();
  const SharedAddress shared_columns = shared_address(shared_tile + columns_shift);
  if (params.store_bytes == 4)
    write_items<4>(params, count, shared_columns, items);
  else if (params.store_bytes == 2)
    write_items<2>(params, count, shared_columns, items);
  else
    write_items<1>(params, count, shared_columns, items);
  __syncthreads();

#pragma unroll 1
  for (StoreCursor cursor(params.store); !cursor.is_done(params.store); cursor.step(params.store)) {
    const VectoredRow row = read_row(rows + cursor.dst_row);
    const uint32_t vector = cursor.vector - row.skipped_vectors;
    if (vector >= row.vectors) continue;
    const int32_t shared_offset = row.shared_offset + static_cast<int32_t>(vector * vector_bytes);
    Vector<1> out;
    if (params.dst_rows_are_aligned)
      out.whole = *reinterpret_cast<const uint4*>(shared_tile + shared_offset);
    else
      read_words(shared_tile, shared_offset, out.words);
    *reinterpret_cast<uint4*>(row.address + vector * vector_bytes) = out.whole;
  }
  if (params.dst_rows_have_ends) store_row_ends(joined, rows, shared_tile);
}

}  // namespace flowk::permute
