// SPDX-License-Identifier: Apache-2.0
// PReLU backward where a block, or a cluster of blocks, takes all elements of its channels: one kernel finishes dalpha.
#pragma once

#include "core/cluster_exchange.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "prelu/kernels/prelu_gradients.cuh"

namespace flowk::prelu {

// The sums in shared memory that one lane adds up: first, first + step, ..., `count` in all.
struct SumRange {
  int first;
  int step;
  int count;
};

// The sums that lane `lane` adds up, over the vectors from `vector` on. Its warp sums the channel of elements [begin,
// end) of each row. If the tile is one channel, each thread has left one sum. Otherwise each has left two, for the
// channel that its vector begins in and for the next one: (tile_rows, tile_vectors, 2).
template <int kElements>
__device__ __forceinline__ SumRange range_of_lane(const ByChannelParams& params, int tile_first_vector, int begin,
                                                  int end, int vector, int lane) {
  if (params.tile_channels == 1) return {lane, 32, static_cast<int>(blockDim.x) >> 5};
  const int tile_vectors = static_cast<int>(params.tile_vectors.divisor);
  const int rows_at_once = 32 >> params.log2_vectors_at_once, row = lane >> params.log2_vectors_at_once;
  vector += lane & ((1 << params.log2_vectors_at_once) - 1);
  if (vector * kElements >= end || row >= params.tile_rows) return {0, 0, 0};
  return {2 * (row * tile_vectors + vector - tile_first_vector) + (vector * kElements < begin ? 1 : 0),
          2 * rows_at_once * tile_vectors,
          (params.tile_rows - row + rows_at_once - 1) >> (5 - params.log2_vectors_at_once)};
}

// A block takes a tile of channels and `rows_per_block` rows; thread (row, vector) steps over every tile_rows-th row.
//   dx[o, c, i] = x[o, c, i] > 0 ? dy[o, c, i] : alpha[c] * dy[o, c, i]
//   dalpha[c] = sum over o and i of (x[o, c, i] > 0 ? 0 : dy[o, c, i] * x[o, c, i])
//   x, dy, dx (outer, channels, inner), inner >= V; the channels * inner elements of one o are a row: whole vectors
// Two tiles that share a vector both read it, and the tile that it begins in stores it. The threads leave their sums in
// shared memory, where each warp sums one channel. With kCluster the blocks of one tile are a cluster, and its first
// block receives all sums. kRows vectors of x and of dy are in flight per thread: 3 leave registers for two blocks of
// 512 threads.
template <class T, int kRows, bool kCluster>
__global__ void __launch_bounds__(max_backward_threads, fitting_blocks(max_backward_threads, kRows == 3 ? 2 : 0))
    by_channel(const __grid_constant__ GridConstant<ByChannelParams> params) {
  if constexpr (kCluster && is_below_sm_90) return;
  constexpr int V = vector_width<T>;
  using Sum = ComputeType<T>;
  const BackwardTensors& tensors = params.tensors;
  Sum* sums = &shared<Sum>();
  const ClusterExchange<Sum> exchange = {reinterpret_cast<unsigned char*>(sums + params.num_sums)};
  uint32_t tile = blockIdx.x, row_block = 0;
  if constexpr (kCluster) {
    if (threadIdx.x == 0) exchange.barrier().init(1);
    arrive_at_cluster();
    tile >>= params.log2_cluster_blocks;
    row_block = cluster_rank();
  }
  launch_dependent_grids();
  uint32_t thread_row = threadIdx.x;
  const int in_tile = static_cast<int>(take_index(&thread_row, params.tile_vectors));
  const int first_channel = static_cast<int>(tile) * params.tile_channels;
  const int remaining_channels = params.channels - first_channel;
  const int num_channels = remaining_channels < params.tile_channels ? remaining_channels : params.tile_channels;
  const int first_element = first_channel * params.inner;
  const int first_vector = first_element / V, vector = first_vector + in_tile;
  const bool is_in_tile =
      static_cast<int>(thread_row) < params.tile_rows && vector * V < first_element + num_channels * params.inner;
  const bool is_stored = tensors.dx != nullptr && vector * V >= first_element;
  const int first_row = static_cast<int>(row_block) * params.rows_per_block;
  int row = first_row + static_cast<int>(thread_row);
  const int row_end =
      first_row + params.rows_per_block < params.outer ? first_row + params.rows_per_block : params.outer;
  int64_t offset = static_cast<int64_t>(row) * params.row_vectors + vector;  // in vectors
  const uint4* dys = static_cast<const uint4*>(tensors.dy);
  const uint4* xs = static_cast<const uint4*>(tensors.x);
  const T* alphas = static_cast<const T*>(tensors.alpha);
  uint4 x[kRows] = {}, dy[kRows] = {};
  const auto load_rows = [&] {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (is_in_tile && row + k * params.tile_rows < row_end) {
        x[k] = xs[offset + k * params.step_vectors];
        dy[k] = dys[offset + k * params.step_vectors];
      }
  };
  wait_on_dependent_grids(xs + offset);

  load_rows();
  // Computed while the loads are in flight.
  const int channel = static_cast<int>(params.by_inner.divide(static_cast<uint32_t>(vector * V)));
  const int left = (channel + 1) * params.inner - vector * V;  // elements before the next channel's
  const auto existing = [&](int c) { return c < params.channels ? c : params.channels - 1; };
  const VectorAlphas<T, T> vector_alphas =
      two_alphas<T, T>(alphas[existing(channel)], alphas[existing(channel + 1)], left);
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  const int begin = first_element + warp * params.inner, end = begin + params.inner;  // of the warp's channel
  SumRange range = range_of_lane<V>(params, first_vector, begin, end, begin / V, lane);
  Sum terms[V] = {};
#pragma unroll 1
  while (true) {
#pragma unroll
    for (int k = 0; k < kRows; ++k)
      if (is_in_tile && row + k * params.tile_rows < row_end) {
        const uint4 dx = gate_vector<T, T>(x[k], dy[k], vector_alphas,
                                           [&](int j, Sum one_x, Sum one_dy) { terms[j] += one_dy * one_x; });
        if (is_stored) store_vector(static_cast<uint4*>(tensors.dx) + offset + k * params.step_vectors, dx);
      }
    row += kRows * params.tile_rows;
    offset += kRows * params.step_vectors;
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
    // The first elements of a vector may be of the previous channel: then this channel's sum is next_sum.
    sums[threadIdx.x] = !is_in_tile ? Sum{0} : channel == first_channel ? sum : next_sum;
  } else if (is_in_tile) {
    sums[2 * threadIdx.x] = sum;
    sums[2 * threadIdx.x + 1] = next_sum;
  }
  if constexpr (kCluster) wait_for_cluster();
  __syncthreads();
  if (warp >= num_channels) return;
  constexpr int at_once = 8;
  Sum parts[at_once] = {};
#pragma unroll 1
  for (int next_vector = begin / V + 32;; next_vector += 32) {
#pragma unroll 1
    for (int i = 0; i < range.count; i += at_once)
#pragma unroll
      for (int k = 0; k < at_once; ++k)
        if (i + k < range.count) parts[k] += sums[range.first + (i + k) * range.step];
    if (params.tile_channels == 1 || next_vector * V >= end) break;  // else the channel has more vectors than 32
    range = range_of_lane<V>(params, first_vector, begin, end, next_vector, lane);
  }
  const Sum total = sum_over_lanes(sum_of_values(parts), warp_lanes);
  T* dalpha = static_cast<T*>(tensors.dalpha) + first_channel;
  if constexpr (!kCluster) {
    if (lane == 0) dalpha[warp] = convert<T>(total);
  } else {
    const uint32_t rank = cluster_rank();  // again: it needs no register through the loop
    if (lane == 0) exchange.send(0, rank * params.tile_channels + warp, total);
    if (rank != 0 || warp > 0) return;
    const uint32_t num_blocks = 1u << params.log2_cluster_blocks;
    if (threadIdx.x == 0)
      exchange.barrier().expect_and_arrive(static_cast<int>(num_blocks * num_channels * sizeof(Sum)));
    exchange.barrier().wait();
    if (lane >= num_channels) return;
    Sum all = 0;
    for (uint32_t i = 0; i < num_blocks; ++i) all += exchange.values()[i * params.tile_channels + lane];
    dalpha[lane] = convert<T>(all);
  }
}

}  // namespace flowk::prelu
