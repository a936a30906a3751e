// SPDX-License-Identifier: Apache-2.0
// The CUDA language for kernels: nvcc's own, or the CPU executor's under FLOWK_SIMT. Kernels include this, never a CUDA
// header.
#pragma once

#include "flowk/target.cuh"
