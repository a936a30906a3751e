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

// The sum of so many values, pairs first.
template <class Sum, int kValues>
__device__ __forceinline__ Sum sum_of_values(Sum (&values)[kValues]) {
#pragma unroll
  for (int half = kValues / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) values[k] += values[k + half];
  return values[0];
}

// Adds up partials[0], partials[step], ..., those of the rows row, row + rows_at_once, ... before `row_end`: as many at
// once as there are sums, all under way before one is used.
template <class Sum, class Row>
__device__ __forceinline__ void add_rows(const Sum* partials, int64_t step, Row row, int rows_at_once, Row row_end,
                                         Sum (&sums)[partials_in_flight]) {
#pragma unroll 1
  for (; row < row_end; row += partials_in_flight * rows_at_once) {
    Sum loaded[partials_in_flight];
#pragma unroll
    for (int k = 0; k < partials_in_flight; ++k)
      loaded[k] = row + k * rows_at_once < row_end ? partials[k * step] : Sum{0};
#pragma unroll
    for (int k = 0; k < partials_in_flight; ++k) sums[k] += loaded[k];
    partials += partials_in_flight * step;
  }
}

// Finishes `channels` sums of which each warp holds a part in its lanes `channel`, channel + channels, ...; warp 0
// returns them in its first lanes. `warp_sums` is (warps, channels); both are powers of two of at most 32. A lane of
// warp 0 takes kAtOnce of these at once.
template <int kAtOnce, class Sum>
__device__ __forceinline__ Sum sum_over_block(Sum part, int channels, Sum* warp_sums) {
  const int lane = static_cast<int>(threadIdx.x) & 31, warp = static_cast<int>(threadIdx.x) >> 5;
  const auto sum_lanes = [&] {
    for (int distance = 16; distance >= channels; distance /= 2) part += __shfl_xor_sync(0xffffffffu, part, distance);
  };
  sum_lanes();
  if (lane < channels) warp_sums[warp * channels + lane] = part;
  __syncthreads();
  if (warp > 0) return part;
  const int num_sums = static_cast<int>(blockDim.x >> 5) * channels;
  Sum parts[kAtOnce] = {};
#pragma unroll 1
  for (int i = lane; i < num_sums; i += kAtOnce * 32)
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) parts[k] += i + k * 32 < num_sums ? warp_sums[i + k * 32] : Sum{0};
  part = sum_of_values(parts);
  sum_lanes();
  return part;
}

// sums[c] = sum of partials[c, i] over i < run                    partials (channels, run)
// or, with kRows, the sum of partials[row, c, i] over all rows    partials (num_rows, channels, run)
// A block takes a channel, or each of its warps one, 2^log2_block_channels in all. The kernel does one thing, in few
// instructions: where a tensor is small, fetching them is what a kernel's time is made of.
template <class Sum, class Out, bool kRows>
__global__ void __launch_bounds__(max_row_sum_threads) sum_near_rows(const __grid_constant__ PartialSumParams params) {
  allow_next_grid();
  const bool is_warps = params.log2_block_channels > 0;
  const int run = static_cast<int>(params.run.divisor), num_threads = is_warps ? 32 : static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x) & (num_threads - 1);
  const int num_partials = static_cast<int>(params.num_rows) * (kRows ? run : 1);
  const int64_t channel = is_warps ? static_cast<int64_t>(blockIdx.x) * (blockDim.x >> 5) + (threadIdx.x >> 5)
                                   : static_cast<int64_t>(blockIdx.x);
  if (channel >= params.channels) return;
  const Sum* partials = static_cast<const Sum*>(params.partials) + channel * (kRows ? run : params.num_rows);
  Sum sums[partials_in_flight] = {};
  if constexpr (!kRows) {
    partials += thread;
    wait_for_previous_grid(partials + num_threads);
    add_rows(partials, num_threads, thread, num_threads, num_partials, sums);
  } else {
    wait_for_previous_grid(partials);
#pragma unroll 1
    for (int first = thread; first < num_partials; first += partials_in_flight * num_threads) {
      Sum loaded[partials_in_flight];
#pragma unroll
      for (int k = 0; k < partials_in_flight; ++k) {
        const int i = first + k * num_threads;
        const int64_t row = params.run.divide(static_cast<uint32_t>(i));
        loaded[k] = i < num_partials ? partials[i + row * (params.row_stride - run)] : Sum{0};
      }
#pragma unroll
      for (int k = 0; k < partials_in_flight; ++k) sums[k] += loaded[k];
    }
  }
  const Sum sum = sum_of_values(sums),
            total = is_warps ? sum_over_warp(sum) : sum_over_block<1>(sum, 1, &shared<Sum>());
  if (thread == 0) static_cast<Out*>(params.sums)[channel] = convert<Out>(total);
}

// sums[c] = sum of partials[row, c] over all rows   partials (num_rows, channels), the channels are neighbours
// A block takes 2^log2_block_channels channels, 8 or 32: a sector or a line of each row; its threads share out the
// rows.
template <class Sum, class Out>
__global__ void __launch_bounds__(max_row_sum_threads) sum_far_rows(const __grid_constant__ PartialSumParams params) {
  allow_next_grid();
  const int log2_channels = params.log2_block_channels, block_channels = 1 << log2_channels;
  const int thread = static_cast<int>(threadIdx.x), num_rows = static_cast<int>(params.num_rows);
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * block_channels + (thread & (block_channels - 1));
  const int rows_at_once = static_cast<int>(blockDim.x) >> log2_channels;
  const int64_t step = rows_at_once * params.row_stride;
  int row = thread >> log2_channels;
  const Sum* partials = static_cast<const Sum*>(params.partials) + row * params.row_stride + channel;
  if (channel >= params.channels) row = num_rows;
  wait_for_previous_grid(partials + step);
  Sum sums[partials_in_flight] = {};
  add_rows(partials, step, row, rows_at_once, num_rows, sums);
  const Sum total = sum_over_block<partials_in_flight>(sum_of_values(sums), block_channels, &shared<Sum>());
  if (thread < block_channels && channel < params.channels)
    static_cast<Out*>(params.sums)[channel] = convert<Out>(total);
}

// sums[r, c] = sum of partials[row, c, i] over rows [r * rows_per_chunk, (r + 1) * rows_per_chunk) and all i
//   partials (num_rows, channels, inner), sums (chunks, channels)
// A block takes a chunk and `block_channels` channels; its threads share out the rows, then sum up by warps.
template <class Sum, class Out>
__global__ void __launch_bounds__(max_sum_threads) sum_partials(const __grid_constant__ PartialSumParams params) {
  allow_next_grid();
  uint32_t chunk = blockIdx.x;
  const uint32_t tile = take_index(&chunk, params.num_tiles);
  const int log2_channels = params.log2_block_channels, block_channels = 1 << log2_channels;
  const int thread = static_cast<int>(threadIdx.x), rows_per_pass = static_cast<int>(blockDim.x) >> log2_channels;
  const int64_t channel = static_cast<int64_t>(tile) * block_channels + (thread & (block_channels - 1));
  const int64_t row_begin = static_cast<int64_t>(chunk) * params.rows_per_chunk;
  const int64_t row_end =
      row_begin + params.rows_per_chunk < params.num_rows ? row_begin + params.rows_per_chunk : params.num_rows;
  wait_for_previous_grid();

  Sum sums[partials_in_flight] = {};
  const int64_t row = row_begin + (thread >> log2_channels), num_columns = channel < params.channels ? params.inner : 0;
#pragma unroll 1
  for (int64_t i = 0; i < num_columns; ++i)
    add_rows(static_cast<const Sum*>(params.partials) + row * params.row_stride +
                 (channel * params.inner + i) * params.column_stride,
             rows_per_pass * params.row_stride, row, rows_per_pass, row_end, sums);
  const Sum sum = sum_over_block<partials_in_flight>(sum_of_values(sums), block_channels, &shared<Sum>());
  if (thread < block_channels && channel < params.channels)
    static_cast<Out*>(params.sums)[chunk * params.channels + channel] = convert<Out>(sum);
}

}  // namespace flowk
