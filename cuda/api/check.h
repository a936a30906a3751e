// SPDX-License-Identifier: Apache-2.0
// Checks that several functions of the C ABI make.
#pragma once

#include "core/dtype.h"
#include "core/status.h"

namespace flowk {

// Neither NULL nor misaligned for `dtype`.
Status check_pointer(const char* parameter, const void* pointer, const DtypeInfo& dtype);

// The text of an `_explain` function where an extent is 0.
void explain_nothing(char* text, size_t text_bytes);

}  // namespace flowk
