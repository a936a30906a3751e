// SPDX-License-Identifier: Apache-2.0
// Conversion: how a kernel converts each element, as a kernel parameter.
#pragma once

#include <cstdint>

#include "core/namespaces.h"

namespace flowk::core {

// dst = narrow(scale * widen(src)), in float or double: core/convert_vector.cuh.
struct Conversion {
  int32_t src_dtype = 0;  // a flowk_dtype
  int32_t dst_dtype = 0;
  bool wraps = false;      // integers: dst = src modulo 2^bits; otherwise truncated and clamped
  bool in_double = false;  // the product is computed in double
  float float_scale = 1;
  double double_scale = 1;
  friend bool operator==(const Conversion&, const Conversion&) = default;
};

}  // namespace flowk::core
