// SPDX-License-Identifier: Apache-2.0
// The CUDA language for kernels: nvcc's own, NVRTC's, or the CPU executor's under FLOWK_SIMT. Kernels include this,
// never a CUDA header.
#pragma once

#ifdef FLOWK_SIMT
#include "simt/cuda_language.h"
#elif !defined(__CUDACC_RTC__)
#include <cuda_runtime.h>
#endif

#include "flowk/integers.h"
