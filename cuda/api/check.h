// SPDX-License-Identifier: Apache-2.0
// Checks that several functions of the C ABI make.
#pragma once

#include "core/device.h"
#include "core/dtype.h"
#include "core/status.h"

namespace flowk::api {

// Neither NULL nor misaligned for `dtype`.
Status check_pointer(const char* parameter, const void* pointer, const DtypeInfo& dtype);

// The text of an `_explain` function where an extent is 0.
void explain_nothing(char* text, size_t text_bytes);

// What every `_explain` function does once its arguments are checked: `write(device)` writes the plan's words to
// `text`.
template <class Write>
Status explain_on_current_device(char* text, size_t text_bytes, bool is_empty, Write write) {
  if (text == nullptr) return Status::failure(FLOWK_STATUS_NULL_POINTER, "text = NULL, must not be");
  if (is_empty) {
    explain_nothing(text, text_bytes);
    return {};
  }
  Device device;
  FLOWK_RETURN_IF_ERROR(current_device(&device));
  write(device);
  return {};
}

}  // namespace flowk::api
