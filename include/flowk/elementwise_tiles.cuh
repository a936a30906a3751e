// SPDX-License-Identifier: Apache-2.0
// The kernels of inputs whose neighbours stand along another dimension than out's: out[i, j] = functor(x[i, j], ...)
// where element (i, j) of a staged input stands at i * element + j * step. A block owns a tile of rows i and columns j,
// a thread ElementwiseTileShape::rows_per_thread packs of it. Staged inputs come to shared memory as a run of rows for
// every column, in 16-byte chunks by asynchronous copies, and are gathered from there into packs along the columns.
//
// A warp gathers from 8 packs' columns, 4 words deep along the rows, and stores lines of 128 bytes. The chunk of a run
// is XORed with its pack's number, so that those 32 words lie in different banks.
#pragma once

#include "flowk/async_copy.cuh"
#include "flowk/elementwise_strided.cuh"
#include "flowk/shared.cuh"

namespace flowk {

// A tile's place: its first row and column, and the offsets of the dimensions that it has no part in.
template <int kOperands>
struct TilePlace {
  int64_t offsets[kOperands];
  uint32_t row;
  uint32_t column;
};

template <int kOperands>
__device__ __forceinline__ TilePlace<kOperands> locate_tile(const StridedElementwiseParams<kOperands>& params,
                                                            uint32_t index, int rows, int columns) {
  TilePlace<kOperands> place;
  place.column = take_index(&index, params.tile.tiles_per_row) * columns;
  place.row = take_index(&index, params.tile.tiles_per_column) * rows;
  locate_row(params.rows, index, place.offsets);
  return place;
}

// A thread's place in a tile: its pack among those of a row, and the words of the staged runs that it gathers.
template <int kN>
struct TileThread {
  using Shape = ElementwiseTileShape<kN>;
  static constexpr int warps_per_row = Shape::packs_per_row / 8;
  static constexpr int words_per_pass = elementwise_threads / Shape::packs_per_row;
  int pack, word;
  __device__ __forceinline__ TileThread()
      : pack(static_cast<int>(threadIdx.x) % 8 + static_cast<int>(threadIdx.x) / 32 % warps_per_row * 8),
        word(static_cast<int>(threadIdx.x) / (32 * warps_per_row) * 4 + static_cast<int>(threadIdx.x) / 8 % 4) {}
  // Of the thread's row number r.
  __device__ __forceinline__ int row(int r) const {
    return (r / Shape::rows_per_word * words_per_pass + word) * Shape::rows_per_word + r % Shape::rows_per_word;
  }
};

// ---- tiles of whole aligned packs and chunks ------------------------------------------------------------------------

// A run of an operand of kSize bytes, at least a line of all banks.
template <int kN, int kSize>
constexpr int aligned_run_bytes =
    ElementwiseTileShape<kN>::rows * kSize < 128 ? 128 : ElementwiseTileShape<kN>::rows * kSize;

template <int kN, int kSize, int kOperands>
__device__ __forceinline__ void stage_aligned(const StridedElementwiseParams<kOperands>& params,
                                              const TilePlace<kOperands>& place, int k) {
  using Shape = ElementwiseTileShape<kN>;
  constexpr int chunks_per_run = Shape::rows * kSize / chunk_bytes;
  constexpr int num_chunks = chunks_per_run * Shape::columns;
  const ElementwiseOperand& operand = params.operands[k];
  unsigned char* const staged = &shared<unsigned char>() + params.tile.shared_offset[k];
  const unsigned char* const first =
      operand.data + place.offsets[k] + int64_t{place.row} * kSize + place.column * operand.step;
  const int row_bytes = static_cast<int>(min(params.tile.column_elements - place.row, uint32_t{Shape::rows})) * kSize;
  const int num_columns =
      static_cast<int>(min(params.rows.row_elements.divisor - place.column, uint32_t{Shape::columns}));
#pragma unroll
  for (int pass = 0; pass < (num_chunks + elementwise_threads - 1) / elementwise_threads; ++pass) {
    const int item = pass * elementwise_threads + static_cast<int>(threadIdx.x);
    const int column = item / chunks_per_run, at = item % chunks_per_run * chunk_bytes;
    if (column >= num_columns || at >= row_bytes) continue;
    const unsigned char* const src = first + column * operand.step + at;
    async_copy_chunk_head(staged + column * aligned_run_bytes<kN, kSize> + (at ^ (column / kN % 8 * chunk_bytes)), src,
                          operand.end - src);
  }
}

// The staged packs of a thread's rows: kN runs of `rows_per_word` neighbours along the rows, which change places with
// the elements of a pack.
template <int kN, int kSize, class Packs>
__device__ __forceinline__ void gather_aligned(const unsigned char* staged, const TileThread<kN>& thread, int input,
                                               Packs& packs) {
  using Shape = ElementwiseTileShape<kN>;
  constexpr int run = Shape::rows_per_word, pitch = aligned_run_bytes<kN, kSize>;
  const unsigned char* const columns = staged + thread.pack * (kN * pitch);
#pragma unroll
  for (int first = 0; first < Shape::rows_per_thread; first += run) {
    const unsigned char* const here = columns + (thread.row(first) * kSize ^ (thread.pack % 8 * chunk_bytes));
    if constexpr (run * kSize == 4 && kSize < 4) {
#pragma unroll
      for (int i = 0; i < kN; i += run) {
        uint32_t words[run];
#pragma unroll
        for (int j = 0; j < run; ++j) pack::load<4>(words + j, here + (i + j) * pitch);
        pack::transpose<kSize>(words);
#pragma unroll
        for (int r = 0; r < run; ++r) packs[first + r][input][i / run] = words[r];
      }
    } else {
#pragma unroll
      for (int r = 0; r < run; ++r) {
#pragma unroll
        for (int w = 0; w < (kN * kSize + 3) / 4; ++w) packs[first + r][input][w] = 0;
#pragma unroll
        for (int i = 0; i < kN; ++i) {
          uint32_t element[(kSize + 3) / 4];
          pack::load<kSize>(element, here + i * pitch + r * kSize);
          pack::put<kSize>(packs[first + r][input], i, element);
        }
      }
    }
  }
}

// Registers for packs of four rows of every input.
template <int kInputs>
constexpr int tile_resident_blocks = kInputs == 1   ? 5
                                     : kInputs == 2 ? 4
                                                    : 3;

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, tile_resident_blocks<sizeof...(In)>)
    elementwise_aligned_tiles(const __grid_constant__ StridedElementwiseParams<1 + sizeof...(In)> params,
                              const Factory factory) {
  allow_next_grid();
  constexpr int num_inputs = static_cast<int>(sizeof...(In));
  using Shape = ElementwiseTileShape<kN>;
  using Work = PackWork<kN, 1, Out, In...>;
  const TilePlace<1 + num_inputs> place = locate_tile(params, blockIdx.x, Shape::rows, Shape::columns);
  const TileThread<kN> thread;
  const uint32_t column = place.column + static_cast<uint32_t>(thread.pack * kN);
  const bool has_columns = column < params.rows.row_elements.divisor;
  const auto has_row = [&](int r) {
    return has_columns && place.row + static_cast<uint32_t>(thread.row(r)) < params.tile.column_elements;
  };
  const auto locate = [&](int k, int r) {
    return params.operands[k].data + place.offsets[k] + (place.row + thread.row(r)) * params.tile.row_strides[k] +
           column * params.operands[k].step;
  };
  wait_for_previous_grid();
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    if (params.operands[k].access == ElementwiseAccess::staged)
      decltype(type)::type::with_size(params.operands[k],
                                      [&](auto size) { stage_aligned<kN, decltype(size)::value>(params, place, k); });
  });
  uint32_t packs[Shape::rows_per_thread][num_inputs][PackWords<kN, In...>::whole];
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    if (params.operands[k].access == ElementwiseAccess::staged) return;
    decltype(type)::type::with_size(params.operands[k], [&](auto size) {
#pragma unroll
      for (int r = 0; r < Shape::rows_per_thread; ++r)
        if (has_row(r)) load_whole_pack<kN, decltype(size)::value>(params.operands[k], locate(k, r), packs[r][k - 1]);
    });
  });
  async_copy_wait();
  __syncthreads();
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    if (params.operands[k].access == ElementwiseAccess::staged)
      decltype(type)::type::with_size(params.operands[k], [&](auto size) {
        gather_aligned<kN, decltype(size)::value>(&shared<unsigned char>() + params.tile.shared_offset[k], thread,
                                                  k - 1, packs);
      });
  });
  const auto functor = factory();
  // A loop, for one copy of the functor's code; the packs move up, for constant places in registers.
#pragma unroll 1
  for (int r = 0; r < Shape::rows_per_thread; ++r) {
    uint32_t out[Work::out_words];
    Work::compute(params.operands, functor, 1, packs[0], out);
    if (has_row(r))
      Out::with_size(params.operands[0], [&](auto size) { pack::store<kN* decltype(size)::value>(locate(0, r), out); });
#pragma unroll
    for (int q = 0; q + 1 < Shape::rows_per_thread; ++q)
#pragma unroll
      for (int k = 0; k < num_inputs; ++k)
#pragma unroll
        for (int w = 0; w < PackWords<kN, In...>::whole; ++w) packs[q][k][w] = packs[q + 1][k][w];
  }
}

// ---- tiles of any alignment -----------------------------------------------------------------------------------------

// Where byte `at` of a column's run stands: places agree with memory modulo 16, by a pitch that agrees with the step.
template <int kOperands>
__device__ __forceinline__ int staged_place(const ElementwiseTile<kOperands>& tile, int k, int at) {
  return at ^ (at >> tile.swizzle_shift[k] & tile.swizzle_bits[k]);
}

template <int kN, int kSize, int kOperands>
__device__ __forceinline__ void stage_shifted(const StridedElementwiseParams<kOperands>& params,
                                              const TilePlace<kOperands>& place, int k) {
  using Shape = ElementwiseTileShape<kN>;
  constexpr int most_chunks = Shape::rows * kSize / chunk_bytes + 1;
  const ElementwiseOperand& operand = params.operands[k];
  const ElementwiseTile<kOperands>& tile = params.tile;
  unsigned char* const staged = &shared<unsigned char>() + tile.shared_offset[k];
  const int64_t first_column = static_cast<int64_t>(place.column) - tile.halo;
  const unsigned char* const first =
      operand.data + place.offsets[k] + int64_t{place.row} * kSize + first_column * operand.step;
  const int lead = static_cast<int>(reinterpret_cast<uintptr_t>(first) % chunk_bytes);
  const int row_bytes = static_cast<int>(min(tile.column_elements - place.row, uint32_t{Shape::rows})) * kSize;
#pragma unroll 4
  for (int item = static_cast<int>(threadIdx.x); item < most_chunks * (Shape::columns + tile.halo);
       item += elementwise_threads) {
    const int column = item / most_chunks;
    if (first_column + column < 0 || first_column + column >= params.rows.row_elements.divisor) continue;
    const int run = lead + column * tile.pitch[k];
    const int at = run / chunk_bytes * chunk_bytes + item % most_chunks * chunk_bytes;
    if (at >= run + row_bytes) continue;
    const unsigned char* const src = first + column * operand.step + (at - run);
    unsigned char* const dst = staged + staged_place(tile, k, at);
    if (src >= operand.begin) {
      async_copy_chunk_head(dst, src, operand.end - src);
    } else {
      for (int i = 0; i < chunk_bytes; ++i)
        if (src + i >= operand.begin && src + i < operand.end) dst[i] = src[i];
    }
  }
}

// A row's pack, the first element of which stands at `here`; elements that do not exist are whatever stands there.
template <int kN, int kSize, int kOperands>
__device__ __forceinline__ void gather_shifted(const ElementwiseTile<kOperands>& tile, int k, int here,
                                               uint32_t* words) {
  const unsigned char* const staged = &shared<unsigned char>() + tile.shared_offset[k];
  const int pitch = tile.pitch[k];
#pragma unroll
  for (int w = 0; w < (kN * kSize + 3) / 4; ++w) words[w] = 0;
  const auto gather = [&](auto place_of) {
#pragma unroll
    for (int i = 0; i < kN; ++i) {
      uint32_t element[(kSize + 3) / 4];
      pack::load<kSize>(element, staged + place_of(here + i * pitch));
      pack::put<kSize>(words, i, element);
    }
  };
  if (tile.swizzle_bits[k] == 0)
    gather([](int at) { return at; });
  else
    gather([&](int at) { return staged_place(tile, k, at); });
}

// A pack of neighbours that is whole, at any alignment, or of one element. False: it needs memory past the operand's.
template <int kN, int kSize>
__device__ __forceinline__ bool load_whole_shifted(const ElementwiseOperand& operand, const unsigned char* here,
                                                   uint32_t* words, int* shift) {
  constexpr int bytes = kN * kSize;
  *shift = 0;
  if (operand.access == ElementwiseAccess::aligned || operand.access == ElementwiseAccess::shifted) {
    *shift = static_cast<int>(reinterpret_cast<uintptr_t>(here) % pack::access_bytes<bytes>);
    if (*shift == 0) {
      pack::load<bytes>(words, here);
      return true;
    }
    if constexpr (bytes >= 4) {
      constexpr int width = pack::access_bytes<bytes>;
      if (here - *shift < operand.begin || here - *shift + bytes + width > operand.end) return false;
      pack::load_around<bytes>(words, here, *shift);
      return true;
    }
    return false;
  }
  if (operand.access == ElementwiseAccess::gather) return false;
  load_whole_pack<kN, kSize>(operand, here, words);
  return true;
}

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, kN == 16 ? 3 : 4)
    elementwise_shifted_tiles(const __grid_constant__ StridedElementwiseParams<1 + sizeof...(In)> params,
                              const Factory factory) {
  allow_next_grid();
  constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
  using Shape = ElementwiseTileShape<kN>;
  const ElementwiseTile<num_operands>& tile = params.tile;
  const ElementwiseOperand& out = params.operands[0];
  const TilePlace<num_operands> place = locate_tile(params, blockIdx.x, Shape::rows, Shape::columns);
  const TileThread<kN> thread;
  const unsigned char* bases[num_operands];  // of row 0 of the tile and the thread's columns, before phases
  int staged_bases[num_operands];            // of the same in shared memory
  const int64_t first_column = static_cast<int64_t>(place.column) - tile.halo;
#pragma unroll
  for (int k = 0; k < num_operands; ++k) {
    const ElementwiseOperand& operand = params.operands[k];
    const unsigned char* const row = operand.data + place.offsets[k] + place.row * tile.row_strides[k];
    bases[k] = row + (place.column + static_cast<int64_t>(thread.pack * kN)) * operand.step;
    staged_bases[k] = static_cast<int>(reinterpret_cast<uintptr_t>(row + first_column * operand.step) % chunk_bytes) +
                      (thread.pack * kN + tile.halo) * tile.pitch[k];
  }
  wait_for_previous_grid();
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    if (params.operands[k].access == ElementwiseAccess::staged)
      decltype(type)::type::with_size(params.operands[k],
                                      [&](auto size) { stage_shifted<kN, decltype(size)::value>(params, place, k); });
  });
  const auto functor = factory();
  async_copy_wait();
  __syncthreads();
#pragma unroll 1
  for (int r = 0; r < Shape::rows_per_thread; ++r) {
    const int row = thread.row(r);
    if (place.row + static_cast<uint32_t>(row) >= tile.column_elements) continue;
    const auto base_of = [&](int k) { return const_cast<unsigned char*>(bases[k]) + row * tile.row_strides[k]; };
    // Columns that the row's packs are shifted down by, to be aligned in out.
    const int phase = tile.halo == 0 ? 0
                                     : static_cast<int>((reinterpret_cast<uintptr_t>(base_of(0)) >> out.element_shift) %
                                                        static_cast<uintptr_t>(kN));
    const int64_t column = static_cast<int64_t>(place.column) + thread.pack * kN - phase;
    const auto here_of = [&](int k) { return base_of(k) - phase * params.operands[k].step; };
    CutPack<kN, In...> pack;
    bool is_whole =
        column >= 0 && column + kN <= params.rows.row_elements.divisor && out.access == ElementwiseAccess::aligned;
    const auto gather_staged = [&] {
      for_each_input<In...>([&](auto index, auto type) {
        constexpr int k = decltype(index)::value;
        if (params.operands[k].access == ElementwiseAccess::staged)
          decltype(type)::type::with_size(params.operands[k], [&](auto size) {
            constexpr int bytes = decltype(size)::value;
            gather_shifted<kN, bytes>(tile, k, staged_bases[k] - phase * tile.pitch[k] + row * bytes,
                                      pack.words[k - 1]);
          });
      });
    };
    if (is_whole) {
      for_each_input<In...>([&](auto index, auto type) {
        constexpr int k = decltype(index)::value;
        pack.shifts[k - 1] = 0;
        if (params.operands[k].access == ElementwiseAccess::staged) return;
        decltype(type)::type::with_size(params.operands[k], [&](auto size) {
          is_whole &= load_whole_shifted<kN, decltype(size)::value>(params.operands[k], here_of(k), pack.words[k - 1],
                                                                    &pack.shifts[k - 1]);
        });
      });
    }
    PackPlaces<num_operands> places;
    places.linear = 0;
    places.first = column < 0 ? static_cast<int>(-column) : 0;
    const int64_t remaining = params.rows.row_elements.divisor - column;
    places.last = remaining < kN ? static_cast<int>(remaining) : kN;
    places.wraps_often = false;
    if (places.first >= places.last) continue;
#pragma unroll
    for (int k = 0; k < num_operands; ++k) {
      places.operands[k].here = here_of(k);
      places.operands[k].wrap = kN;
    }
    if (!is_whole) load_cut_packs<kN, In...>(params, places, &pack);
    gather_staged();
    finish_cut_pack<kN, Out, In...>(params, places, functor, &pack);
  }
}

}  // namespace flowk
