// SPDX-License-Identifier: Apache-2.0
// TextWriter: printf-like text into a caller's buffer, for the `_explain` functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/namespaces.h"

namespace flowk::core {

// The text of an enumerator. `texts` has one for each enumerator, in order.
template <class Enum, size_t n>
const char* text_of(Enum value, const char* const (&texts)[n]) {
  return static_cast<size_t>(value) < n ? texts[static_cast<size_t>(value)] : "unknown";
}

// Appends to a buffer that may be too small, and keeps it ended by a NUL.
struct TextWriter {
  char* text;
  size_t size;
  size_t used = 0;

  TextWriter(char* buffer, size_t buffer_bytes) : text(buffer), size(buffer_bytes) {
    if (size > 0) text[0] = '\0';
  }
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...);
  void add_list(const int64_t* values, int count);  // (1, 2, 3)
  // A line that says why the call is slower than a copy, and what to change.
  void add_slow(const char* reason) { add("  slow because %s\n", reason); }
};

}  // namespace flowk::core
