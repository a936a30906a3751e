// SPDX-License-Identifier: Apache-2.0
// Sums of the partial sums that the backward kernels of PReLU leave.
#pragma once

#include "core/convert.cuh"
#include "core/divide.h"
#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "prelu/prelu_gradients.cuh"
#include "prelu/prelu_plan.h"

namespace flowk::prelu {

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

// partials[0] + partials[step] + ..., those of the rows row, row + rows_at_once, ... before `row_end`; 8 at a time, all
// under way before one is used, which takes that they have one sum: with one each the compiler runs out of registers
// and waits for each load by itself, 0.5 us more.
template <class Sum>
__device__ __forceinline__ Sum sum_of_rows(const Sum* partials, int64_t step, int row, int rows_at_once, int row_end) {
  Sum sum = 0;
#pragma unroll 1
  for (; row < row_end; row += partials_in_flight * rows_at_once) {
    Sum loaded[partials_in_flight];
#pragma unroll
    for (int k = 0; k < partials_in_flight; ++k)
      loaded[k] = row + k * rows_at_once < row_end ? partials[k * step] : Sum{0};
    sum += sum_of_values(loaded);
    partials += partials_in_flight * step;
  }
  return sum;
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

// What a block sums up: of the channels of block `block`, `count` rows from `partials` on, those of a vector. Without
// kVectors all: a branch there, and what more it reads of the parameters, costs 0.1 to 0.5 us.
template <class Sum>
struct PartialRows {
  const Sum* partials;
  int count;
  uint32_t block;
  uint32_t vector;
};

template <class Sum, bool kVectors>
__device__ __forceinline__ PartialRows<Sum> rows_of_block(const PartialSumParams& params) {
  PartialRows<Sum> rows = {static_cast<const Sum*>(params.partials), static_cast<int>(params.num_rows), blockIdx.x, 0};
  if constexpr (kVectors) {
    rows.vector = take_index(&rows.block, params.num_vectors);
    const int64_t first = static_cast<int64_t>(rows.vector) * params.rows_per_vector, left = params.num_rows - first;
    rows.partials += first * params.row_stride;
    rows.count = static_cast<int>(left < params.rows_per_vector ? left : params.rows_per_vector);
  }
  return rows;
}

// Stores a channel's sum: sums (channels, vectors).
template <bool kVectors, class Sum>
__device__ __forceinline__ void store_sum(const PartialSumParams& params, int64_t channel, uint32_t vector, Sum sum) {
  const int64_t place = kVectors ? channel * params.num_vectors.divisor + vector : channel;
  if constexpr (sizeof(Sum) == 8)
    static_cast<double*>(params.sums)[place] = sum;
  else if (params.sums_dtype == FLOWK_FLOAT32)
    static_cast<float*>(params.sums)[place] = sum;
  else if (params.sums_dtype == FLOWK_FLOAT16)
    static_cast<Float16*>(params.sums)[place] = convert<Float16>(sum);
  else
    static_cast<BFloat16*>(params.sums)[place] = convert<BFloat16>(sum);
}

// A block takes a channel, or each of its warps one, 2^log2_block_channels in all. The kernel does one thing, in few
// instructions: where a tensor is small, fetching them is what a kernel's time is made of.
template <class Sum, bool kRuns, bool kVectors>
__device__ __forceinline__ void sum_near_rows(const PartialSumParams& params) {
  const PartialRows<Sum> rows = rows_of_block<Sum, kVectors>(params);
  const bool is_warps = params.log2_block_channels > 0;
  const int run = static_cast<int>(params.run.divisor), num_threads = is_warps ? 32 : static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x) & (num_threads - 1);
  const int64_t channel =
      is_warps ? static_cast<int64_t>(rows.block) * (blockDim.x >> 5) + (threadIdx.x >> 5) : rows.block;
  if (channel >= params.channels) return;
  const int num_partials = rows.count * (kRuns ? run : 1);
  const Sum* partials = rows.partials + channel * params.column_stride;
  Sum sum = 0;
  if constexpr (!kRuns) {
    partials += thread;
    wait_on_dependent_grids(partials + num_threads);
    sum = sum_of_rows(partials, num_threads, thread, num_threads, num_partials);
  } else {
    wait_on_dependent_grids(partials);
#pragma unroll 1
    for (int first = thread; first < num_partials; first += partials_in_flight * num_threads) {
      Sum loaded[partials_in_flight];
#pragma unroll
      for (int k = 0; k < partials_in_flight; ++k) {
        const int i = first + k * num_threads;
        const int64_t row = params.run.divide(static_cast<uint32_t>(i));
        loaded[k] = i < num_partials ? partials[i + row * (params.row_stride - run)] : Sum{0};
      }
      sum += sum_of_values(loaded);
    }
  }
  const Sum total = is_warps ? sum_over_warp(sum) : sum_over_block<1>(sum, 1, &shared<Sum>());
  if (thread == 0) store_sum<kVectors>(params, channel, rows.vector, total);
}

// A block takes 2^log2_block_channels neighbouring channels, 8 or 32: a sector or a line of each row; its threads share
// out the rows.
template <class Sum, bool kVectors>
__device__ __forceinline__ void sum_far_rows(const PartialSumParams& params) {
  const PartialRows<Sum> rows = rows_of_block<Sum, kVectors>(params);
  const int log2_channels = params.log2_block_channels, block_channels = 1 << log2_channels;
  const int thread = static_cast<int>(threadIdx.x), rows_at_once = static_cast<int>(blockDim.x) >> log2_channels;
  const int64_t channel = static_cast<int64_t>(rows.block) * block_channels + (thread & (block_channels - 1));
  const int row = channel < params.channels ? thread >> log2_channels : rows.count;
  const int64_t step = rows_at_once * params.row_stride;
  const Sum* partials = rows.partials + row * params.row_stride + channel;
  wait_on_dependent_grids(partials + step);
  const Sum sum = sum_of_rows(partials, step, row, rows_at_once, rows.count);
  const Sum total = sum_over_block<partials_in_flight>(sum, block_channels, &shared<Sum>());
  if (thread < block_channels && channel < params.channels) store_sum<kVectors>(params, channel, rows.vector, total);
}

// sums[c, vector] = sum of the partials of channel c over the rows of the vector
//   near_rows  partials[c, row] of (channels, num_rows)
//   runs       partials[row, c, i] of (num_rows, channels, run), i < run too; by its strides the others as well
//   far_rows   partials[row, c] of (num_rows, channels)
template <class Sum, SumKernel kLayout, bool kVectors>
__global__ void __launch_bounds__(max_row_sum_threads)
    reduce_partials(const __grid_constant__ PartialSumParams params) {
  launch_dependent_grids();
  if constexpr (kLayout == SumKernel::far_rows)
    sum_far_rows<Sum, kVectors>(params);
  else
    sum_near_rows<Sum, kLayout == SumKernel::runs, kVectors>(params);
}

}  // namespace flowk::prelu
