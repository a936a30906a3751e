// SPDX-License-Identifier: Apache-2.0
// The CUDA language for kernels: nvcc's own, NVRTC's, or the CPU executor's under FLOWK_SIMT. Kernels include this,
// never a CUDA header.
#pragma once

#ifdef FLOWK_SIMT
#include "simt/cuda_language.h"
#elif !defined(__CUDACC_RTC__)
#include <cuda_runtime.h>
#endif

#include "flowk/detail/integers.h"

namespace flowk::detail {

// The type of a kernel's parameter that is a __grid_constant__: T. On the executor it is a reference, because all
// threads would copy a T of 2 KB otherwise.
#ifdef FLOWK_SIMT
template <class T>
using GridConstant = const T&;
#else
template <class T>
using GridConstant = T;
#endif

// An address in global memory that was kept as a number, to step and to round it. This tells the compiler the memory:
// otherwise each access would first find out which memory the address is in.
__device__ __forceinline__ unsigned char* global_pointer(uintptr_t address) {
  const auto pointer = reinterpret_cast<unsigned char*>(address);
#ifndef FLOWK_SIMT
  __builtin_assume(__isGlobal(pointer));
#endif
  return pointer;
}

}  // namespace flowk::detail
