// SPDX-License-Identifier: Apache-2.0
// allow_next_grid() and wait_for_previous_grid(), for launches of LaunchConfig::overlaps_previous.
#pragma once

#include <cstdint>

#include "flowk/grid_order.cuh"

namespace flowk {

// wait_for_previous_grid() of a thread that reads at `first_read`, not null, after it. The compiler cannot put off what
// makes that address until after the wait, as it otherwise does: 20 to 70 instructions.
__device__ __forceinline__ void wait_for_previous_grid([[maybe_unused]] const void* first_read) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred reads;\n"
      "setp.ne.u64 reads, %0, 0;\n"
      "@reads griddepcontrol.wait;\n"
      "}" ::"l"(first_read)
      : "memory");
#endif
}

}  // namespace flowk
