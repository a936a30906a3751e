// SPDX-License-Identifier: Apache-2.0
// What the functions of the C ABI share: checks of their arguments, and the path check -> plan -> run.
#pragma once

#include <initializer_list>

#include "core/device.h"
#include "core/dtype.h"
#include "core/status.h"

namespace flowk::api {

// Neither NULL nor misaligned for `dtype`.
Status check_pointer(const char* parameter, const void* pointer, const DtypeInfo& dtype);

// `struct_bytes` is the size of the struct in one of the released headers.
Status check_struct_bytes(const char* parameter, size_t struct_bytes, std::initializer_list<size_t> released_bytes);

// The text of an `_explain` function where an extent is 0.
void explain_nothing(char* text, size_t text_bytes);

// A launch function. `check(&request, &is_empty)` checks the arguments and sets is_empty where there is nothing to do;
// `plan_and_run(request, device)` enqueues the work.
template <class Request, class Check, class PlanAndRun>
Status check_and_run(Check check, PlanAndRun plan_and_run) {
  Request request;
  bool is_empty = false;
  FLOWK_RETURN_IF_ERROR(check(&request, &is_empty));
  if (is_empty) return {};
  Device device;
  FLOWK_RETURN_IF_ERROR(current_device(&device));
  return plan_and_run(request, device);
}

// The end of an `_explain` function, after its checks: `write(device)` writes the plan as words to `text`.
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

// An `_explain` function: `check` as above, `write(request, device)` writes the plan as words to `text`.
template <class Request, class Check, class Write>
Status check_and_explain(char* text, size_t text_bytes, Check check, Write write) {
  Request request;
  bool is_empty = false;
  FLOWK_RETURN_IF_ERROR(check(&request, &is_empty));
  return explain_on_current_device(text, text_bytes, is_empty, [&](const Device& device) { write(request, device); });
}

}  // namespace flowk::api
