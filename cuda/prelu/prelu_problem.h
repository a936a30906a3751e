// SPDX-License-Identifier: Apache-2.0
// What the plans of PReLU share.
#pragma once

#include "prelu/prelu_plan.h"

namespace flowk::prelu {

struct PreluShape {
  int64_t outer, channels, inner;
  int64_t element_bytes;
};

constexpr int64_t element_bytes_of(flowk_dtype dtype) {
  return dtype == FLOWK_FLOAT64 ? 8 : dtype == FLOWK_FLOAT32 ? 4 : 2;
}

// Elements from the multiple of 16 bytes at or before `pointer` to it.
inline int32_t pointer_lead(const void* pointer, int64_t element_bytes) {
  return static_cast<int32_t>(reinterpret_cast<uintptr_t>(pointer) % pack_bytes /
                              static_cast<uintptr_t>(element_bytes));
}

// The packs of a tensor that is written at `output`.
void place_packs(const PreluShape& shape, const void* output, PackGrid* grid);

// Bytes from a multiple of 16 to where a tensor at `pointer` has the first element of a pack of `output`.
int32_t shift_of(const void* pointer, const void* output);

AlphaAccess alpha_access(const PackGrid& grid, const void* alpha, int64_t pack_elements);

// float16, bfloat16 and float32 with alphas of the same type; the others take the general form of each kernel.
bool has_kernels_of_its_own(flowk_dtype dtype, flowk_dtype alpha_dtype);

// Threads a block for one pack a thread.
int32_t threads_for(int64_t num_packs, const Device& device);

}  // namespace flowk::prelu
