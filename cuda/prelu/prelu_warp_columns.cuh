// SPDX-License-Identifier: Apache-2.0
// PReLU backward of few rows of channels: a warp holds a column of packs, and needs no other thread.
#pragma once

#include "flowk/detail/pdl.cuh"
#include "prelu/prelu_gradients.cuh"

namespace flowk::prelu {

// dx[r, c] = x[r, c] > 0 ? dy[r, c] : alpha[c] * dy[r, c]
// dalpha[c] = sum over r of (x[r, c] > 0 ? 0 : dy[r, c] * x[r, c])   x, dy, dx (rows, channels), rows <= 32 * kRows =
// 128 A warp takes a column of packs, a lane every 32nd row of it, all under way at once. All packs exist and are
// aligned.
template <class T>
__global__ void __launch_bounds__(max_span_threads) prelu_warp_columns(const __grid_constant__ ColumnParams params) {
  constexpr int V = pack_elements<T>, kRows = 4;
  using A = T;
  using Sum = ComputeType<T>;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint32_t column = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
  const int num_rows = static_cast<int>(params.num_rows);
  const int64_t place = static_cast<int64_t>(lane) * params.row_packs + column;  // in packs
  launch_dependent_grids();
  if (column >= static_cast<uint32_t>(params.row_packs)) return;
  const uint4* dys = static_cast<const uint4*>(params.tensors.dy);
  const uint4* xs = static_cast<const uint4*>(params.tensors.x);
  uint4 x[kRows] = {}, dy[kRows] = {};
  wait_on_dependent_grids(xs + place);
#pragma unroll
  for (int k = 0; k < kRows; ++k)
    if (lane + 32 * k < num_rows) {
      x[k] = xs[place + k * params.step_packs];
      dy[k] = dys[place + k * params.step_packs];
    }
  const PackAlphas<T, A> alphas = load_alphas<T, A, uint32_t>(params.tensors.alpha, AlphaAccess::vector_per_pack,
                                                              column * V, 0, params.tensors.grid);
  Sum sums[V] = {};
#pragma unroll
  for (int k = 0; k < kRows; ++k)
    if (lane + 32 * k < num_rows)
      differentiate_pack<T, A, true>(params.tensors, (place + k * params.step_packs) * V, dy[k], x[k], alphas, sums);
  const int index = sum_values_over_lanes<5>(sums, lane);
  if (lane % (32 / V) == 0)
    static_cast<A*>(params.sums)[column * V + static_cast<uint32_t>(index)] = convert<A>(sums[0]);
}

}  // namespace flowk::prelu
