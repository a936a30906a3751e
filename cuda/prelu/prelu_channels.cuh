// SPDX-License-Identifier: Apache-2.0
// PReLU backward, channels last, in packs of whole channels: packs_of_columns for the commonest of its cases, in a
// fraction of its instructions.
#pragma once

#include "core/grid_order.cuh"
#include "core/shared.cuh"
#include "prelu/prelu_gradients.cuh"

namespace flowk {

// dx[r, c] = x[r, c] > 0 ? dy[r, c] : alpha[c] * dy[r, c]
// partials[s, c] = sum of (x > 0 ? 0 : dy * x) over the rows r of slab s   x, dy, dx (rows, channels)
// A block takes a slab of rows and a tile of channels; a thread keeps its pack of channels, steps over every
// tile_rows-th row and leaves a sum for each channel in shared memory, (tile_rows, sum_stride), where `lanes` threads
// sum up one channel. All packs exist and are aligned. A thread has kRows packs of x and of dy under way at once.
template <class T, class A, int kRows>
__global__ void __launch_bounds__(max_prelu_threads) prelu_channels(const __grid_constant__ ChannelParams params) {
  constexpr int V = pack_elements<T>;
  using Sum = ComputeType<T>;
  uint32_t slab = blockIdx.x;
  const uint32_t tile = take_index(&slab, params.num_tiles);
  uint32_t row = threadIdx.x;  // of the tile
  const uint32_t tile_packs = params.tile_packs.divisor;
  const uint32_t pack = take_index(&row, params.tile_packs);
  const uint32_t column = tile * tile_packs + pack;
  const int64_t slab_row = static_cast<int64_t>(slab) * params.rows_per_slab;
  const int64_t remaining = params.num_rows - slab_row;
  const int num_rows = remaining < params.rows_per_slab ? static_cast<int>(remaining) : params.rows_per_slab;
  const bool is_in_tile = row < static_cast<uint32_t>(params.tile_rows);
  int64_t place = (slab_row + row) * params.row_packs + column;  // in packs
  allow_next_grid();
  wait_for_previous_grid();

  Sum sums[V] = {};
  if (is_in_tile && column < static_cast<uint32_t>(params.row_packs)) {
    const uint4* dys = static_cast<const uint4*>(params.tensors.dy);
    const uint4* xs = static_cast<const uint4*>(params.tensors.x);
    const PackAlphas<T, A> alphas = load_alphas<T, A, uint32_t>(params.tensors.alpha, AlphaAccess::vector_per_pack,
                                                                column * V, 0, params.tensors.grid);
#pragma unroll 1
    for (int i = static_cast<int>(row); i < num_rows; i += kRows * params.tile_rows) {
      uint4 x[kRows] = {}, dy[kRows] = {};
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (i + k * params.tile_rows < num_rows) {
          x[k] = xs[place + k * params.step_packs];
          dy[k] = dys[place + k * params.step_packs];
        }
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (i + k * params.tile_rows < num_rows)
          differentiate_pack<T, A, true>(params.tensors, (place + k * params.step_packs) * V, dy[k], x[k], alphas,
                                         sums);
      place += kRows * params.step_packs;
    }
  }
  if (params.sums == nullptr) return;

  Sum* tile_sums = &shared<Sum>();
  if (is_in_tile) {
    constexpr int sums_of_chunk = chunk_bytes / static_cast<int>(sizeof(Sum));
#pragma unroll
    for (int j = 0; j < V; j += sums_of_chunk) {
      union {
        Sum sums[sums_of_chunk];
        uint4 whole;
      } chunk;
#pragma unroll
      for (int i = 0; i < sums_of_chunk; ++i) chunk.sums[i] = sums[j + i];
      *reinterpret_cast<uint4*>(tile_sums + row * params.sum_stride + pack * V + j) = chunk.whole;
    }
  }
  __syncthreads();
  const int lanes = 1 << params.log2_lanes;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int num_channels = static_cast<int>(tile_packs) * V;
  for (int first = 0; first < num_channels; first += static_cast<int>(blockDim.x) >> params.log2_lanes) {
    const int c = first + (static_cast<int>(threadIdx.x) >> params.log2_lanes);
    Sum sum = 0;
    if (c < num_channels)
#pragma unroll 4
      for (int r = lane; r < params.tile_rows; r += lanes) sum += tile_sums[r * params.sum_stride + c];
    sum = sum_over_lanes(sum, lanes);
    const int64_t channel = static_cast<int64_t>(tile) * num_channels + c;
    if (lane > 0 || c >= num_channels || channel >= params.num_channels) continue;
    if (params.is_dalpha)
      static_cast<A*>(params.sums)[channel] = convert<A>(sum);
    else
      static_cast<Sum*>(params.sums)[slab * params.num_channels + channel] = sum;
  }
}

}  // namespace flowk
