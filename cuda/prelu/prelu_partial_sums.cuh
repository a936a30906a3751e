// SPDX-License-Identifier: Apache-2.0
// Sums of the partial sums that the backward kernels of PReLU leave.
#pragma once

#include "core/convert.cuh"
#include "core/divide.h"
#include "core/grid_order.cuh"
#include "core/shared.cuh"
#include "prelu/prelu_gradients.cuh"
#include "prelu/prelu_plan.h"

namespace flowk {

// Partials that a thread has under way at once.
constexpr int partials_in_flight = 8;

// sums[c] = sum of partials[c, i] over i < run                    partials (channels, run)
// or, with kRows, the sum of partials[row, c, i] over all rows    partials (num_rows, channels, run)
// A block takes a channel. The kernel does one thing, in few instructions: where a tensor is small, fetching them is
// what a kernel's time is made of.
template <class Sum, class Out, bool kRows>
__global__ void __launch_bounds__(max_row_sum_threads) sum_near_rows(const __grid_constant__ PartialSumParams params) {
  allow_next_grid();
  const int run = static_cast<int>(params.run.divisor), num_threads = static_cast<int>(blockDim.x);
  const int num_partials = static_cast<int>(params.num_rows) * (kRows ? run : 1);
  const Sum* partials =
      static_cast<const Sum*>(params.partials) + static_cast<int64_t>(blockIdx.x) * (kRows ? run : params.num_rows);
  wait_for_previous_grid();
  Sum sums[partials_in_flight] = {};
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < num_partials; i += partials_in_flight * num_threads) {
    Sum loaded[partials_in_flight];
#pragma unroll
    for (int k = 0; k < partials_in_flight; ++k) {
      int64_t place = i + k * num_threads;
      const bool exists = place < num_partials;
      if constexpr (kRows) {
        const uint32_t row = params.run.divide(static_cast<uint32_t>(place));
        place += row * (params.row_stride - run);
      }
      loaded[k] = exists ? partials[place] : Sum{0};
    }
#pragma unroll
    for (int k = 0; k < partials_in_flight; ++k) sums[k] += loaded[k];
  }
#pragma unroll
  for (int half = partials_in_flight / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  const Sum sum = sum_over_warp(sums[0]);
  Sum* warp_sums = &shared<Sum>();
  if ((threadIdx.x & 31) == 0) warp_sums[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  Sum total = warp_sums[0];
#pragma unroll 1
  for (int warp = 1; warp < num_threads >> 5; ++warp) total += warp_sums[warp];
  static_cast<Out*>(params.sums)[blockIdx.x] = convert<Out>(total);
}

// sums[c] = sum of partials[row, c] over all rows   partials (num_rows, channels), the channels are neighbours
// A block takes `block_channels` channels, 8 or 32: a sector or a line of each row; its threads share out the rows.
template <class Sum, class Out>
__global__ void __launch_bounds__(max_row_sum_threads) sum_far_rows(const __grid_constant__ PartialSumParams params) {
  allow_next_grid();
  const int thread = static_cast<int>(threadIdx.x), lane = thread & 31, warp = thread >> 5;
  const int num_warps = static_cast<int>(blockDim.x) >> 5, num_rows = static_cast<int>(params.num_rows);
  const int block_channels = static_cast<int>(params.block_channels.divisor);
  uint32_t thread_row = threadIdx.x;
  const int tile_channel = static_cast<int>(take_index(&thread_row, params.block_channels));
  const int first_row = static_cast<int>(thread_row), rows_at_once = static_cast<int>(blockDim.x) / block_channels;
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * block_channels + tile_channel;
  const int64_t step = rows_at_once * params.row_stride;
  const bool exists = channel < params.channels;
  const Sum* partials = static_cast<const Sum*>(params.partials) + first_row * params.row_stride + channel;
  wait_for_previous_grid();
  Sum sums[partials_in_flight] = {};
#pragma unroll 1
  for (int row = first_row; row < num_rows; row += partials_in_flight * rows_at_once) {
#pragma unroll
    for (int k = 0; k < partials_in_flight; ++k)
      if (exists && row + k * rows_at_once < num_rows) sums[k] += partials[k * step];
    partials += partials_in_flight * step;
  }
#pragma unroll
  for (int half = partials_in_flight / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  for (int distance = 16; distance >= block_channels; distance /= 2)
    sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], distance);
  Sum* warp_sums = &shared<Sum>();  // (warps, block_channels)
  if (lane < block_channels) warp_sums[warp * block_channels + lane] = sums[0];
  __syncthreads();
  if (thread >= block_channels || !exists) return;
  Sum total = 0;
#pragma unroll 8
  for (int i = 0; i < num_warps; ++i) total += warp_sums[i * block_channels + lane];
  static_cast<Out*>(params.sums)[channel] = convert<Out>(total);
}

// sums[r, c] = sum of partials[row, c, i] over rows [r * rows_per_chunk, (r + 1) * rows_per_chunk) and all i
//   partials (num_rows, channels, inner), sums (chunks, channels)
// A block takes a chunk and `block_channels` channels; its threads share out the rows, then sum up by warps.
template <class Sum, class Out>
__global__ void __launch_bounds__(max_sum_threads) sum_partials(const __grid_constant__ PartialSumParams params) {
  Sum* warp_sums = &shared<Sum>();  // (warps, block_channels)
  allow_next_grid();
  uint32_t chunk = blockIdx.x;
  const uint32_t tile = take_index(&chunk, params.num_tiles);
  uint32_t thread_row = threadIdx.x;
  const uint32_t tile_channel = take_index(&thread_row, params.block_channels);
  const int block_channels = static_cast<int>(params.block_channels.divisor);
  const int rows_per_pass = static_cast<int>(blockDim.x) / block_channels;
  const int64_t channel = static_cast<int64_t>(tile) * block_channels + tile_channel;
  const int64_t row_begin = static_cast<int64_t>(chunk) * params.rows_per_chunk;
  const int64_t row_end =
      row_begin + params.rows_per_chunk < params.num_rows ? row_begin + params.rows_per_chunk : params.num_rows;
  wait_for_previous_grid();

  Sum sums[partials_in_flight] = {};
  if (channel < params.channels)
    for (int64_t i = 0; i < params.inner; ++i) {
      const Sum* partials =
          static_cast<const Sum*>(params.partials) + (channel * params.inner + i) * params.column_stride;
      for (int64_t row = row_begin + thread_row; row < row_end; row += partials_in_flight * rows_per_pass)
#pragma unroll
        for (int k = 0; k < partials_in_flight; ++k)
          if (row + k * rows_per_pass < row_end) sums[k] += partials[(row + k * rows_per_pass) * params.row_stride];
    }
#pragma unroll
  for (int half = partials_in_flight / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];

  // Lanes of one channel are block_channels apart.
  Sum sum = sums[0];
  for (int distance = 16; distance >= block_channels; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  const int lane = static_cast<int>(threadIdx.x) & 31;
  if (lane < block_channels) warp_sums[static_cast<int>(threadIdx.x >> 5) * block_channels + lane] = sum;
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= block_channels || channel >= params.channels) return;
  sum = 0;
  for (int warp = 0; warp < static_cast<int>(blockDim.x >> 5); ++warp)
    sum += warp_sums[warp * block_channels + static_cast<int>(threadIdx.x)];
  static_cast<Out*>(params.sums)[chunk * params.channels + channel] = convert<Out>(sum);
}

}  // namespace flowk
