// SPDX-License-Identifier: Apache-2.0
// The results of rows from the partial results of their slices or shards.
#pragma once

#include "cross_entropy/kernels/cross_entropy_values.cuh"
#include "flowk/detail/pdl.cuh"

namespace flowk::cross_entropy {

// lanes_per_row lanes merge partials[row * row_stride + part * part_stride + :] over the parts, always in the same
// order.
template <class A>
__global__ void __launch_bounds__(merge_threads)
    merge_partials(const __grid_constant__ GridConstant<MergePartialsParams> params) {
  launch_dependent_grids();
  wait_on_dependent_grids();
  const int lanes = params.lanes_per_row, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * merge_threads + static_cast<int>(threadIdx.x);
  const int64_t row = thread / static_cast<uint32_t>(lanes);
  const bool exists = row < params.num_rows;
  const int64_t target = exists ? load_target(params.targets, row) : params.targets.ignore_index;
  Partial<A> partial;
  if (target != params.targets.ignore_index) {
#pragma unroll 1
    for (int64_t part = lane; part < params.num_parts; part += lanes)
      partial.take(Partial<A>::load(params.partials, row * params.row_stride + part * params.part_stride));
  }
  partial = merge_over_lanes(partial, lanes);
  if (lane > 0 || !exists) return;
  if (target == params.targets.ignore_index)
    store_ignored<A>(params.results, row);
  else
    store_row(params.results, params.targets, target, row, partial);
}

}  // namespace flowk::cross_entropy
