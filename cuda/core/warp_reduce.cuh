// SPDX-License-Identifier: Apache-2.0
// Sums over the lanes of a warp. All lanes of the warp call them; the order of the additions is always the same.
#pragma once

#include "core/namespaces.h"
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

// Sums each of a lane's kValues values over the 2^kSteps lanes that differ in lane bits 4, 3, ... The lanes divide the
// values: while a lane has two or more, each step keeps half of them. A lane ends with values[0] to
// values[max(kValues >> kSteps, 1) - 1]; the return value is the index that values[0] had.
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
