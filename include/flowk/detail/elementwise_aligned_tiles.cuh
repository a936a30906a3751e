// SPDX-License-Identifier: Apache-2.0
// elementwise_aligned_tiles: out[i, j] = functor(x[i, j], ...) where element (i, j) of a staged input is at
// i * element_bytes + j * step: its neighbours lie along the rows i, those of out along the columns j. All rows and
// runs are aligned.
//
// A block computes a tile of rows and columns. It copies each staged input to shared memory asynchronously, one run
// along the rows per column, in vectors of 16 bytes, and gathers packs along the columns from there. A warp gathers the
// columns of 8 packs and 4 words along the rows, and stores lines of 128 bytes. The index of a vector in its run is
// XORed with its pack's number, so that these 32 words lie in different banks.
#pragma once

#include "flowk/detail/async_copy.cuh"
#include "flowk/detail/elementwise_strided.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/shared.cuh"

namespace flowk::detail {

// The first row and column of a tile, and the offsets of all other dimensions.
template <int kOperands>
struct TilePosition {
  int64_t offsets[kOperands];
  uint32_t row;
  uint32_t column;
};

template <int kOperands>
__device__ __forceinline__ TilePosition<kOperands> locate_tile(const StridedElementwiseParams<kOperands>& params,
                                                               uint32_t index, int rows, int columns) {
  TilePosition<kOperands> position;
  position.column = take_index(&index, params.tile.tiles_per_row) * columns;
  position.row = take_index(&index, params.tile.tiles_per_column) * rows;
  locate_row(params, index, position.offsets);
  return position;
}

// A thread's part of a tile: its pack in a row, and the word of the staged runs that it gathers.
template <int kN>
struct TileThread {
  using Shape = ElementwiseTileShape<kN>;
  static constexpr uint32_t warps_per_row = Shape::packs_per_row / 8;
  static constexpr int words_per_pass = elementwise_threads / Shape::packs_per_row;
  int pack, word;
  __device__ __forceinline__ TileThread()
      : pack(static_cast<int>(threadIdx.x % 8 + threadIdx.x / 32 % warps_per_row * 8)),
        word(static_cast<int>(threadIdx.x / (32 * warps_per_row) * 4 + threadIdx.x / 8 % 4)) {}
  // The tile's row of the thread's row r.
  __device__ __forceinline__ int row(int r) const {
    return (r / Shape::rows_per_word * words_per_pass + word) * Shape::rows_per_word + r % Shape::rows_per_word;
  }
};

template <int kN, int kSize, int kOperands>
__device__ __forceinline__ void stage_aligned(const StridedElementwiseParams<kOperands>& params,
                                              const TilePosition<kOperands>& position, int k) {
  using Shape = ElementwiseTileShape<kN>;
  constexpr int vectors_per_run = Shape::rows * kSize / vector_bytes;
  constexpr int num_vectors = vectors_per_run * Shape::columns;
  const StridedOperand& operand = params.operands[k];
  unsigned char* const staged = &shared<unsigned char>() + operand.shared_offset;
  const unsigned char* const first =
      operand.data + position.offsets[k] + int64_t{position.row} * kSize + position.column * operand.step;
  const int row_bytes =
      static_cast<int>(::min(params.tile.column_elements - position.row, uint32_t{Shape::rows})) * kSize;
  const int num_columns =
      static_cast<int>(::min(params.rows.row_elements.divisor - position.column, uint32_t{Shape::columns}));
#pragma unroll
  for (int pass = 0; pass < (num_vectors + elementwise_threads - 1) / elementwise_threads; ++pass) {
    const int item = pass * elementwise_threads + static_cast<int>(threadIdx.x);
    const int column = item / vectors_per_run, at = item % vectors_per_run * vector_bytes;
    if (column >= num_columns || at >= row_bytes) continue;
    const unsigned char* const src = first + column * operand.step + at;
    async_copy_vector_head(
        staged + column * aligned_run_bytes(Shape::rows, kSize) + (at ^ (column / kN % line_vectors * vector_bytes)),
        src, operand.end - src);
  }
}

// The packs of a thread's rows from shared memory: kN runs of `rows_per_word` neighbours along the rows, transposed.
template <int kN, int kSize, class Packs>
__device__ __forceinline__ void gather_aligned(const unsigned char* staged, const TileThread<kN>& thread, int input,
                                               Packs& packs) {
  using Shape = ElementwiseTileShape<kN>;
  constexpr int run = Shape::rows_per_word, pitch = aligned_run_bytes(Shape::rows, kSize);
  const unsigned char* const columns = staged + thread.pack * (kN * pitch);
#pragma unroll
  for (int first = 0; first < Shape::rows_per_thread; first += run) {
    const unsigned char* const here =
        columns + (thread.row(first) * kSize ^ (thread.pack % line_vectors * vector_bytes));
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

// The blocks of an SM: a thread holds the packs of four rows of every input in registers. Packs of 8 elements need 46
// registers for the transposition alone.
template <int kN, class Factory, int kInputs>
constexpr int tile_resident_blocks = kInputs == 1   ? (kN != 8 && resident_blocks<Factory> > 5 ? 6 : 5)
                                     : kInputs == 2 ? 4
                                                    : 3;

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads,
                                  fitting_blocks(elementwise_threads, tile_resident_blocks<kN, Factory, sizeof...(In)>))
    elementwise_aligned_tiles(const __grid_constant__ GridConstant<StridedElementwiseParams<1 + sizeof...(In)>> params,
                              const Factory factory) {
  launch_dependent_grids();
  constexpr int num_inputs = static_cast<int>(sizeof...(In));
  using Shape = ElementwiseTileShape<kN>;
  using Work = PackWork<kN, 1, Out, In...>;
  const TilePosition<1 + num_inputs> position = locate_tile(params, blockIdx.x, Shape::rows, Shape::columns);
  const TileThread<kN> thread;
  const uint32_t column = position.column + static_cast<uint32_t>(thread.pack * kN);
  const bool has_columns = column < params.rows.row_elements.divisor;
  const auto has_row = [&](int r) {
    return has_columns && position.row + static_cast<uint32_t>(thread.row(r)) < params.tile.column_elements;
  };
  const auto locate = [&](int k, int r) {
    return params.operands[k].data + position.offsets[k] +
           (position.row + thread.row(r)) * params.operands[k].row_stride + column * params.operands[k].step;
  };
  wait_on_dependent_grids();
  const auto is_staged = [&](int k) { return params.operands[k].access == ElementwiseAccess::staged; };
  for_each_input_if<In...>(params.operands, is_staged, [&]<int k, int bytes>(Constant<k>, Constant<bytes>) {
    stage_aligned<kN, bytes>(params, position, k);
  });
  // A single element is repeated after the barrier. A selection here would wait for each row's load before the next
  // one.
  uint32_t packs[Shape::rows_per_thread][num_inputs][PackWords<kN, In...>::whole];
  const auto is_loaded = [&](int k) { return !is_staged(k); };
  for_each_input_if<In...>(params.operands, is_loaded, [&]<int k, int bytes>(Constant<k>, Constant<bytes>) {
#pragma unroll
    for (int r = 0; r < Shape::rows_per_thread; ++r)
      if (has_row(r)) load_unrepeated<kN, bytes>(params.operands[k], locate(k, r), packs[r][k - 1]);
  });
  async_copy_wait();
  __syncthreads();
  const auto is_unfinished = [&](int k) { return params.operands[k].access != ElementwiseAccess::aligned; };
  for_each_input_if<In...>(params.operands, is_unfinished, [&]<int k, int bytes>(Constant<k>, Constant<bytes>) {
    if (is_staged(k)) {
      gather_aligned<kN, bytes>(&shared<unsigned char>() + params.operands[k].shared_offset, thread, k - 1, packs);
      return;
    }
#pragma unroll
    for (int r = 0; r < Shape::rows_per_thread; ++r) pack::repeat<kN, bytes>(packs[r][k - 1]);
  });
  const auto functor = factory();
  // A loop, for one copy of the functor's code. The packs move up, so that they stay in registers.
#pragma unroll 1
  for (int r = 0; r < Shape::rows_per_thread; ++r) {
    if (has_row(r)) {
      uint32_t out[Work::out_words];
      Work::compute(params.operands, functor, 1, packs[0], out);
      Out::with_size(params.operands[0],
                     [&]<int bytes>(Constant<bytes>) { pack::store<kN * bytes>(locate(0, r), out); });
    }
#pragma unroll
    for (int q = 0; q + 1 < Shape::rows_per_thread; ++q)
#pragma unroll
      for (int k = 0; k < num_inputs; ++k)
#pragma unroll
        for (int w = 0; w < PackWords<kN, In...>::whole; ++w) packs[q][k][w] = packs[q + 1][k][w];
  }
}

}  // namespace flowk::detail
