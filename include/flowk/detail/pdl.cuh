// SPDX-License-Identifier: Apache-2.0
// Programmatic dependent launch: a kernel that starts while its predecessor in the stream still runs. Before sm_90, and
// on the executor, grids follow one another anyway and both functions are empty.
#pragma once

#include "flowk/detail/target.cuh"

namespace flowk::detail {

// Lets the stream's next kernel start once every block has come here or ended, if it was launched with
// cudaLaunchAttributeProgrammaticStreamSerialization.
__device__ __forceinline__ void launch_dependent_grids() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the stream's previous kernel has ended and what it wrote can be read.
__device__ __forceinline__ void wait_on_dependent_grids() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// wait_on_dependent_grids() for a thread that then reads at `first_read`, which is not null. The compiler cannot move
// the computation of that address, which is many instructions, to after the wait.
__device__ __forceinline__ void wait_on_dependent_grids([[maybe_unused]] const void* first_read) {
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

}  // namespace flowk::detail
