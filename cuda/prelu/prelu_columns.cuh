// SPDX-License-Identifier: Apache-2.0
// PReLU backward by columns of packs: for planes shorter than a pack (channels last), and for small tensors, whose sums
// then need no other kernel.
#pragma once

#include "core/grid_order.cuh"
#include "core/shared.cuh"
#include "prelu/prelu_gradients.cuh"
#ifndef FLOWK_SIMT
#include "prelu/prelu_cluster.cuh"
#endif

namespace flowk {

// Rows whose loads a thread has under way at once.
constexpr int rows_in_flight = 2;
constexpr int cluster_rows_in_flight = 4;

// The channel of a pack's first element, and where in its plane that is: the pack begins at element `position` of a
// row.
struct ColumnPlace {
  int64_t channel;
  int64_t in_plane;
};

__device__ __forceinline__ ColumnPlace place_column(const ColumnParams& params, int64_t position) {
  const PackGrid& grid = params.tensors.grid;
  const int64_t period = grid.channels * grid.inner;
  position += grid.phase;
  while (position >= period) position -= period;  // row_periods times or less often
  if (grid.inner == 1) return {position, 0};
  const int64_t channel = static_cast<int64_t>(grid.by_inner_wide.divide(static_cast<uint64_t>(position)));
  return {channel, position - channel * grid.inner};
}

// dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
// and, in one place for each slab of rows, the sum of (x > 0 ? 0 : dy * x) over the slab
//   x, dy, dx as (rows, row_packs) of packs; sums are of channels where a tile holds all of theirs, else of columns
// A block takes a tile of columns and a slab of rows; thread (row, column) of it steps over every tile_rows-th row and
// keeps one sum for each element of its pack. Then the tile's rows are summed up in shared memory, then its channels'
// columns. With kCluster the slabs of a tile are one cluster: its first block receives all sums and writes dalpha.
template <class T, class A, bool kCluster>
__global__ void __launch_bounds__(max_backward_threads) prelu_columns(const __grid_constant__ ColumnParams params) {
  constexpr int V = pack_elements<T>;
  constexpr int kRows = kCluster ? cluster_rows_in_flight : rows_in_flight;
  using Sum = ComputeType<T>;
  const PreluBackwardTensors& tensors = params.tensors;
  const PackGrid& grid = tensors.grid;
  Sum* tile_sums = &shared<Sum>();  // (tile_rows, tile_packs * V)
  const int tile_packs = static_cast<int>(params.tile_packs.divisor);
  const int tile_elements = tile_packs * V;
  uint32_t tile, slab = blockIdx.x;
  if constexpr (kCluster) {
#ifndef FLOWK_SIMT
    begin_cluster_exchange<Sum>(tile_sums + params.tile_rows * tile_elements);
    slab = cluster_rank();
    tile = cluster_index();
#endif
  } else {
    allow_next_grid();
    tile = take_index(&slab, params.num_tiles);
  }
  uint32_t tile_row = threadIdx.x;
  const uint32_t tile_pack = take_index(&tile_row, params.tile_packs);
  const int64_t column = static_cast<int64_t>(tile) * tile_packs + tile_pack;
  const bool is_active = tile_row < static_cast<uint32_t>(params.tile_rows) && column < params.row_packs;

  Sum sums[V] = {};
  if (is_active) {
    const ColumnPlace place = place_column(params, column * V);
    const PackAlphas<T> alphas =
        load_alphas<T, A>(tensors.alpha, params.alpha_access, place.channel, place.in_plane, grid);
    const int64_t slab_row = static_cast<int64_t>(slab) * params.rows_per_slab;
    const int64_t remaining = params.num_rows - slab_row;
    const int num_rows = remaining < params.rows_per_slab ? static_cast<int>(remaining) : params.rows_per_slab;
    const int64_t step = params.row_packs * params.tile_rows * V;  // elements between a thread's rows
    int64_t first = ((slab_row + tile_row) * params.row_packs + column) * V - grid.lead;
#pragma unroll 1
    for (int row = static_cast<int>(tile_row); row < num_rows; row += kRows * params.tile_rows) {
      ElementPack<T> x[kRows], dy[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (row + k * params.tile_rows < num_rows) {
          x[k] = load_pack<T>(tensors.x, first + k * step, grid.num_elements, tensors.x_shift);
          dy[k] = load_pack<T>(tensors.dy, first + k * step, grid.num_elements, tensors.dy_shift);
        }
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (row + k * params.tile_rows < num_rows) {
          Sum terms[V];
          differentiate_pack<T>(tensors, first + k * step, dy[k], x[k], alphas, terms);
#pragma unroll
          for (int j = 0; j < V; ++j) sums[j] += terms[j];
        }
      first += kRows * step;
    }
  }
  if (tensors.dalpha == nullptr && tensors.partials == nullptr) return;

  // Rows of the tile: the upper half is added to the lower one until one is left.
  Sum* own_sums = tile_sums + threadIdx.x * V;
  const bool is_in_tile = tile_row < static_cast<uint32_t>(params.tile_rows);
  if (is_in_tile)
#pragma unroll
    for (int j = 0; j < V; ++j) own_sums[j] = sums[j];
  for (int rows = params.tile_rows; rows > 1; rows = (rows + 1) / 2) {
    const int half = (rows + 1) / 2;
    __syncthreads();
    if (static_cast<int>(tile_row) < rows / 2)
#pragma unroll
      for (int j = 0; j < V; ++j) own_sums[j] += own_sums[half * tile_elements + j];
  }
  __syncthreads();

  if (params.tile_channels == 0) {
    const int64_t num_columns = params.row_packs * V;
    for (int e = static_cast<int>(threadIdx.x); e < tile_elements; e += static_cast<int>(blockDim.x)) {
      const int64_t element = static_cast<int64_t>(tile) * tile_elements + e;
      if (element < num_columns) static_cast<Sum*>(tensors.partials)[slab * num_columns + element] = tile_sums[e];
    }
    return;
  }

  // Channel c of the tile has the columns (lead + k * period + c * inner + i) % tile_elements, of all that a row has.
  const int lane = static_cast<int>(threadIdx.x) % params.threads_per_channel;
  const int inner = static_cast<int>(grid.inner);
  const int period = params.row_periods > 1 ? static_cast<int>(grid.channels) * inner : 0;
  const int wrap = static_cast<int>(params.row_packs) * V;  // read only where the tile is the whole row
  const int64_t tile_channel = static_cast<int64_t>(tile) * params.tile_channels;
  const int num_channels = grid.channels - tile_channel < params.tile_channels
                               ? static_cast<int>(grid.channels - tile_channel)
                               : params.tile_channels;
#ifndef FLOWK_SIMT
  if constexpr (kCluster) wait_for_cluster_start();
#endif
  const int channels_per_pass = static_cast<int>(blockDim.x) / params.threads_per_channel;
  for (int pass = 0; pass < num_channels; pass += channels_per_pass) {
    const int c = pass + static_cast<int>(threadIdx.x) / params.threads_per_channel;
    Sum sum = 0;
    if (c < num_channels)
      for (int k = 0; k < params.row_periods; ++k)
        for (int i = lane; i < inner; i += params.threads_per_channel) {
          int e = grid.lead + k * period + c * inner + i;
          if (grid.lead > 0 && e >= wrap) e -= wrap;
          sum += tile_sums[e];
        }
    sum = sum_over_lanes(sum, params.threads_per_channel);
    if (c < num_channels && lane == 0) {
      if constexpr (kCluster) {
#ifndef FLOWK_SIMT
        send_to_first_block<Sum>(tile_sums + params.tile_rows * tile_elements, slab * params.tile_channels + c, sum);
#endif
      } else if (tensors.dalpha != nullptr) {
        static_cast<A*>(tensors.dalpha)[tile_channel + c] = convert<A>(sum);
      } else {
        static_cast<Sum*>(tensors.partials)[slab * grid.channels + tile_channel + c] = sum;
      }
    }
  }
  if constexpr (kCluster) {
#ifndef FLOWK_SIMT
    if (slab != 0) return;
    const uint32_t num_slabs = cluster_blocks();
    const Sum* received = receive_from_cluster<Sum>(tile_sums + params.tile_rows * tile_elements,
                                                    num_slabs * static_cast<uint32_t>(num_channels));
    for (int c = static_cast<int>(threadIdx.x); c < num_channels; c += static_cast<int>(blockDim.x)) {
      Sum sum = 0;
      for (uint32_t s = 0; s < num_slabs; ++s) sum += received[s * params.tile_channels + c];
      static_cast<A*>(tensors.dalpha)[tile_channel + c] = convert<A>(sum);
    }
#endif
  }
}

}  // namespace flowk
