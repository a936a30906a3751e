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
    if (has_row(r)) {
      uint32_t out[Work::out_words];
      Work::compute(params.operands, functor, 1, packs[0], out);
      Out::with_size(params.operands[0], [&](auto size) { pack::store<kN* decltype(size)::value>(locate(0, r), out); });
    }
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
  const SharedAddress staged_address = shared_address(staged);
  const int first_column = static_cast<int>(place.column) - tile.halo;
  const unsigned char* const first =
      operand.data + place.offsets[k] + int64_t{place.row} * kSize + first_column * operand.step;
  const int lead = static_cast<int>(reinterpret_cast<uintptr_t>(first) % chunk_bytes);
  const int row_bytes = static_cast<int>(min(tile.column_elements - place.row, uint32_t{Shape::rows})) * kSize;
  const int lower = first_column < 0 ? -first_column : 0;
  const int upper = min(Shape::columns + tile.halo, static_cast<int>(params.rows.row_elements.divisor) - first_column);
  // The chunks of all of the tile's runs lie within the operand.
  const unsigned char* const lowest = first + (operand.step < 0 ? upper - 1 : lower) * operand.step;
  const unsigned char* const highest = first + (operand.step < 0 ? lower : upper - 1) * operand.step;
  const bool is_inside = lowest - operand.begin >= chunk_bytes && operand.end - highest >= row_bytes + chunk_bytes;
  int column = static_cast<int>(threadIdx.x) / most_chunks, chunk = static_cast<int>(threadIdx.x) % most_chunks;
#pragma unroll 1
  while (column < upper) {
    const int run = lead + column * tile.pitch[k];
    const int at = (run & -chunk_bytes) + chunk * chunk_bytes;
    if (column >= lower && at < run + row_bytes) {
      const unsigned char* const src = first + column * operand.step + (at - run);
      const int to = staged_place(tile, k, at);
      if (is_inside || (src >= operand.begin && operand.end - src >= chunk_bytes)) {
        async_copy_chunk(staged_address + to, src);
      } else {
#pragma unroll 1
        for (int i = 0; i < chunk_bytes; ++i)
          if (src + i >= operand.begin && src + i < operand.end) staged[to + i] = src[i];
      }
    }
    column += elementwise_threads / most_chunks;
    chunk += elementwise_threads % most_chunks;
    if (chunk >= most_chunks) {
      chunk -= most_chunks;
      ++column;
    }
  }
}

// A row's pack, the first element of which stands at `here`.
template <int kN, int kSize, int kOperands>
__device__ __forceinline__ void gather_shifted(const ElementwiseTile<kOperands>& tile, int k, int here,
                                               uint32_t* words) {
  const unsigned char* const staged = &shared<unsigned char>() + tile.shared_offset[k];
  const int pitch = tile.pitch[k];
#pragma unroll
  for (int w = 0; w < (kN * kSize + 3) / 4; ++w) words[w] = 0;
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    uint32_t element[(kSize + 3) / 4];
    pack::load<kSize>(element, staged + staged_place(tile, k, here + i * pitch));
    pack::put<kSize>(words, i, element);
  }
}

// The words of one access, where the operand ends before some of its bytes.
template <int kBytes>
__device__ __forceinline__ void load_within(const ElementwiseOperand& operand, const unsigned char* address,
                                            uint32_t* words) {
  if (address >= operand.begin && operand.end - address >= kBytes) return pack::load<kBytes>(words, address);
#pragma unroll
  for (int w = 0; w < kBytes / 4; ++w) words[w] = 0;
#pragma unroll 1
  for (int i = 0; i < kBytes; ++i) {
    const bool is_inside = address + i >= operand.begin && address + i < operand.end;
    const uint32_t next = is_inside ? address[i] : 0;
    // In at the top, so that byte 0 arrives at the bottom.
#pragma unroll
    for (int w = 0; w < kBytes / 4; ++w)
      words[w] = __funnelshift_r(words[w], w + 1 < kBytes / 4 ? words[w + 1] : next, 8);
  }
}

// A whole pack of an input that is not staged, to be moved down by the result's bytes.
template <int kN, int kSize>
__device__ __forceinline__ int load_whole_shifted(const ElementwiseOperand& operand, const unsigned char* here,
                                                  uint32_t* words) {
  constexpr int bytes = kN * kSize;
  constexpr int width = pack::access_bytes<bytes>;
  if (operand.access == ElementwiseAccess::aligned || operand.access == ElementwiseAccess::shifted) {
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(here) % width);
    if (shift == 0) {
      pack::load<bytes>(words, here);
      return 0;
    }
    if constexpr (bytes >= 4) {
#pragma unroll
      for (int at = 0; at <= bytes; at += width) load_within<width>(operand, here - shift + at, words + at / 4);
      return shift;
    }
  }
  if (operand.access == ElementwiseAccess::splat || operand.access == ElementwiseAccess::number) {
    load_whole_pack<kN, kSize>(operand, here, words);
    return 0;
  }
#pragma unroll
  for (int w = 0; w < (bytes + 3) / 4; ++w) words[w] = 0;
#pragma unroll
  for (int i = 0; i < kN; ++i) {
    uint32_t element[(kSize + 3) / 4];
    pack::load<kSize>(element, here + i * operand.step);
    pack::put<kSize>(words, i, element);
  }
  return 0;
}

// A thread owns rows_per_thread rows, one a pass of the block. The input packs of a row are under way while the row
// before it is computed. Elements of packs that a row's ends cut have a thread each, at the end.
template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, kN == 16 ? 3 : 4)
    elementwise_shifted_tiles(const __grid_constant__ StridedElementwiseParams<1 + sizeof...(In)> params,
                              const Factory factory) {
  allow_next_grid();
  constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
  constexpr int num_inputs = num_operands - 1;
  using Shape = ElementwiseTileShape<kN>;
  using Work = PackWork<kN, 1, Out, In...>;
  constexpr int rows_per_pass = TileThread<kN>::words_per_pass;
  using Words = PackWords<kN, In...>;
  const ElementwiseTile<num_operands>& tile = params.tile;
  const ElementwiseOperand& out = params.operands[0];
  const TilePlace<num_operands> place = locate_tile(params, blockIdx.x, Shape::rows, Shape::columns);
  const TileThread<kN> thread;
  const int row_elements = static_cast<int>(params.rows.row_elements.divisor);
  const int num_rows = static_cast<int>(min(tile.column_elements - place.row, uint32_t{Shape::rows}));
  const int tile_column = static_cast<int>(place.column);
  const auto locate = [&](int k, int row, int column) {
    return params.operands[k].data + place.offsets[k] + (place.row + row) * tile.row_strides[k] +
           column * params.operands[k].step;
  };
  // Columns that a row's packs are shifted down by, to be aligned in out.
  const auto phase_of = [&](const unsigned char* out_here) {
    const uint32_t element = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(out_here)) >> out.element_shift;
    return tile.halo == 0 ? 0 : static_cast<int>(element % kN);
  };
  wait_for_previous_grid();
  for_each_input<In...>([&](auto index, auto type) {
    constexpr int k = decltype(index)::value;
    if (params.operands[k].access == ElementwiseAccess::staged)
      decltype(type)::type::with_size(params.operands[k],
                                      [&](auto size) { stage_shifted<kN, decltype(size)::value>(params, place, k); });
  });
  const auto functor = factory();
  const unsigned char* heres[num_operands];  // of the next row's pack, before its phase
  int staged_heres[num_operands];            // of the same in shared memory
#pragma unroll
  for (int k = 0; k < num_operands; ++k) {
    const unsigned char* const first = locate(k, 0, tile_column - tile.halo);
    heres[k] = locate(k, thread.word, tile_column + thread.pack * kN);
    staged_heres[k] = static_cast<int>(reinterpret_cast<uintptr_t>(first) % chunk_bytes) +
                      (thread.pack * kN + tile.halo) * tile.pitch[k] +
                      (thread.word << params.operands[k].element_shift);
  }
  uint32_t words[num_inputs][Words::whole];
  unsigned char* out_here = nullptr;
  int phase = 0;
  bool has_pack = false;
#pragma unroll 1
  for (int r = -1; r < Shape::rows_per_thread; ++r) {
    uint32_t next_words[num_inputs][Words::shifted] = {};
    int shifts[num_inputs] = {};
    const int next_phase = phase_of(heres[0]);
    const int column = tile_column + thread.pack * kN - next_phase;
    const bool has_next = r + 1 < Shape::rows_per_thread && (r + 1) * rows_per_pass + thread.word < num_rows &&
                          column >= 0 && column + kN <= row_elements;
    if (has_next) {
      for_each_input<In...>([&](auto index, auto type) {
        constexpr int k = decltype(index)::value;
        const ElementwiseOperand& operand = params.operands[k];
        if (operand.access == ElementwiseAccess::staged) return;
        decltype(type)::type::with_size(operand, [&](auto size) {
          shifts[k - 1] = load_whole_shifted<kN, decltype(size)::value>(operand, heres[k] - next_phase * operand.step,
                                                                        next_words[k - 1]);
        });
      });
    }
    if (r < 0) {
      async_copy_wait();
      __syncthreads();
    } else if (has_pack) {
      for_each_input<In...>([&](auto index, auto type) {
        constexpr int k = decltype(index)::value;
        if (params.operands[k].access != ElementwiseAccess::staged) return;
        decltype(type)::type::with_size(params.operands[k], [&](auto size) {
          constexpr int bytes = decltype(size)::value;
          gather_shifted<kN, bytes>(tile, k, staged_heres[k] - phase * tile.pitch[k] + r * rows_per_pass * bytes,
                                    words[k - 1]);
        });
      });
      uint32_t result[Work::out_words];
      Work::compute(params.operands, functor, 1, words, result);
      Out::with_size(out, [&](auto size) {
        constexpr int bytes = decltype(size)::value;
        if (out.access == ElementwiseAccess::aligned) return pack::store<kN * bytes>(out_here, result);
#pragma unroll
        for (int i = 0; i < kN; ++i) {
          uint32_t element[(bytes + 3) / 4];
          pack::take<bytes>(result, i, element);
          pack::store<bytes>(out_here + i * out.step, element);
        }
      });
    }
    out_here = const_cast<unsigned char*>(heres[0]) - next_phase * out.step;
    phase = next_phase;
    has_pack = has_next;
#pragma unroll
    for (int k = 0; k < num_operands; ++k) heres[k] += rows_per_pass * tile.row_strides[k];
    for_each_input<In...>([&](auto index, auto type) {
      constexpr int k = decltype(index)::value;
      if (params.operands[k].access == ElementwiseAccess::staged) return;
      if (shifts[k - 1] != 0)
        decltype(type)::type::with_size(params.operands[k], [&](auto size) {
          constexpr int bytes = kN * decltype(size)::value;
          if constexpr (bytes >= 4) pack::shift_down<bytes>(next_words[k - 1], shifts[k - 1]);
        });
#pragma unroll
      for (int w = 0; w < Words::whole; ++w) words[k - 1][w] = next_words[k - 1][w];
    });
  }
  // The elements before a row's first whole pack, and those after its last one.
  const bool has_start = tile_column == 0 && tile.halo != 0;
  if (!has_start && tile_column + Shape::columns + kN <= row_elements) return;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < 2 * kN * num_rows; item += elementwise_threads) {
    const int row = item / (2 * kN), at = item % kN;
    const bool is_start = item % (2 * kN) < kN;
    const int row_phase = phase_of(locate(0, row, 0));
    const int after = (row_elements + row_phase) % kN;  // of the last pack, if that is not the first one too
    const int column = is_start ? at : row_elements - after + at;
    const int pack_column = column - at + row_phase;
    const bool is_here = is_start ? has_start && row_phase != 0 && at < min(kN - row_phase, row_elements)
                                  : at < after && column >= at && pack_column >= tile_column &&
                                        pack_column < tile_column + Shape::columns;
    if (is_here)
      compute_element<Factory, Out, In...>(params.operands, factory, [&](int k) { return locate(k, row, column); });
  }
}

}  // namespace flowk
