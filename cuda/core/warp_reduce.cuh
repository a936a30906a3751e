// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the lanes of a warp. All lanes of the warp call the functions. The order of the additions is
// always the same.
#pragma once

#include "core/float_vector.cuh"
#include "flowk/detail/sizes.h"
#include "flowk/detail/target.cuh"

namespace flowk::core {

// The sum over `num_lanes` (a power of two, at most kMax) consecutive lanes, returned to each of them.
template <int kMax = warp_lanes, class Sum>
__device__ __forceinline__ Sum sum_over_lanes(Sum value, int num_lanes) {
#pragma unroll
  for (int distance = kMax / 2; distance > 0; distance /= 2)
    if (distance < num_lanes) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// The largest value of a warp by one integer instruction: float bits order as integers do once the bits of negative
// values are flipped. A NaN is either lost or taken as the largest.
#if defined(FLOWK_SIMT) || __CUDA_ARCH__ >= 800
__device__ __forceinline__ float max_over_warp(float value) {
  const int bits = __float_as_int(value);
  const int largest = __reduce_max_sync(0xffffffffu, bits ^ (bits >> 31 & 0x7fffffff));
  return __int_as_float(largest ^ (largest >> 31 & 0x7fffffff));
}
#endif

// The largest value of `lanes` neighbouring lanes, a power of 2 and at most kMax, returned to each of them.
template <int kMax = 32, class A>
__device__ __forceinline__ A max_over_lanes(A value, int lanes) {
#if defined(FLOWK_SIMT) || __CUDA_ARCH__ >= 800
  if constexpr (sizeof(A) == 4 && kMax == 32)
    if (lanes == 32) return max_over_warp(value);
#endif
#pragma unroll
  for (int offset = kMax / 2; offset > 0; offset /= 2)
    if (offset < lanes) value = larger_of(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// Combines the values of `lanes` neighbouring lanes, a power of 2 from 2 on. Few lanes take fewer tests than in
// sum_over_lanes().
template <class V, class Combine>
__device__ __forceinline__ V over_lanes(V value, int lanes, Combine combine) {
  const auto step = [&](int distance) {
    value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return lanes > 2 * distance;
  };
  if (step(1) && step(2) && step(4) && step(8)) step(16);
  return value;
}

// Sums each of a lane's kValues values over the 2^kSteps lanes that differ in lane bits 4, 3, ... The lanes share the
// values: in each step a lane with two or more keeps half of them. In the end a lane has the sums values[0] to
// values[max(kValues >> kSteps, 1) - 1]. Returns the index that values[0] had at first.
template <int kSteps, class Sum, int kValues>
__device__ __forceinline__ int sum_values_over_lanes(Sum (&values)[kValues], int lane) {
  int index = 0;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int distance = 16 >> step, half = kValues >> (step + 1);
    const bool keeps_upper = half > 0 && (lane & distance) != 0;
    if (half == 0) values[0] += __shfl_xor_sync(0xffffffffu, values[0], distance);
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const Sum given = keeps_upper ? values[i] : values[i + half];
      values[i] = (keeps_upper ? values[i + half] : values[i]) + __shfl_xor_sync(0xffffffffu, given, distance);
    }
    index += keeps_upper ? half : 0;
  }
  return index;
}

}  // namespace flowk::core
