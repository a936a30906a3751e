// SPDX-License-Identifier: Apache-2.0
// PReLU backward of few rows of channels: each warp finishes its columns alone.
#pragma once

#include "flowk/detail/pdl.cuh"
#include "prelu/kernels/prelu_gradients.cuh"

namespace flowk::prelu {

// A warp takes one vector of columns, a lane every 32nd row of it, all rows in flight at once.
//   dx[r, c] = x[r, c] > 0 ? dy[r, c] : alpha[c] * dy[r, c]
//   dalpha[c] = sum over r of (x[r, c] > 0 ? 0 : dy[r, c] * x[r, c])
//   x, dy, dx (rows, channels), rows <= 32 * kRows; all vectors exist and are aligned, alphas too
template <class T>
__global__ void __launch_bounds__(max_span_threads)
    by_warp_column(const __grid_constant__ GridConstant<ByWarpColumnParams> params) {
  constexpr int V = vector_width<T>, kRows = 4;
  using Sum = ComputeType<T>;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint32_t column = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  const int64_t first = static_cast<int64_t>(lane) * params.row_vectors + column;  // vector
  const int64_t step = int64_t{32} * params.row_vectors;
  launch_dependent_grids();
  if (column >= static_cast<uint32_t>(params.row_vectors)) return;
  const uint4* dys = static_cast<const uint4*>(params.dy);
  const uint4* xs = static_cast<const uint4*>(params.x);
  uint4 x[kRows] = {}, dy[kRows] = {};
  wait_on_dependent_grids(xs + first);
#pragma unroll
  for (int k = 0; k < kRows; ++k)
    if (lane + 32 * k < params.num_rows) {
      x[k] = xs[first + k * step];
      dy[k] = dys[first + k * step];
    }
  const auto alphas = load_consecutive_alphas<T, T>(params.alpha, column * V);
  Sum sums[V] = {};
#pragma unroll
  for (int k = 0; k < kRows; ++k)
    if (lane + 32 * k < params.num_rows) {
      const uint4 dx =
          gate_vector<T, T>(x[k], dy[k], alphas, [&](int j, Sum one_x, Sum one_dy) { sums[j] += one_dy * one_x; });
      if (params.dx != nullptr) store_vector(static_cast<uint4*>(params.dx) + first + k * step, dx);
    }
  const int index = sum_values_over_lanes<5>(sums, lane);
  if (lane % (32 / V) == 0)
    static_cast<T*>(params.dalpha)[column * V + static_cast<uint32_t>(index)] = convert<T>(sums[0]);
}

}  // namespace flowk::prelu
