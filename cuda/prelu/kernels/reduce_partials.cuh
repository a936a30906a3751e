// SPDX-License-Identifier: Apache-2.0
// Sums of the partials that the other backward kernels leave.
#pragma once

#include "flowk/detail/pdl.cuh"
#include "flowk/detail/shared.cuh"
#include "prelu/kernels/prelu_gradients.cuh"

namespace flowk::prelu {

// partials[0] + partials[step] + ... of the rows row, row + rows_at_once, ... before `row_end`. 8 loads are in flight
// at a time, and their values are added up as a tree. With 8 running sums the compiler would run out of registers and
// wait for each load by itself.
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

// Finishes `channels` sums. Lane l of each warp has a part of the sum of channel l % channels. Warp 0 returns the sums
// in its first lanes. `warp_sums` is (warps, channels), both powers of two and at most 32. A lane of warp 0 loads
// kAtOnce of these sums at once.
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

// What a block sums: `count` rows of segment `segment`, from `partials` on, of the channels of block `block`.
template <class Sum>
struct PartialRows {
  const Sum* partials;
  int count;
  uint32_t block;
  uint32_t segment;
};

template <class Sum>
__device__ __forceinline__ PartialRows<Sum> rows_of_block(const ReducePartialsParams& params) {
  uint32_t block = blockIdx.x;
  const uint32_t segment = take_index(&block, params.num_segments);
  const int64_t first = static_cast<int64_t>(segment) * params.rows_per_segment, left = params.num_rows - first;
  const int64_t count = left < params.rows_per_segment ? left : params.rows_per_segment;
  return {static_cast<const Sum*>(params.partials) + first * params.row_stride, static_cast<int>(count), block,
          segment};
}

// Stores the sum of one channel and segment: sums (channels, segments).
template <class Sum>
__device__ __forceinline__ void store_sum(const ReducePartialsParams& params, int64_t channel, uint32_t segment,
                                          Sum sum) {
  const int64_t place = channel * params.num_segments.divisor + segment;
  if constexpr (sizeof(Sum) == 8)
    static_cast<double*>(params.sums)[place] = sum;
  else if (params.sums_dtype == FLOWK_FLOAT32)
    static_cast<float*>(params.sums)[place] = sum;
  else if (params.sums_dtype == FLOWK_FLOAT16)
    static_cast<Float16*>(params.sums)[place] = convert<Float16>(sum);
  else
    static_cast<BFloat16*>(params.sums)[place] = convert<BFloat16>(sum);
}

// Layouts rows_last and runs. A block takes one channel, or each of its warps one: 2^log2_block_channels in all. The
// code is short, because on small tensors most of the time goes into fetching instructions.
template <class Sum, bool kRuns>
__device__ __forceinline__ void reduce_rows_last(const ReducePartialsParams& params) {
  const PartialRows<Sum> rows = rows_of_block<Sum>(params);
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
  const Sum total = is_warps ? sum_over_lanes(sum, warp_lanes) : sum_over_block<1>(sum, 1, &shared<Sum>());
  if (thread == 0) store_sum(params, channel, rows.segment, total);
}

// Layout channels_last. A block takes 2^log2_block_channels consecutive channels (8: a sector of each row) and
// divides the rows among its threads.
template <class Sum>
__device__ __forceinline__ void reduce_channels_last(const ReducePartialsParams& params) {
  const PartialRows<Sum> rows = rows_of_block<Sum>(params);
  const int log2_channels = params.log2_block_channels, block_channels = 1 << log2_channels;
  const int thread = static_cast<int>(threadIdx.x), rows_at_once = static_cast<int>(blockDim.x) >> log2_channels;
  const int64_t channel = static_cast<int64_t>(rows.block) * block_channels + (thread & (block_channels - 1));
  const int row = channel < params.channels ? thread >> log2_channels : rows.count;
  const int64_t step = rows_at_once * params.row_stride;
  const Sum* partials = rows.partials + row * params.row_stride + channel;
  wait_on_dependent_grids(partials + step);
  const Sum sum = sum_of_rows(partials, step, row, rows_at_once, rows.count);
  const Sum total = sum_over_block<partials_in_flight>(sum, block_channels, &shared<Sum>());
  if (thread < block_channels && channel < params.channels) store_sum(params, channel, rows.segment, total);
}

// Sums the partials of each channel over segments of rows.
//   sums[c, s] = sum over the rows of segment s, and over i < run, of
//     rows_last      partials[c, row]     (channels, num_rows)
//     runs           partials[row, c, i]  (num_rows, channels, run), or the others by their strides
//     channels_last  partials[row, c]     (num_rows, channels)
template <class Sum, PartialLayout kLayout>
__global__ void __launch_bounds__(max_row_sum_threads)
    reduce_partials(const __grid_constant__ GridConstant<ReducePartialsParams> params) {
  launch_dependent_grids();
  if constexpr (kLayout == PartialLayout::channels_last)
    reduce_channels_last<Sum>(params);
  else
    reduce_rows_last<Sum, kLayout == PartialLayout::runs>(params);
}

}  // namespace flowk::prelu
