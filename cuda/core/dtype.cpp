// SPDX-License-Identifier: Apache-2.0
#include "core/dtype.h"

namespace flowk::core {

DtypeInfo dtype_info(flowk_dtype dtype) {
  switch (dtype) {
    case FLOWK_BOOL: return {"bool", 1, 1};
    case FLOWK_INT8: return {"int8", 1, 1};
    case FLOWK_INT16: return {"int16", 2, 2};
    case FLOWK_INT32: return {"int32", 4, 4};
    case FLOWK_INT64: return {"int64", 8, 8};
    case FLOWK_UINT8: return {"uint8", 1, 1};
    case FLOWK_UINT16: return {"uint16", 2, 2};
    case FLOWK_UINT32: return {"uint32", 4, 4};
    case FLOWK_UINT64: return {"uint64", 8, 8};
    case FLOWK_FLOAT16: return {"float16", 2, 2};
    case FLOWK_BFLOAT16: return {"bfloat16", 2, 2};
    case FLOWK_FLOAT32: return {"float32", 4, 4};
    case FLOWK_FLOAT64: return {"float64", 8, 8};
    case FLOWK_FLOAT8_E4M3: return {"float8_e4m3", 1, 1};
    case FLOWK_FLOAT8_E5M2: return {"float8_e5m2", 1, 1};
    case FLOWK_COMPLEX64: return {"complex64", 8, 4};
    case FLOWK_COMPLEX128: return {"complex128", 16, 8};
  }
  return {};
}

Status check_dtype(const char* parameter, flowk_dtype dtype, DtypeInfo* info) {
  *info = dtype_info(dtype);
  if (info->name != nullptr) return {};
  return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "%s = %d, must be a flowk_dtype (%d ... %d)", parameter, dtype,
                         FLOWK_BOOL, FLOWK_COMPLEX128);
}

}  // namespace flowk::core
