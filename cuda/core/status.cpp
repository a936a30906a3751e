// SPDX-License-Identifier: Apache-2.0
#include "core/status.h"

#include <cstdarg>
#include <cstdio>

namespace flowk::core {
namespace {
thread_local char last_error[512];
}  // namespace

Status Status::failure(flowk_status code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error, sizeof(last_error), format, arguments);
  va_end(arguments);
  Status status;
  status.code_ = code;
  return status;
}

const char* last_error_text() { return last_error; }

}  // namespace flowk::core
