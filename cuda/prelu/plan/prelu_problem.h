// SPDX-License-Identifier: Apache-2.0
// A PReLU problem as the planners of both directions see it.
#pragma once

#include "prelu/prelu.h"

namespace flowk::prelu {

struct PreluShape {
  int64_t outer, channels, inner;
  int64_t element_bytes;
};

constexpr int64_t element_bytes_of(flowk_dtype dtype) {
  return dtype == FLOWK_FLOAT64 ? 8 : dtype == FLOWK_FLOAT32 ? 4 : 2;
}

// The vectors of a tensor that is written at `output`.
VectorGrid vector_grid(const PreluShape& shape, const void* output);

// Bytes from a multiple of 16 to the element of `pointer` that a vector of `output` begins with.
int16_t shift_of(const void* pointer, const void* output);

AlphaAccess alpha_access(const VectorGrid& grid, const void* alpha, int64_t vector_elements);

// float16, bfloat16 and float32 with alphas of the same type. Other types have only the general form of a kernel.
bool is_common(flowk_dtype dtype, flowk_dtype alpha_dtype);

// Threads per block, one vector per thread.
int32_t threads_for(int64_t num_vectors, const Device& device);

}  // namespace flowk::prelu
