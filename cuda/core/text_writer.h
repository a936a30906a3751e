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

// "s" after a count of things, but not after 1.
constexpr const char* plural(int64_t count) { return count == 1 ? "" : "s"; }

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
  // "  launch: 4 blocks of 128 threads, 0 bytes of shared memory", without the line's end.
  void add_launch(int64_t num_blocks, int num_threads, int shared_bytes);
  // A line that says why the call is slower than a copy, and what to change.
  void add_slow(const char* reason) { add("  slow because %s\n", reason); }
};

}  // namespace flowk::core
