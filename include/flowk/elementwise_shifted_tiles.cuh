// SPDX-License-Identifier: Apache-2.0
// The kernel of tiles of any alignment: out[i, j] = functor(x[i, j], ...) as in elementwise_tiles.cuh, where runs and
// rows start anywhere. Runs stand in shared memory as they do in memory modulo 16, and a row's packs start up to a pack
// before the tile, so that they are aligned in out.
#pragma once

#include "flowk/elementwise_tiles.cuh"

namespace flowk {

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
