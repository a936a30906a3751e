// SPDX-License-Identifier: Apache-2.0
// A linear index split into the indices of dimensions.
#pragma once

#include <cstdint>

#include "core/divide.h"
#include "flowk/detail/target.cuh"

namespace flowk::core {

// Calls step(d, index) for every dimension, innermost first. A dimension has a `divider`, which the last one does not
// use. The first kUnrolled dimensions have constant numbers, so that what step() reads of them is an operand of an
// instruction.
template <int kUnrolled, class Dim, class Step>
__device__ __forceinline__ void split_index(uint32_t linear, const Dim* dims, int rank, Step step) {
#pragma unroll
  for (int d = 0; d < kUnrolled; ++d)
    if (d < rank) step(d, d + 1 < rank ? take_index(&linear, dims[d].divider) : linear);
#pragma unroll 1
  for (int d = kUnrolled; d < rank; ++d) step(d, d + 1 < rank ? take_index(&linear, dims[d].divider) : linear);
}

// The same for 2^31 indices and more, by each dimension's `extent`.
template <class Dim, class Step>
__device__ __forceinline__ void split_wide_index(int64_t linear, const Dim* dims, int rank, Step step) {
#pragma unroll 1
  for (int d = 0; d < rank; ++d) {
    const int64_t index = d + 1 < rank ? linear % dims[d].extent : linear;
    linear = d + 1 < rank ? linear / dims[d].extent : 0;
    step(d, index);
  }
}

}  // namespace flowk::core
