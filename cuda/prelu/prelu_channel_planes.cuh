// SPDX-License-Identifier: Apache-2.0
// PReLU backward where blocks, or clusters of blocks, hold all planes of their channels: dalpha needs no second kernel.
#pragma once

#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "prelu/prelu_gradients.cuh"
#ifndef FLOWK_SIMT
#include "prelu/prelu_cluster.cuh"
#endif

namespace flowk::prelu {

// Sums in shared memory that a thread adds up: every `step`-th from `first` on, `count` of them.
struct SumWalk {
  int first;
  int step;
  int count;
};

// Those of lane `lane` of the warp that sums up the channel whose elements in a row are [begin, end), in the packs from
// `pack` on. A thread leaves one sum where the tile is one channel; else two, of the channel its pack begins in and of
// the next: (tile_rows, tile_packs, 2).
template <int kElements>
__device__ __forceinline__ SumWalk walk_of_lane(const ChannelPlaneParams& params, int tile_first_pack, int begin,
                                                int end, int pack, int lane) {
  if (params.tile_channels == 1) return {lane, 32, static_cast<int>(blockDim.x) >> 5};
  const int tile_packs = static_cast<int>(params.tile_packs.divisor);
  const int rows_at_once = 32 >> params.log2_packs_at_once, row = lane >> params.log2_packs_at_once;
  pack += lane & ((1 << params.log2_packs_at_once) - 1);
  if (pack * kElements >= end || row >= params.tile_rows) return {0, 0, 0};
  return {2 * (row * tile_packs + pack - tile_first_pack) + (pack * kElements < begin ? 1 : 0),
          2 * rows_at_once * tile_packs,
          (params.tile_rows - row + rows_at_once - 1) >> (5 - params.log2_packs_at_once)};
}

// dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
// dalpha[c] = sum over o and i of (x[o, c, i] > 0 ? 0 : dy[o, c, i] * x[o, c, i])
//   x, dy, dx (outer, channels, inner); a row is what one o has, whole packs; inner >= V
// A block takes `tile_channels` neighbouring channels and `rows_per_slab` rows; thread (row, pack) steps over every
// tile_rows-th row. A pack that two tiles share is read by both and stored by the one that it begins in. The threads'
// sums meet in shared memory, where a warp sums up one channel. Slabs of a tile are a cluster, whose first block
// receives all sums. A thread has kRows packs of x and of dy under way at once.
template <class T, int kRows>
__global__ void __launch_bounds__(max_backward_threads, kRows == 3 ? 2 : 0)
    prelu_planes_of_channels(const __grid_constant__ ChannelPlaneParams params) {
  constexpr int V = pack_elements<T>;
  using A = T;
  using Sum = ComputeType<T>;
  const PreluBackwardTensors& tensors = params.tensors;
  Sum* sums = &shared<Sum>();
  const int log2_slabs = params.log2_num_slabs;
  uint32_t tile = blockIdx.x, slab = 0;
#ifndef FLOWK_SIMT
  if (log2_slabs > 0) {
    begin_cluster_exchange<Sum>(sums + params.num_sums);
    tile >>= log2_slabs;
    slab = cluster_rank();
  }
#endif
  launch_dependent_grids();
  uint32_t thread_row = threadIdx.x;
  const int slot = static_cast<int>(take_index(&thread_row, params.tile_packs));
  const int first_channel = static_cast<int>(tile) * params.tile_channels;
  const int remaining_channels = params.channels - first_channel;
  const int num_channels = remaining_channels < params.tile_channels ? remaining_channels : params.tile_channels;
  const int first_element = first_channel * params.inner;
  const int first_pack = first_element / V, pack = first_pack + slot;
  const bool is_in_tile =
      static_cast<int>(thread_row) < params.tile_rows && pack * V < first_element + num_channels * params.inner;
  const bool is_stored = tensors.dx != nullptr && pack * V >= first_element;
  const int slab_row = static_cast<int>(slab) * params.rows_per_slab;
  int row = slab_row + static_cast<int>(thread_row);
  const int row_end = slab_row + params.rows_per_slab < params.outer ? slab_row + params.rows_per_slab : params.outer;
  int64_t place = static_cast<int64_t>(row) * params.row_packs + pack;  // in packs
  const uint4* dys = static_cast<const uint4*>(tensors.dy);
  const uint4* xs = static_cast<const uint4*>(tensors.x);
  const A* alphas = static_cast<const A*>(tensors.alpha);
  uint4 x[kRows] = {}, dy[kRows] = {};
  const auto load_rows = [&] {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (is_in_tile && row + k * params.tile_rows < row_end) {
        x[k] = xs[place + k * params.step_packs];
        dy[k] = dys[place + k * params.step_packs];
      }
  };
  wait_on_dependent_grids(xs + place);

  load_rows();
  // What is needed once the packs are there is made while they are under way.
  const int channel = static_cast<int>(params.by_inner.divide(static_cast<uint32_t>(pack * V)));
  const int left = (channel + 1) * params.inner - pack * V;  // elements before the next channel's
  const auto existing = [&](int c) { return c < params.channels ? c : params.channels - 1; };
  const PackAlphas<T, A> pack_alphas = two_alphas<T, A>(alphas[existing(channel)], alphas[existing(channel + 1)], left);
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  const int begin = first_element + warp * params.inner, end = begin + params.inner;  // of the channel to sum up
  SumWalk walk = walk_of_lane<V>(params, first_pack, begin, end, begin / V, lane);
  Sum terms[V] = {};
#pragma unroll 1
  while (true) {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (is_in_tile && row + k * params.tile_rows < row_end) {
        const uint4 dx = gate_pack<T, A>(x[k], dy[k], pack_alphas,
                                         [&](int j, Sum one_x, Sum one_dy) { terms[j] += one_dy * one_x; });
        if (is_stored) store_vector(static_cast<uint4*>(tensors.dx) + place + k * params.step_packs, dx);
      }
    row += kRows * params.tile_rows;
    place += kRows * params.step_packs;
    if (row >= row_end) break;
    load_rows();
  }

  Sum sum = 0, next_sum = 0;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    sum += j < left ? terms[j] : Sum{0};
    next_sum += j < left ? Sum{0} : terms[j];
  }
  if (params.tile_channels == 1) {
    // A pack that begins in the channel before has its first elements there.
    sums[threadIdx.x] = !is_in_tile ? Sum{0} : channel == first_channel ? sum : next_sum;
  } else if (is_in_tile) {
    sums[2 * threadIdx.x] = sum;
    sums[2 * threadIdx.x + 1] = next_sum;
  }
#ifndef FLOWK_SIMT
  if (log2_slabs > 0) wait_for_cluster_start();
#endif
  __syncthreads();
  if (warp >= num_channels) return;
  constexpr int at_once = 8;
  Sum parts[at_once] = {};
#pragma unroll 1
  for (int next_pack = begin / V + 32;; next_pack += 32) {
#pragma unroll 1
    for (int i = 0; i < walk.count; i += at_once)
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (i + k < walk.count) parts[k] += sums[walk.first + (i + k) * walk.step];
    if (params.tile_channels == 1 || next_pack * V >= end) break;  // else the channel has more packs than a warp lanes
    walk = walk_of_lane<V>(params, first_pack, begin, end, next_pack, lane);
  }
#pragma unroll
  for (int half = at_once / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) parts[k] += parts[k + half];
  const Sum total = sum_over_warp(parts[0]);
  A* dalpha = static_cast<A*>(tensors.dalpha) + first_channel;
  if (log2_slabs == 0) {
    if (lane == 0) dalpha[warp] = convert<A>(total);
  } else {
#ifndef FLOWK_SIMT
    Sum* exchange = sums + params.num_sums;
    const uint32_t rank = cluster_rank();  // read again: held through the loop it would not fit the registers
    if (lane == 0) send_to_first_block<Sum>(exchange, rank * params.tile_channels + warp, total);
    if (rank != 0 || warp > 0) return;
    const uint32_t num_slabs = 1u << log2_slabs;
    const Sum* received = receive_from_cluster<Sum>(exchange, num_slabs * static_cast<uint32_t>(num_channels));
    if (lane >= num_channels) return;
    Sum all = 0;
    for (uint32_t i = 0; i < num_slabs; ++i) all += received[i * params.tile_channels + lane];
    dalpha[lane] = convert<A>(all);
#endif
  }
}

}  // namespace flowk::prelu
