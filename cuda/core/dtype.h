// SPDX-License-Identifier: Apache-2.0
// Sizes of the element types of flowk.h.
#pragma once

#include "core/status.h"

namespace flowk::core {

struct DtypeInfo {
  const char* name = nullptr;  // nullptr: not a flowk_dtype
  int32_t element_bytes = 0;
  int32_t alignment_bytes = 0;
};

DtypeInfo dtype_info(flowk_dtype dtype);

// Fails with UNSUPPORTED_DTYPE if `dtype` is not a flowk_dtype; otherwise fills `info`.
Status check_dtype(const char* parameter, flowk_dtype dtype, DtypeInfo* info);

}  // namespace flowk::core
