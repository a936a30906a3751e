// SPDX-License-Identifier: Apache-2.0
#include "core/text_writer.h"

#include <cstdarg>
#include <cstdio>

namespace flowk::core {

void TextWriter::add(const char* format, ...) {
  if (used + 1 >= size) return;
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text + used, size - used, format, arguments);
  va_end(arguments);
  if (length > 0) used += static_cast<size_t>(length);
  if (used >= size) used = size - 1;
}

void TextWriter::add_list(const int64_t* values, int count) {
  add("(");
  for (int i = 0; i < count; ++i) add(i == 0 ? "%lld" : ", %lld", static_cast<long long>(values[i]));
  add(")");
}

void TextWriter::add_launch(int64_t num_blocks, int num_threads, int shared_bytes) {
  add("  launch: %lld block%s of %d threads, %d bytes of shared memory", static_cast<long long>(num_blocks),
      plural(num_blocks), num_threads, shared_bytes);
}

}  // namespace flowk::core
