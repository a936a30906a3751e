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

// Steps over the rows of a slab that are this thread's, from `first_row` on: stores dx, and adds up what each element
// of the pack at `column` adds to dalpha.
template <class T, class A, int kRows, bool kWhole>
__device__ __forceinline__ void differentiate_column(const ColumnParams& params, int64_t slab, int first_row,
                                                     int64_t column, ComputeType<T> (&sums)[pack_elements<T>]) {
  constexpr int V = pack_elements<T>;
  const PreluBackwardTensors& tensors = params.tensors;
  const PackGrid& grid = tensors.grid;
  const int64_t slab_row = slab * params.rows_per_slab;
  const int64_t remaining = params.num_rows - slab_row;
  const int num_rows = remaining < params.rows_per_slab ? static_cast<int>(remaining) : params.rows_per_slab;
  const int64_t step = params.row_packs * params.tile_rows * V;  // elements between a thread's rows
  int64_t first = ((slab_row + first_row) * params.row_packs + column) * V - grid.lead;
  uint4 x[kRows] = {}, dy[kRows] = {};
  const auto load_rows = [&](int row) {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (row + k * params.tile_rows < num_rows) {
        x[k] = load_pack<T, kWhole>(tensors.x, first + k * step, grid.num_elements, tensors.x_shift);
        dy[k] = load_pack<T, kWhole>(tensors.dy, first + k * step, grid.num_elements, tensors.dy_shift);
      }
  };
  // The first rows are under way before the alphas, which are waited for only where they are used.
  int row = first_row;
  load_rows(row);
  const ColumnPlace place = place_column(params, column * V);
  const PackAlphas<T, A> alphas =
      load_alphas<T, A, int64_t>(tensors.alpha, params.alpha_access, place.channel, place.in_plane, grid);
#pragma unroll 1
  while (row < num_rows) {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (row + k * params.tile_rows < num_rows) {
        differentiate_pack<T, A, kWhole>(tensors, first + k * step, dy[k], x[k], alphas, sums);
      }
    row += kRows * params.tile_rows;
    first += kRows * step;
    load_rows(row);
  }
}

// The sum over the columns of channel `c` of the tile: (lead + k * period + c * inner + i) % columns for i < inner and
// k < row_periods, where lead > 0 and row_periods > 1 only with tiles of whole rows. `lane` of threads_per_channel, who
// all come here, sums up its share; each receives the whole.
template <class Sum>
__device__ __forceinline__ Sum sum_channel(const ColumnParams& params, const Sum* part_sums, int tile_elements, int c,
                                           int lane, bool exists) {
  const PackGrid& grid = params.tensors.grid;
  const int inner = static_cast<int>(grid.inner);
  const int period = params.row_periods > 1 ? static_cast<int>(grid.channels) * inner : 0;
  const int lanes = params.threads_per_channel;
  const bool lanes_share_parts = inner < lanes;
  Sum sum = 0;
  if (exists)
    for (int k = 0; k < params.row_periods; ++k)
      for (int part = lanes_share_parts ? lane : 0; part < params.num_parts; part += lanes_share_parts ? lanes : 1)
        for (int i = lanes_share_parts ? 0 : lane; i < inner; i += lanes_share_parts ? 1 : lanes) {
          int element = grid.lead + k * period + c * inner + i;
          if (grid.lead > 0 && element >= tile_elements) element -= tile_elements;
          sum += part_sums[part * tile_elements + element];
        }
  return sum_over_lanes(sum, lanes);
}

// dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
// and, in one place for each slab of rows, the sum of (x > 0 ? 0 : dy * x) over the slab
//   x, dy, dx as (rows, row_packs) of packs; sums are of channels where a tile holds all of theirs, else of columns
// A block takes a tile of columns and a slab of rows; thread (row, column) of it steps over every tile_rows-th row and
// keeps one sum for each element of its pack. Then the tile's rows are summed up in shared memory, then its channels'
// columns. With kCluster neighbouring slabs of a tile are a cluster, whose first block receives all sums and has the
// only place for them. With kWhole all packs exist and are aligned in all tensors. A thread has kRows packs of x and of
// dy under way at once.
template <class T, class A, bool kCluster, bool kWhole, int kRows>
__global__ void __launch_bounds__(max_backward_threads) prelu_columns(const __grid_constant__ ColumnParams params) {
  constexpr int V = pack_elements<T>;
  using Sum = ComputeType<T>;
  const PreluBackwardTensors& tensors = params.tensors;
  const int tile_packs = static_cast<int>(params.tile_packs.divisor);
  const int tile_elements = tile_packs * V;
  Sum* tile_sums = &shared<Sum>();                                // (tile_rows, tile_elements)
  Sum* part_sums = tile_sums + params.tile_rows * tile_elements;  // (num_parts, tile_elements)
  uint32_t group = blockIdx.x;                                    // of the slabs whose sums end in one place
  int64_t slab = 0;
#ifndef FLOWK_SIMT
  Sum* exchange = part_sums + params.num_parts * tile_elements;
  if constexpr (kCluster) {
    begin_cluster_exchange<Sum>(exchange);
    group = cluster_index();
  }
#endif
  allow_next_grid();
  const uint32_t tile = take_index(&group, params.num_tiles);
  slab = group;
#ifndef FLOWK_SIMT
  if constexpr (kCluster) slab = slab * cluster_blocks() + cluster_rank();
#endif
  uint32_t tile_row = threadIdx.x;
  const uint32_t tile_pack = take_index(&tile_row, params.tile_packs);
  const int64_t column = static_cast<int64_t>(tile) * tile_packs + tile_pack;
  const bool is_in_tile = tile_row < static_cast<uint32_t>(params.tile_rows);

  Sum sums[V] = {};
  wait_for_previous_grid();
  if (is_in_tile && column < params.row_packs)
    differentiate_column<T, A, kRows, kWhole>(params, slab, static_cast<int>(tile_row), column, sums);
  if (tensors.dalpha == nullptr && tensors.partials == nullptr) return;

  // Rows of the tile: every num_parts-th into one part.
  if (is_in_tile) {
    constexpr int num_chunks = V * static_cast<int>(sizeof(Sum)) / chunk_bytes;
    union {
      Sum sums[V];
      uint4 chunks[num_chunks];
    } packed;
#pragma unroll
    for (int j = 0; j < V; ++j) packed.sums[j] = sums[j];
#pragma unroll
    for (int i = 0; i < num_chunks; ++i)
      reinterpret_cast<uint4*>(tile_sums)[threadIdx.x * num_chunks + i] = packed.chunks[i];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < params.num_parts * tile_elements; i += static_cast<int>(blockDim.x)) {
    Sum sum = 0;
#pragma unroll 4
    for (int place = i; place < params.tile_rows * tile_elements; place += params.num_parts * tile_elements)
      sum += tile_sums[place];
    part_sums[i] = sum;
  }
  __syncthreads();

  if (params.tile_channels == 0) {
    const int64_t num_columns = params.row_packs * V;
    Sum* partials = static_cast<Sum*>(tensors.partials) + slab * num_columns;
    for (int e = static_cast<int>(threadIdx.x); e < tile_elements; e += static_cast<int>(blockDim.x)) {
      const int64_t element = static_cast<int64_t>(tile) * tile_elements + e;
      Sum sum = 0;
      for (int part = 0; part < params.num_parts; ++part) sum += part_sums[part * tile_elements + e];
      if (element < num_columns) partials[element] = sum;
    }
    return;
  }

  const int64_t first_channel = static_cast<int64_t>(tile) * params.tile_channels;
  const int64_t remaining = tensors.grid.channels - first_channel;
  const int num_channels = remaining < params.tile_channels ? static_cast<int>(remaining) : params.tile_channels;
  const auto finish = [&](int c, Sum sum) {
    if (tensors.dalpha != nullptr)
      static_cast<A*>(tensors.dalpha)[first_channel + c] = convert<A>(sum);
    else
      static_cast<Sum*>(tensors.partials)[group * tensors.grid.channels + first_channel + c] = sum;
  };
#ifndef FLOWK_SIMT
  if constexpr (kCluster) wait_for_cluster_start();
#endif
  const int lane = static_cast<int>(threadIdx.x) % params.threads_per_channel;
  const int channels_per_pass = static_cast<int>(blockDim.x) / params.threads_per_channel;
  for (int pass = 0; pass < num_channels; pass += channels_per_pass) {
    const int c = pass + static_cast<int>(threadIdx.x) / params.threads_per_channel;
    const Sum sum = sum_channel<Sum>(params, part_sums, tile_elements, c, lane, c < num_channels);
    if (c >= num_channels || lane > 0) continue;
#ifndef FLOWK_SIMT
    if constexpr (kCluster) {
      send_to_first_block<Sum>(exchange, cluster_rank() * params.tile_channels + c, sum);
      continue;
    }
#endif
    finish(c, sum);
  }
#ifndef FLOWK_SIMT
  if constexpr (kCluster) {
    if (cluster_rank() != 0) return;
    const uint32_t num_blocks = cluster_blocks();
    const Sum* received = receive_from_cluster<Sum>(exchange, num_blocks * static_cast<uint32_t>(num_channels));
    for (int c = static_cast<int>(threadIdx.x); c < num_channels; c += static_cast<int>(blockDim.x)) {
      Sum sum = 0;
      for (uint32_t rank = 0; rank < num_blocks; ++rank) sum += received[rank * params.tile_channels + c];
      finish(c, sum);
    }
  }
#endif
}

}  // namespace flowk
