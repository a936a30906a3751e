// SPDX-License-Identifier: Apache-2.0
// Status: how every internal function reports failure. The text goes to this thread's flowk_last_error().
#pragma once

#include "core/namespaces.h"
#include "flowk/flowk.h"

namespace flowk::core {

class [[nodiscard]] Status {
 public:
  Status() = default;
  // Fails with `code`; the printf-style text names the parameter, its value and the bound ("rows = -3, must be >= 0").
  [[gnu::format(printf, 2, 3)]] static Status failure(flowk_status code, const char* format, ...);

  bool ok() const { return code_ == FLOWK_STATUS_SUCCESS; }
  flowk_status code() const { return code_; }

 private:
  flowk_status code_ = FLOWK_STATUS_SUCCESS;
};

// This thread's text of its last failure; "" when there was none.
const char* last_error_text();

}  // namespace flowk::core

// Returns from the calling function when `expression`, a Status, is a failure.
#define FLOWK_RETURN_IF_ERROR(expression)               \
  do {                                                  \
    ::flowk::core::Status flowk_status_ = (expression); \
    if (!flowk_status_.ok()) return flowk_status_;      \
  } while (false)
