// SPDX-License-Identifier: Apache-2.0
// The forward pass of cross-entropy of rows that a warp or a part of one holds in registers.
#pragma once

#include "cross_entropy/kernels/loss_values.cuh"
#include "flowk/detail/launch_bounds.h"
#include "flowk/detail/pdl.cuh"

namespace flowk::cross_entropy {

// The results of a lane's row, with kBatch vectors per lane; more than 4 only if the row takes a warp, which may not
// fill the second half of them. Elements of the next rows are replaced.
template <class T, int kBatch>
__device__ __forceinline__ void loss_of_row(const LossParams& params) {
  using A = ComputeType<T>;
  constexpr int W = vector_width<T>;
  const Logits& logits = params.logits;
  const int lanes = static_cast<int>(params.threads_per_row.divisor);
  uint32_t row_in_block = threadIdx.x;
  const int lane = static_cast<int>(take_index(&row_in_block, params.threads_per_row));
  const uint32_t row_of_lane = blockIdx.x * static_cast<uint32_t>(params.rows_per_block) + row_in_block;
  const bool exists = row_of_lane < params.num_rows;
  const uint32_t row = exists ? row_of_lane : 0;
  const int64_t target = load_target(params.targets, row);
  const unsigned char* const x = row_of_logits(logits, row);
  const int first = lane * W, step = lanes * W, last = first + (kBatch - 1) * step;
  uint4 loaded[kBatch];
  load_batch<T, kBatch, true>(logits, x, {logits, row, params.num_rows}, first, step, loaded);
  if (last + W > logits.columns) {
    const ElementVector<T> absent = {negative_infinity_vector<T>()};
#pragma unroll
    for (int i = kBatch > short_batch / 2 ? short_batch / 2 : kBatch - 1; i < kBatch; ++i) {
      ElementVector<T> vector = {loaded[i]};
#pragma unroll
      for (int j = 0; j < W; ++j)
        if (first + i * step + j >= logits.columns) vector.elements[j] = absent.elements[j];
      loaded[i] = vector.whole;
    }
  }
  Partial<A> partial;
  with_plain(logits.form, [&](auto plain) {
    constexpr bool kPlain = decltype(plain)::value;
    const auto for_all = [&](auto use) { use(first, loaded); };
    partial = merge_over_lanes(take_vectors<T, kPlain>(logits, step, for_all), lanes, kPlain);
  });
  if (lane > 0 || !exists) return;
  if (target == params.targets.ignore_index) return store_ignored<A>(params.results, row);
  const auto logit_at = [x](int64_t column) { return reinterpret_cast<const T*>(x)[column]; };
  store_partial<T>(params, row, target, 0, logits.columns, logit_at, partial);
}

// The results of rows of up to a warp, several per block.
//   loss[row] = lse[row] - z[row, targets[row]], lse[row] = log of sum over j of exp(z[row, j])   and more, see flowk.h
// logits (rows, columns), the last dimension contiguous; targets, loss, lse, entropy (rows).
template <class T>
__global__ void __launch_bounds__(short_row_threads, fitting_blocks(short_row_threads, 7))
    loss_rows(const __grid_constant__ GridConstant<LossParams> params) {
  launch_dependent_grids();
  wait_on_dependent_grids();
  static_assert(short_batch == 8);
  switch (params.vectors_per_thread) {
    case 1: return loss_of_row<T, 1>(params);
    case 2: return loss_of_row<T, 2>(params);
    case 3: return loss_of_row<T, 3>(params);
    case 4: return loss_of_row<T, 4>(params);
    default: return loss_of_row<T, 8>(params);
  }
}

}  // namespace flowk::cross_entropy
