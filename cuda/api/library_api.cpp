// SPDX-License-Identifier: Apache-2.0
// The C ABI of the library itself: statuses, version, element types.
#include "core/dtype.h"
#include "core/status.h"
#include "flowk/flowk.h"

extern "C" {

const char* flowk_status_string(flowk_status status) {
  switch (status) {
    case FLOWK_STATUS_SUCCESS: return "FLOWK_STATUS_SUCCESS";
    case FLOWK_STATUS_INVALID_ARGUMENT: return "FLOWK_STATUS_INVALID_ARGUMENT";
    case FLOWK_STATUS_NULL_POINTER: return "FLOWK_STATUS_NULL_POINTER";
    case FLOWK_STATUS_MISALIGNED_POINTER: return "FLOWK_STATUS_MISALIGNED_POINTER";
    case FLOWK_STATUS_UNSUPPORTED_DTYPE: return "FLOWK_STATUS_UNSUPPORTED_DTYPE";
    case FLOWK_STATUS_OVERLAP: return "FLOWK_STATUS_OVERLAP";
    case FLOWK_STATUS_SIZE_OVERFLOW: return "FLOWK_STATUS_SIZE_OVERFLOW";
    case FLOWK_STATUS_NO_DEVICE: return "FLOWK_STATUS_NO_DEVICE";
    case FLOWK_STATUS_CUDA_ERROR: return "FLOWK_STATUS_CUDA_ERROR";
    case FLOWK_STATUS_INTERNAL_ERROR: return "FLOWK_STATUS_INTERNAL_ERROR";
  }
  return "unknown flowk_status";
}

const char* flowk_last_error(void) { return flowk::api::last_error_text(); }

int32_t flowk_version(void) { return FLOWK_VERSION; }

const char* flowk_build_info(void) { return FLOWK_BUILD_INFO; }

const char* flowk_dtype_string(flowk_dtype dtype) {
  const char* name = flowk::api::dtype_info(dtype).name;
  return name != nullptr ? name : "unknown flowk_dtype";
}

size_t flowk_dtype_bytes(flowk_dtype dtype) { return static_cast<size_t>(flowk::api::dtype_info(dtype).element_bytes); }

size_t flowk_dtype_alignment_bytes(flowk_dtype dtype) {
  return static_cast<size_t>(flowk::api::dtype_info(dtype).alignment_bytes);
}

}  // extern "C"
