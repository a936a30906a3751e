// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: a kernel that starts while its predecessor in the stream still runs. Before sm_90, and
// on the executor, grids follow one another anyway and both functions are empty.
#pragma once

#include "core/target.cuh"

namespace flowk {

// Lets the stream's next kernel start once every block has come here or ended, if it was launched with
// LaunchConfig::overlaps_previous.
__device__ __forceinline__ void allow_next_grid() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the stream's previous kernel has ended and what it wrote can be read.
__device__ __forceinline__ void wait_for_previous_grid() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace flowk
