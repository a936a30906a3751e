// SPDX-License-Identifier: Apache-2.0
// Gathers and stores the vectors of destination rows at any alignment.
//
// Offsets in shared memory are below 64 KB, so a word holds two, and one instruction adds a column, a swizzle or a step
// to the offsets of two elements. A gather of bytes at the speed of a copy has few issue slots per element.
#pragma once

#include "permute/kernels/permute_elements.cuh"
#include "permute/kernels/permute_tile.cuh"

namespace flowk::permute {

constexpr uint32_t both_halves = 0x10001;

// Swizzles both offsets in a word. The shift is below 10, so that no bits of the high offset get into the low one's
// key.
__device__ __forceinline__ uint32_t swizzle_pair(const GeneralTileParams& params, uint32_t pair) {
  return pair ^ (pair >> params.swizzle_shift & static_cast<uint32_t>(params.swizzle_bits) * both_halves);
}

// Makes the table of the run's offsets, without the swizzle: entries [0, table.num_entries), then the last entry again
// up to `num_entries`. The table of general_tile has one period, and as much of the next as a vector may need. The
// entries before a copy's first one are written too, to unused bytes at the end of the copy before.
__device__ __forceinline__ void make_table(const RunTable& table, uint32_t num_entries, unsigned char* shared_tile) {
#pragma unroll 1
  for (uint32_t e = threadIdx.x; e < num_entries; e += blockDim.x) {
    const auto entry = static_cast<RunTableEntry>(locate_run_element(table, min(e, table.num_entries - 1)));
    unsigned char* at = shared_tile + (table.offset_bytes + e * static_cast<uint32_t>(sizeof(RunTableEntry)));
#pragma unroll 1
    for (uint32_t copy = 0; copy < table.num_copies; ++copy) {
      *reinterpret_cast<RunTableEntry*>(at) = entry;
      at += int32_t{table.copy_bytes} - static_cast<int32_t>(sizeof(RunTableEntry));
    }
  }
}

// Reads entries [e, e + kN) of the table, two per word, from the copy in which they are aligned packs. Neighbouring
// lanes read kN entries apart, so reads of single entries would use only 32 / kN banks.
template <int kN>
__device__ __forceinline__ void read_table(const RunTable& table, const unsigned char* shared_tile, uint32_t e,
                                           uint32_t (&pairs)[(kN + 1) / 2]) {
  constexpr int entries_per_pack = kN < static_cast<int>(max_table_copies) ? kN : static_cast<int>(max_table_copies);
  constexpr int pack_bytes = entries_per_pack * static_cast<int>(sizeof(RunTableEntry));
  const uint32_t copy = e % entries_per_pack;
  const unsigned char* from = shared_tile + (table.offset_bytes + static_cast<int32_t>(copy) * table.copy_bytes +
                                             static_cast<int32_t>((e - copy) * sizeof(RunTableEntry)));
  if constexpr (kN == 1) {
    pairs[0] = *reinterpret_cast<const RunTableEntry*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < kN / entries_per_pack; ++i)
      pack::load<pack_bytes>(pairs + i * pack_bytes / 4, from + i * pack_bytes);
  }
}

// The offsets of elements [first, first + kN) of a destination row, two per word. The row's element 0 is `column` bytes
// after the run's. Element e of the run is at e * run_pitch, or where the table says if there is one.
template <int kN, bool kSwizzle>
__device__ __forceinline__ void locate_elements(const GeneralTileParams& params, const unsigned char* shared_tile,
                                                int32_t first, int32_t column, uint32_t (&pairs)[(kN + 1) / 2]) {
  constexpr int num_pairs = (kN + 1) / 2;
  if (params.table.rank > 0) {
    uint32_t period = static_cast<uint32_t>(first);
    const uint32_t in_period = take_index(&period, params.table_period);
    column += static_cast<int32_t>(period) * params.period_step;
    read_table<kN>(params.table, shared_tile, in_period, pairs);
#pragma unroll
    for (int i = 0; i < num_pairs; ++i) pairs[i] += static_cast<uint32_t>(column) * both_halves;
  } else {
    const auto pitch = static_cast<uint32_t>(params.run_pitch);
    const uint32_t start = static_cast<uint32_t>(first) * pitch + static_cast<uint32_t>(column);
    pairs[0] = start * both_halves + (pitch << 16);
#pragma unroll
    for (int i = 1; i < num_pairs; ++i) pairs[i] = pairs[i - 1] + 2 * pitch * both_halves;
  }
#pragma unroll
  for (int i = 0; i < num_pairs; ++i)
    if constexpr (kSwizzle) pairs[i] = swizzle_pair(params, pairs[i]);
}

// Reads elements [first, first + kN) of a destination row.
template <int Bytes, int kN, bool kSwizzle>
__device__ __forceinline__ void gather(const GeneralTileParams& params, const unsigned char* shared_tile, int32_t first,
                                       int32_t column, Element<Bytes> (&elements)[kN]) {
  uint32_t pairs[(kN + 1) / 2];
  locate_elements<kN, kSwizzle>(params, shared_tile, first, column, pairs);
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    const uint32_t shared_offset = i % 2 == 0 ? pairs[i / 2] & 0xffff : pairs[i / 2] >> 16;
    elements[i] = *reinterpret_cast<const Pack<Bytes>*>(shared_tile + shared_offset);
  }
}

// A destination row of the tile, from the granule that it starts in. A block keeps a table of its rows in shared
// memory: splitting a row's index costs as much as storing a vector.
struct alignas(vector_bytes) DstRow {
  unsigned char* address;  // of the granule
  int32_t column;          // in shared memory
  int16_t element;         // of the run, at `address`: < 0 if the row starts inside its granule
  uint16_t end;            // one past the last that is this tile's; 0 if the row is outside the tensor
};
static_assert(sizeof(DstRow) == dst_row_bytes);

template <class Elements>
__device__ __forceinline__ void make_dst_rows(const GeneralTileParams& params, const TileOrigin& tile, int32_t shift,
                                              const Elements& elements, DstRow* rows) {
#pragma unroll 1
  for (uint32_t dst_row = threadIdx.x; dst_row < params.store.num_rows.divisor; dst_row += blockDim.x) {
    int64_t offset;
    int32_t column;
    locate_tile_row(params.tile.dst_row_dims, params.tile.dst_row_rank, dst_row, &offset, &column);
    unsigned char* row = tile.dst + offset;
    const auto into_granule = [](const unsigned char* at, uint32_t mask) {
      return static_cast<int32_t>(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at)) & mask);
    };
    const int32_t before_row = into_granule(row, static_cast<uint32_t>(params.dst_granule - 1));
    // With a halo the row goes on, in the next tile, from the granule that this one ends in.
    const int32_t after_span = into_granule(row + params.store.span_bytes, params.store.span_end_mask);
    const int32_t end = params.halo_elements + dst_elements_of(elements, params.store.span_bytes - after_span);
    rows[dst_row] = {row - before_row, column + shift,
                     static_cast<int16_t>(params.halo_elements - dst_elements_of(elements, before_row)),
                     static_cast<uint16_t>(dst_row < tile.dst_row_end ? max(min(end, tile.dst_element_end), 0) : 0)};
  }
}

// Reads an entry of a table of destination rows at once.
template <class Row>
__device__ __forceinline__ Row read_row(const Row* at) {
  const uint4 words = *reinterpret_cast<const uint4*>(at);
  Row row;
  __builtin_memcpy(&row, &words, sizeof(row));
  row.address = in_global_memory(row.address);
  return row;
}

// Stores elements [first, last) of the vector at `address`. `whole` begins `num_before` elements before that vector; <
// 0: after it.
template <class Elements>
__device__ __forceinline__ void store_vector_part(unsigned char* address, uint4 whole, int32_t num_before,
                                                  int32_t first, int32_t last, const Elements& elements) {
  const uint4 zero = {0, 0, 0, 0};
  const int32_t shift = dst_bytes_of(elements, num_before);
  if (shift > 0) whole = shift_vectors(whole, zero, shift);
  if (shift < 0) whole = shift_vectors(zero, whole, vector_bytes + shift);
  if constexpr (has_sizes<Elements>)
    store_partial_vector<Elements::dst_bytes>(address, {whole}, first, last);
  else
    store_partial_vector<1>(address, {whole}, dst_bytes_of(elements, first), dst_bytes_of(elements, last));
}

}  // namespace flowk::permute
