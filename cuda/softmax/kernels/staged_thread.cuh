// SPDX-License-Identifier: Apache-2.0
// The threads of a row of staged_rows, and their maximum and sum.
#pragma once

#include "softmax/kernels/softmax_reduce.cuh"

namespace flowk::softmax {

// A thread among the threads of its row: 2^n lanes of a warp or, with kWholeBlock, all threads of the block. All
// threads of the block call max_over_row() and sum_over_row(), once each.
template <bool kWholeBlock>
struct StagedThread {
  int row_in_block;
  int lane;   // among the row's threads
  int lanes;  // the row's threads
  unsigned char* partials;

  __device__ __forceinline__ StagedThread(const SoftmaxParams& params, const StagedRows& staged, unsigned char* memory)
      : row_in_block(kWholeBlock ? 0 : staged.row_order.row_of(static_cast<int>(threadIdx.x) >> params.rows_shift)),
        lane(kWholeBlock ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x) & (params.lanes_per_row - 1)),
        lanes(params.lanes_per_row),
        partials(memory + staged.barrier_offset_bytes + staged_barrier_bytes) {}
  __device__ __forceinline__ float max_over_row(float value) const {
    if constexpr (!kWholeBlock) return max_over_lanes(value, lanes);
    return over_warps(max_over_lanes(value, 32), partials, negative_infinity<float>(),
                      [](float a, float b) { return larger_of(a, b); });
  }
  template <class Sum>
  __device__ __forceinline__ Sum sum_over_row(Sum value) const {
    if constexpr (!kWholeBlock) return sum_over_lanes(value, lanes);
    return over_warps(sum_over_lanes(value, 32), partials + staged_partials_bytes, Sum{0},
                      [](Sum a, Sum b) { return a + b; });
  }

 private:
  // Combines the values of the block's warps, in their order.
  template <class Value, class Combine>
  __device__ __forceinline__ Value over_warps(Value value, unsigned char* memory, Value none, Combine combine) const {
    Value* const values = reinterpret_cast<Value*>(memory);
    if ((lane & 31) == 0) values[lane / 32] = value;
    __syncthreads();
    value = values[0];
#pragma unroll
    for (int warp = 1; warp < max_staged_warps; ++warp) value = combine(value, warp * 32 < lanes ? values[warp] : none);
    return value;
  }
};

}  // namespace flowk::softmax
