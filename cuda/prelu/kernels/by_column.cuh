// SPDX-License-Identifier: Apache-2.0
// PReLU backward by columns: channels last, or short planes.
#pragma once

#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "prelu/kernels/prelu_gradients.cuh"

namespace flowk::prelu {

// Stores the gradient of one element, if it is wanted, and returns the element's term of its channel's sum. A partial
// vector has one thread per element, because code for the whole vector would be more than half of the kernel.
template <class T>
__device__ __forceinline__ ComputeType<T> differentiate_one(const BackwardTensors& tensors, int64_t element, T alpha) {
  using Compute = ComputeType<T>;
  const Compute x = widen(static_cast<const T*>(tensors.x)[element]),
                dy = widen(static_cast<const T*>(tensors.dy)[element]);
  if (tensors.dx != nullptr) static_cast<T*>(tensors.dx)[element] = convert<T>(x > 0 ? dy : widen(alpha) * dy);
  return x > 0 ? Compute{0} : dy * x;
}

__device__ __forceinline__ int64_t channel_of(const ByColumnParams& params, int64_t column) {
  const VectorGrid& grid = params.tensors.grid;
  const uint64_t plane = divide<uint64_t>(static_cast<uint64_t>(column + grid.phase), grid.by_inner, grid.by_inner_wide,
                                          params.has_wide_rows);
  return static_cast<int64_t>(plane) -
         static_cast<int64_t>(divide<uint64_t>(plane, grid.by_channels, grid.by_channels_wide, params.has_wide_rows)) *
             grid.channels;
}

// Adds up the columns of a tile that have the same channel. Thread c < tile_columns has the sum of column c; column 0
// has channel `first_channel`; inner = 1.
template <class Sum>
__device__ __forceinline__ void fold_columns(const ByColumnParams& params, Sum* tile_sums, Sum sum, int tile_columns,
                                             int first_channel) {
  const int c = static_cast<int>(threadIdx.x), channels = static_cast<int>(params.tensors.grid.channels);
  if (c < tile_columns) tile_sums[c] = sum;
  __syncthreads();
  if (c >= channels) return;
  int column = c - first_channel;
  if (column < 0) column += channels;
  Sum total = 0;
#pragma unroll 8
  for (; column < tile_columns; column += channels) total += tile_sums[column];
  static_cast<Sum*>(params.sums)[c * static_cast<int64_t>(gridDim.x) + blockIdx.x] = total;
}

// A block takes `rows_per_block` rows of a tile of columns; a warp takes 4 of the rows at a time.
//   dx[r, k] = x[r, k] > 0 ? dy[r, k] : alpha[channel of k] * dy[r, k]
//   sums[b, k] = sum over the rows r of block b of (x[r, k] > 0 ? 0 : dy[r, k] * x[r, k])
//   x, dy, dx (rows, columns)
// A thread keeps its vector of columns, and kRows vectors of x and of dy are in flight. Shuffles add the rows of a
// warp, shared memory (warps, tile_columns) the warps.
template <class T, bool kGeneral>
__global__ void __launch_bounds__(max_prelu_threads, fitting_blocks(max_prelu_threads, kGeneral ? 0 : 4))
    by_column(const __grid_constant__ GridConstant<ByColumnParams> params) {
  constexpr int V = vector_width<T>, tile_columns = line_vectors * V;
  constexpr int max_warps = max_prelu_threads / 32, kRows = column_rows_in_flight(kGeneral);
  using Sum = ComputeType<T>;
  const BackwardTensors& tensors = params.tensors;
  const VectorGrid& grid = tensors.grid;
  using A = std::conditional_t<kGeneral, Sum, T>;  // of the alphas in shared memory
  unsigned char* area = &shared<unsigned char>();
  A* tile_alphas = reinterpret_cast<A*>(area);  // (tile_columns)
  Sum* tile_sums = reinterpret_cast<Sum*>(area + tile_columns * sizeof(A));
  const int num_warps = static_cast<int>(blockDim.x) >> 5, tile_rows = static_cast<int>(blockDim.x / line_vectors);
  launch_dependent_grids();
  uint32_t row_block = blockIdx.x;
  const uint32_t tile = take_index(&row_block, params.num_tiles);
  const int vector = static_cast<int>(threadIdx.x % line_vectors);
  const int64_t column = static_cast<int64_t>(tile) * line_vectors + vector;
  const int64_t first_row = static_cast<int64_t>(row_block) * params.rows_per_block;
  const bool is_column = column < params.row_vectors;
  const int64_t remaining = params.num_whole_rows + (column < params.last_row_vectors ? 1 : 0) - first_row;
  const int num_rows = !is_column                          ? 0
                       : remaining < params.rows_per_block ? static_cast<int>(remaining)
                                                           : params.rows_per_block;
  int row = static_cast<int>(threadIdx.x / line_vectors);
  int64_t offset = (first_row + row) * params.row_vectors + column;  // in vectors
  const int64_t misalignment = grid.misalignment;
  // The first vectors of the tensors; their first `misalignment` elements do not exist.
  const uint4* xs = reinterpret_cast<const uint4*>(static_cast<const T*>(tensors.x) - misalignment);
  const uint4* dys = reinterpret_cast<const uint4*>(static_cast<const T*>(tensors.dy) - misalignment);
  uint4* dxs =
      reinterpret_cast<uint4*>(reinterpret_cast<uintptr_t>(tensors.dx) - misalignment * sizeof(T));  // if it is wanted
  Sum sums[V] = {};
  uint4 x[kRows] = {}, dy[kRows] = {};
  const auto load_rows = [&] {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (row + k * tile_rows < num_rows) {
        const int64_t at = offset + k * params.step_vectors;
        if constexpr (kGeneral) {
          x[k] = load_elements<T, false>(tensors.x, at * V - misalignment, grid.num_elements, tensors.x_shift);
          dy[k] = load_elements<T, false>(tensors.dy, at * V - misalignment, grid.num_elements, tensors.dy_shift);
        } else {
          x[k] = xs[at];
          dy[k] = dys[at];
        }
      }
  };
  if (!kGeneral && offset < params.first_vector) {
    row += tile_rows;
    offset += params.step_vectors;
  }
  wait_on_dependent_grids(xs + offset);

  load_rows();
  // The thread loads the alpha of this column of the tile, and adds up its sum.
  const int c = static_cast<int>(threadIdx.x);
  const int64_t tile_column = static_cast<int64_t>(tile) * tile_columns + c;
  Sum sum = 0;
  // Each column's alpha is loaded once, while the vectors are in flight.
  if (c < tile_columns) {
    A alpha;
    with_alpha_type<T, kGeneral>(tensors.has_float_alpha, [&](auto type) {
      using Stored = typename decltype(type)::type;
      alpha = convert<A>(static_cast<const Stored*>(tensors.alpha)[channel_of(params, tile_column)]);
    });
    tile_alphas[c] = alpha;
    if constexpr (!kGeneral) {
#pragma unroll 1
      for (int i = 0; i < params.num_partial_vectors; ++i) {
        const PartialVector& partial = params.partial_vectors[i];
        const int64_t in_vector = tile_column - partial.column * V, partial_row = partial.row - first_row;
        const int64_t element = partial.row * params.row_vectors * V - misalignment + tile_column;
        if (in_vector >= 0 && in_vector < V && partial_row >= 0 && partial_row < params.rows_per_block &&
            element >= 0 && element < grid.num_elements)
          sum += differentiate_one<T>(tensors, element, alpha);
      }
    }
  }
  __syncthreads();
  const auto alphas = load_alphas<T, A, int>(tile_alphas, AlphaAccess::consecutive, vector * V, 0, grid);
#pragma unroll 1
  while (row < num_rows) {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (row + k * tile_rows < num_rows) {
        const int64_t at = offset + k * params.step_vectors;
        const uint4 dx =
            gate_vector<T, A>(x[k], dy[k], alphas, [&](int j, Sum one_x, Sum one_dy) { sums[j] += one_dy * one_x; });
        if (tensors.dx == nullptr) continue;
        if constexpr (kGeneral)
          store_elements<T, false>(tensors.dx, at * V - misalignment, grid.num_elements, dx);
        else
          store_vector(dxs + at, dx);
      }
    row += kRows * tile_rows;
    offset += kRows * params.step_vectors;
    if (row >= num_rows) break;
    load_rows();
  }
  if (params.sums == nullptr) return;

  constexpr int kept = V > 4 ? V / 4 : 1;  // sums of a lane, after the 4 lanes of a column have added theirs
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  const int first = vector * V + sum_values_over_lanes<2>(sums, lane);
#pragma unroll
  for (int j = 0; j < kept; ++j) tile_sums[warp * tile_columns + first + j] = sums[j];
  __syncthreads();
  const bool exists =
      c < tile_columns && tile_column >= params.first_column && tile_column - params.first_column < params.num_columns;
  if (exists) {
    Sum of_warps[max_warps];
#pragma unroll
    for (int w = 0; w < max_warps; ++w) of_warps[w] = w < num_warps ? tile_sums[w * tile_columns + c] : Sum{0};
#pragma unroll
    for (int w = 0; w < max_warps; ++w) sum += of_warps[w];
  }
  if (params.is_folded)
    return fold_columns(params, tile_sums, sum, tile_columns,
                        static_cast<int>(channel_of(params, static_cast<int64_t>(tile) * tile_columns)));
  if (!exists) return;
  int64_t position = tile_column - grid.misalignment;  // from the start of a period
  if (position < 0) position += params.num_columns;
  if (params.is_dalpha)
    store_alpha_gradient<T, kGeneral>(tensors, position, sum);
  else
    static_cast<Sum*>(params.sums)[row_block * params.num_columns + position] = sum;
}

}  // namespace flowk::prelu
