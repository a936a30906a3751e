// SPDX-License-Identifier: Apache-2.0
// An error of the CUDA runtime as a status.
#pragma once

#include <driver_types.h>

#include "flowk/flowk.h"

namespace flowk::core {

// NO_DEVICE: no driver, no GPU, or none that runs the library's code or PTX.
constexpr flowk_status status_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return FLOWK_STATUS_SUCCESS;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled: return FLOWK_STATUS_NO_DEVICE;
    default: return FLOWK_STATUS_CUDA_ERROR;
  }
}

}  // namespace flowk::core
