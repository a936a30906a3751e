// SPDX-License-Identifier: Apache-2.0
#include "api/check.h"

#include <cstdint>
#include <cstring>

namespace flowk::api {

Status check_pointer(const char* parameter, const void* pointer, const DtypeInfo& dtype) {
  if (pointer == nullptr) return Status::failure(FLOWK_STATUS_NULL_POINTER, "%s = NULL, must not be", parameter);
  if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(dtype.alignment_bytes) != 0)
    return Status::failure(FLOWK_STATUS_MISALIGNED_POINTER, "%s = %p, must be a multiple of %d for %s", parameter,
                           pointer, dtype.alignment_bytes, dtype.name);
  return {};
}

Status check_struct_bytes(const char* parameter, size_t struct_bytes, std::initializer_list<size_t> released_bytes) {
  for (const size_t bytes : released_bytes)
    if (struct_bytes == bytes) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %zu, must be %zu", parameter, struct_bytes,
                         released_bytes.end()[-1]);
}

void explain_nothing(char* text, size_t text_bytes) {
  constexpr char nothing[] = "nothing to do: an extent is 0\n";
  if (text_bytes > 0) std::strncpy(text, nothing, text_bytes - 1)[text_bytes - 1] = '\0';
}

}  // namespace flowk::api
