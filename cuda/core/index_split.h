// SPDX-License-Identifier: Apache-2.0
// Splits a linear index into the indices of several dimensions, in kernels and in the plans that model them.
#pragma once

#include "core/namespaces.h"
#include "flowk/detail/divider.h"

namespace flowk::core {

// Takes the fastest index off a linear one: 32 bits by the dimension's divider, 64 bits by its extent.
template <class Dim>
FLOWK_HOST_DEVICE uint32_t take_dim(uint32_t* linear, const Dim& dim) {
  return take_index(linear, dim.divider);
}
template <class Dim>
FLOWK_HOST_DEVICE uint64_t take_dim(uint64_t* linear, const Dim& dim) {
  const uint64_t quotient = *linear / dim.extent, index = *linear - quotient * dim.extent;
  *linear = quotient;
  return index;
}

// Calls enter(d, index) for each of `rank` dimensions, innermost first. The outermost takes what is left of `linear`.
// The first kUnrolled dimensions are entered by constant index, so that their parameters are operands of instructions.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <int kUnrolled, class Index, class Dim, class Enter>
FLOWK_HOST_DEVICE void split_index(Index linear, const Dim* dims, int rank, const Enter& enter) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int d = 0; d < kUnrolled; ++d)
    if (d < rank) enter(d, d + 1 < rank ? take_dim(&linear, dims[d]) : linear);
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (int d = kUnrolled; d < rank; ++d) enter(d, d + 1 < rank ? take_dim(&linear, dims[d]) : linear);
}

}  // namespace flowk::core
