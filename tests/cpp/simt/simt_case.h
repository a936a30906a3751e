// SPDX-License-Identifier: Apache-2.0
// What the tests of the CPU executor share.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "check.h"
#include "core/launch.cuh"

using flowk::core::launch;
using flowk::core::LaunchConfig;
namespace simt = flowk::simt;

inline void set_order(const char* order) { setenv("FLOWK_SIMT_THREAD_ORDER", order, 1); }
inline void set_capability(const char* capability) { setenv("FLOWK_SIMT_CAPABILITY", capability, 1); }
inline void set_host_threads(const char* number) { setenv("FLOWK_SIMT_THREADS", number, 1); }

// The fault's text, "" for success.
template <class... Parameters, class... Arguments>
std::string launch_fault(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments... arguments) {
  const flowk::core::Status status = launch(kernel, config, nullptr, arguments...);
  if (status.ok()) return "";
  CHECK(status.code() == FLOWK_STATUS_INTERNAL_ERROR);
  return flowk::core::last_error_text();
}

inline bool contains(const std::string& text, const char* part) {
  if (text.find(part) != std::string::npos) return true;
  std::printf("\"%s\" is not in \"%s\"\n", part, text.c_str());
  return false;
}
