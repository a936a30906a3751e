// SPDX-License-Identifier: Apache-2.0
// Merges results over two sets of columns, each weighted by a softmax, into the result over both sets.
#pragma once

#include "core/float_vector.cuh"
#include "core/values.cuh"
#include "flowk/detail/pdl.cuh"
#include "softmax/softmax_merge.h"

namespace flowk::softmax {

// The weights of the two halves of a row, exp(lse1 - lse) and exp(lse2 - lse), and lse = log(exp(lse1) + exp(lse2)). A
// half with an lse of -infinity is not used.
template <class A>
struct MergeWeights {
  A first = 0, second = 0, lse = 0;
  bool uses_first = false, uses_second = false;

  MergeWeights() = default;
  __device__ __forceinline__ MergeWeights(const MergeRowsParams& params, int64_t row) {
    const A lse1 = static_cast<const A*>(params.lse1)[row], lse2 = static_cast<const A*>(params.lse2)[row];
    const A infinity = negative_infinity<A>();
    uses_first = lse1 != infinity;
    uses_second = lse2 != infinity;
    lse = lse1 > lse2 ? lse1 : lse2;
    if (!uses_first && !uses_second) return;
    const A one = exp(lse1 - lse), two = exp(lse2 - lse), sum = one + two;
    first = one / sum;
    second = two / sum;
    lse += log(sum);
  }
  __device__ __forceinline__ A operator()(A y1, A y2) const {
    return (uses_first ? first * y1 : A{0}) + (uses_second ? second * y2 : A{0});
  }
};

// y(row, j) = exp(lse1(row) - lse(row)) * y1(row, j) + exp(lse2(row) - lse(row)) * y2(row, j). All are contiguous
// (rows, columns), or (rows). A thread has a vector of a row, or of the end of one and the start of the next; or one
// element. The thread with a row's first column stores its lse.
template <class T>
__global__ void __launch_bounds__(merge_threads)
    merge_rows(const __grid_constant__ GridConstant<MergeRowsParams> params) {
  launch_dependent_grids();
  using A = ComputeType<T>;
  constexpr int width = vector_width<T>;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * merge_threads + static_cast<int>(threadIdx.x);
  const auto columns = static_cast<int64_t>(params.columns.divisor);
  const int64_t num_elements = params.num_rows * columns, first = params.by_vectors ? thread * width : thread;
  wait_on_dependent_grids();
  if (first >= num_elements) return;
  const auto row = static_cast<int64_t>(params.columns.divide(static_cast<uint64_t>(first)));
  const int64_t column = first - row * columns;
  const MergeWeights<A> weights(params, row);
  A* const lse = static_cast<A*>(params.lse);
  if (column == 0) lse[row] = weights.lse;
  const T* const y1 = reinterpret_cast<const T*>(params.y1) + first;
  const T* const y2 = reinterpret_cast<const T*>(params.y2) + first;
  T* const y = reinterpret_cast<T*>(params.y) + first;
  if (!params.by_vectors) {
    *y = convert<T>(weights(widen(*y1), widen(*y2)));
    return;
  }
  // Elements of this row, and of the next one.
  const int64_t left = columns - column;
  const bool has_next = left < width && row + 1 < params.num_rows;
  MergeWeights<A> next;
  if (has_next) {
    next = {params, row + 1};
    lse[row + 1] = next.lse;
  }
  const int here = left < width ? static_cast<int>(left) : width;
  const int count = num_elements - first < width ? static_cast<int>(num_elements - first) : width;
  if (count == width) {
    A values[width], others[width];
    widen_vector<T>(*reinterpret_cast<const uint4*>(y1), values);
    widen_vector<T>(*reinterpret_cast<const uint4*>(y2), others);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      if (j >= here)
        values[j] = next(values[j], others[j]);
      else
        values[j] = weights(values[j], others[j]);
    }
    *reinterpret_cast<uint4*>(y) = narrow_vector<T>(values);
    return;
  }
  for (int j = 0; j < count; ++j)
    y[j] = convert<T>(j >= here ? next(widen(y1[j]), widen(y2[j])) : weights(widen(y1[j]), widen(y2[j])));
}

}  // namespace flowk::softmax
