// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the threads of a row: lanes of a warp by shuffles, warps of a block by shared memory, blocks of
// a cluster by distributed shared memory.
#pragma once

#include "core/cluster_exchange.cuh"
#include "core/warp_reduce.cuh"
#include "flowk/detail/shared.cuh"
#include "softmax/kernels/softmax_scores.cuh"

namespace flowk::softmax {

// The type of sums over threads. float32 rows are summed in float64 from the first shuffle on, so that the sum is right
// to one unit in the last place for any number of threads.
template <class T>
using RowValue = std::conditional_t<is_float16<T>, float, double>;

// The partial result of a warp, a block or a slice: its largest score, and the sum of exp(score - max). For gradients:
// 0 and the sum.
template <class T>
struct alignas(2 * sizeof(RowValue<T>)) RowPartial {
  ComputeType<T> max;
  RowValue<T> sum;
};

// The first exchange_bytes() of a block's shared memory: one partial result per warp of the row, over all
// blocks of a cluster.
template <class T>
using ExchangeBuffer = ClusterExchange<RowPartial<T>>;

template <class T>
__device__ __forceinline__ ExchangeBuffer<T> exchange_buffer() {
  return {&shared<unsigned char>()};
}

// The threads of a row, and this thread's index among them.
struct RowThreads {
  int lane;    // among the row's lanes of its warp
  int lanes;   // of the row per warp: 1 to 32
  int warp;    // among the row's warps of this block
  int warps;   // 1: the row has lanes of one warp
  int rank;    // of the block in its cluster
  int blocks;  // of the cluster
};

__device__ __forceinline__ RowThreads row_threads(const SoftmaxParams& params) {
  RowThreads group;
  group.lanes = params.lanes_per_row < 32 ? params.lanes_per_row : 32;
  group.lane = static_cast<int>(threadIdx.x) & (group.lanes - 1);
  group.warps = params.lanes_per_row < 32 ? 1 : params.lanes_per_row / 32;
  group.warp = params.rows_per_block > 1 ? 0 : static_cast<int>(threadIdx.x) / 32;
  group.blocks = 1 << params.row_blocks_shift;
  group.rank = static_cast<int>(blockIdx.x) & (group.blocks - 1);
  return group;
}

// The sum over the row's lanes of a warp. A whole warp takes no test per step.
template <class Sum>
__device__ __forceinline__ Sum sum_over_lanes_of(const RowThreads& group, Sum value) {
  return group.lanes == 32 ? sum_over_lanes(value, 32) : sum_over_lanes(value, group.lanes);
}

static_assert(sizeof(RowPartial<Float16>) == partial_result_bytes(2) && sizeof(RowPartial<float>) == 16 &&
              sizeof(RowPartial<double>) == partial_result_bytes(8) &&
              sizeof(RowPartial<float>) == partial_result_bytes(4));

// The bytes of all partial results of a row.
template <class T>
__device__ __forceinline__ int partial_bytes(const RowThreads& group) {
  return group.warps * group.blocks * static_cast<int>(sizeof(RowPartial<T>));
}

// Buffer i of a kernel that has several.
template <class T>
__device__ __forceinline__ ExchangeBuffer<T> exchange_buffer_at(const ExchangeBuffer<T>& first, const RowThreads& group,
                                                                int i) {
  return {first.memory + i * exchange_step_bytes(sizeof(RowPartial<T>), group.warps, group.blocks)};
}

// Initializes the block's barriers for what the other blocks of the cluster send; called before the kernel's first
// load.
template <class T>
__device__ __forceinline__ void begin_exchange(const ExchangeBuffer<T>& buffer, const RowThreads& group,
                                               int num_buffers = 1, int num_arrivals = 1) {
  if (!has_sm_90() || group.blocks == 1) return;
  if (threadIdx.x == 0) {
    for (int i = 0; i < num_buffers; ++i) {
      const TransactionBarrier barrier = exchange_buffer_at(buffer, group, i).barrier();
      barrier.init(num_arrivals);
      barrier.expect(partial_bytes<T>(group));
    }
  }
  arrive_at_cluster();
}

// Exchanges the partial results of all warps of a row through `buffer` and returns their number. Called by all threads
// of a block, and only for rows of more than one warp.
template <class T>
__device__ __forceinline__ int exchange_partials(const ExchangeBuffer<T>& buffer, const RowThreads& group,
                                                 const RowPartial<T>& part) {
  const int slot = group.rank * group.warps + group.warp;
  if (has_sm_90() && group.blocks > 1) {
    wait_for_cluster();
    if (group.lane < group.blocks) buffer.send(group.lane, slot, part);
    // The arrival is here and not next to expect(): there synccheck of CUDA 13.0 reports a missing wait.
    if (threadIdx.x == 0) buffer.barrier().arrive();
    buffer.barrier().wait();
    return group.warps * group.blocks;
  }
  if (group.lane == 0) buffer.values()[slot] = part;
  __syncthreads();
  return group.warps;
}

// The number of lanes, a power of 2, over which `num_partials` values are combined.
__device__ __forceinline__ int lanes_of_partials(int num_partials) {
  return num_partials > 16 ? 32 : num_partials > 8 ? 16 : num_partials > 4 ? 8 : num_partials > 2 ? 4 : 2;
}

// Combines partial results: max = max(max_i), sum = sum of sum_i * exp((max_i - max) * scale), in their order. Called
// by whole warps.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ RowPartial<T> combine_partials(const RowPartial<T>* parts, int num_partials, int warp_lane,
                                                          ComputeType<T> scale) {
  using E = RowValue<T>;
  using A = ComputeType<T>;
  // Groups of `lanes` lanes hold the same values, which takes fewer shuffles.
  const int lanes = lanes_of_partials(num_partials), lane = warp_lane & (lanes - 1);
  // A NaN sum stays NaN whatever its maximum; a sum of 0 has a maximum of -infinity and adds 0.
  const auto scaled_sum = [scale](const RowPartial<T>& other, A row_max) {
    if (other.sum == E{0}) return E{0};
    return other.sum * exponential<T>(ScoreScale<T, kMask>(other.max, scale).to_reference(row_max));
  };
  RowPartial<T> row = {negative_infinity<A>(), E{0}};
  if (lane < num_partials) row = parts[lane];
  const RowPartial<T> first = row;
#pragma unroll 1
  for (int i = lane + 32; i < num_partials; i += 32) row.max = larger_of(row.max, parts[i].max);
  row.max = max_over_lanes(row.max, 32);
  row.sum = scaled_sum(first, row.max);
#pragma unroll 1
  for (int i = lane + 32; i < num_partials; i += 32) row.sum += scaled_sum(parts[i], row.max);
  row.sum = over_lanes(row.sum, lanes, [](E a, E b) { return a + b; });
  return row;
}

// The sum of the partial sums.
template <class T, class Sum = ComputeType<T>>
__device__ __forceinline__ Sum sum_partials(const RowPartial<T>* parts, int num_partials, int warp_lane) {
  const int lanes = lanes_of_partials(num_partials), lane = warp_lane & (lanes - 1);
  Sum row = 0;
#pragma unroll 1
  for (int i = lane; i < num_partials; i += 32) row += static_cast<Sum>(parts[i].sum);
  return over_lanes(row, lanes, [](Sum a, Sum b) { return a + b; });
}

// The row's result from its warps' partial results.
template <class T, SoftmaxMask kMask>
__device__ __forceinline__ RowPartial<T> combine_row(const ExchangeBuffer<T>& buffer, const RowThreads& group,
                                                     const RowPartial<T>& part, ComputeType<T> scale) {
  if (group.warps * group.blocks == 1) return part;
  const int num_partials = exchange_partials(buffer, group, part);
  return combine_partials<T, kMask>(buffer.values(), num_partials, group.lane, scale);
}

// The sum over the row's warps.
template <class T, class Sum>
__device__ __forceinline__ Sum sum_row(const ExchangeBuffer<T>& buffer, const RowThreads& group, Sum sum) {
  if (group.warps * group.blocks == 1) return sum;
  const int num_partials = exchange_partials(buffer, group, RowPartial<T>{ComputeType<T>{0}, sum});
  return sum_partials<T, Sum>(buffer.values(), num_partials, group.lane);
}

}  // namespace flowk::softmax
