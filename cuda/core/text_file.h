// SPDX-License-Identifier: Apache-2.0
// Text files that a caller or an environment variable names.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "core/status.h"

namespace flowk::core {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

inline File open_file(const char* path, const char* mode) { return {std::fopen(path, mode), std::fclose}; }

// The next line without its end; false at the end of the file.
inline bool next_line(std::FILE* file, std::string* line) {
  line->clear();
  for (int c = std::getc(file); c != EOF; c = std::getc(file)) {
    if (c == '\n') return true;
    line->push_back(static_cast<char>(c));
  }
  return !line->empty();
}

// False, with errno, if not all of the text is in the file.
inline bool write_text(std::FILE* file, const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

// INVALID_ARGUMENT with the text of errno; `name` is what gave the path.
inline Status file_failure(const char* name, const char* path, const char* what) {
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = \"%.200s\" %s: %s", name, path, what,
                         std::strerror(errno));
}

}  // namespace flowk::core
