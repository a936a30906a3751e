// SPDX-License-Identifier: Apache-2.0
// PReLU backward, channels last, in packs of whole channels.
#pragma once

#include "core/grid_order.cuh"
#include "core/shared.cuh"
#include "prelu/prelu_gradients.cuh"
#ifndef FLOWK_SIMT
#include "prelu/prelu_cluster.cuh"
#endif

namespace flowk {

// dx[r, c] = x[r, c] > 0 ? dy[r, c] : alpha[c] * dy[r, c]
// sums[s, c] = sum of (x > 0 ? 0 : dy * x) over the rows r of slab s   x, dy, dx (rows, channels)
// A block takes a slab of rows and a tile of channels, a warp 4 of the rows at a time; a thread keeps its pack of
// channels and has kRows packs of x and of dy under way at once. The rows of a warp are summed up by shuffles, the
// warps through shared memory, (warps, tile_channels). With kCluster neighbouring slabs are a cluster, whose first
// block receives all sums and has the only place for them. All packs exist and are aligned.
template <class T, class A, bool kCluster, int kRows>
__global__ void __launch_bounds__(max_prelu_threads) prelu_channels(const __grid_constant__ ChannelParams params) {
  constexpr int V = pack_elements<T>;
  constexpr int tile_channels = channel_tile_packs * V;
  constexpr int max_warps = max_prelu_threads / 32;
  using Sum = ComputeType<T>;
  Sum* tile_sums = &shared<Sum>();
  const int num_warps = static_cast<int>(blockDim.x) >> 5,
            tile_rows = static_cast<int>(blockDim.x) / channel_tile_packs;
  uint32_t group = blockIdx.x;  // of the slabs whose sums end in one place
#ifndef FLOWK_SIMT
  Sum* exchange = tile_sums + num_warps * tile_channels;
  if constexpr (kCluster) {
    begin_cluster_exchange<Sum>(exchange);
    group = cluster_index();
  }
#endif
  allow_next_grid();
  const uint32_t tile = take_index(&group, params.num_tiles);
  int64_t slab = group;
#ifndef FLOWK_SIMT
  if constexpr (kCluster) slab = slab * cluster_blocks() + cluster_rank();
#endif
  const int pack = static_cast<int>(threadIdx.x) % channel_tile_packs;
  const uint32_t column = tile * channel_tile_packs + static_cast<uint32_t>(pack);
  const int64_t slab_row = slab * params.rows_per_slab;
  const int64_t remaining = params.num_rows - slab_row;
  const int num_rows = column >= static_cast<uint32_t>(params.row_packs) ? 0
                       : remaining < params.rows_per_slab                ? static_cast<int>(remaining)
                                                                         : params.rows_per_slab;
  int row = static_cast<int>(threadIdx.x) / channel_tile_packs;
  int64_t place = (slab_row + row) * params.row_packs + column;  // in packs
  const uint4* dys = static_cast<const uint4*>(params.tensors.dy);
  const uint4* xs = static_cast<const uint4*>(params.tensors.x);
  wait_for_previous_grid();

  Sum sums[V] = {};
  if (row < num_rows) {
    uint4 x[kRows] = {}, dy[kRows] = {};
    const auto load_rows = [&] {
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (row + k * tile_rows < num_rows) {
          x[k] = xs[place + k * params.step_packs];
          dy[k] = dys[place + k * params.step_packs];
        }
    };
    load_rows();
    const PackAlphas<T, A> alphas = load_alphas<T, A, uint32_t>(params.tensors.alpha, AlphaAccess::vector_per_pack,
                                                                column * V, 0, params.tensors.grid);
#pragma unroll 1
    while (true) {
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (row + k * tile_rows < num_rows)
          differentiate_pack<T, A, true>(params.tensors, (place + k * params.step_packs) * V, dy[k], x[k], alphas,
                                         sums);
      row += kRows * tile_rows;
      place += kRows * params.step_packs;
      if (row >= num_rows) break;
      load_rows();
    }
  }
  if (params.sums == nullptr) return;

  constexpr int steps = 2, kept = V >> steps > 0 ? V >> steps : 1;
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  const int first = pack * V + sum_values_over_lanes<steps>(sums, lane);
#pragma unroll
  for (int j = 0; j < kept; ++j) tile_sums[warp * tile_channels + first + j] = sums[j];
#ifndef FLOWK_SIMT
  if constexpr (kCluster) wait_for_cluster_start();
#endif
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  const int64_t channel = static_cast<int64_t>(tile) * tile_channels + c;
  const bool exists = c < tile_channels && channel < params.num_channels;
  const auto finish = [&](Sum sum) {
    if (params.is_dalpha)
      static_cast<A*>(params.sums)[channel] = convert<A>(sum);
    else
      static_cast<Sum*>(params.sums)[group * params.num_channels + channel] = sum;
  };
  Sum sum = 0;
  if (exists) {
    Sum of_warps[max_warps];
#pragma unroll
    for (int w = 0; w < max_warps; ++w) of_warps[w] = w < num_warps ? tile_sums[w * tile_channels + c] : Sum{0};
#pragma unroll
    for (int w = 0; w < max_warps; ++w) sum += of_warps[w];
  }
  if constexpr (!kCluster) {
    if (exists) finish(sum);
  } else {
#ifndef FLOWK_SIMT
    if (exists) send_to_first_block<Sum>(exchange, cluster_rank() * tile_channels + static_cast<uint32_t>(c), sum);
    if (cluster_rank() != 0) return;
    const int64_t channels_left = params.num_channels - static_cast<int64_t>(tile) * tile_channels;
    const uint32_t num_channels = channels_left < tile_channels ? static_cast<uint32_t>(channels_left) : tile_channels;
    const uint32_t num_blocks = cluster_blocks();
    const Sum* received = receive_from_cluster<Sum>(exchange, num_blocks * num_channels);
    if (!exists) return;
    sum = 0;
    for (uint32_t rank = 0; rank < num_blocks; ++rank) sum += received[rank * tile_channels + static_cast<uint32_t>(c)];
    finish(sum);
#endif
  }
}

}  // namespace flowk
