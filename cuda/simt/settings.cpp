// SPDX-License-Identifier: Apache-2.0
#include "simt/settings.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace flowk::simt {
namespace {

constexpr int max_host_threads = 256;

const char* refuse(const char* variable, const char* text, const char* bound) {
  thread_local char error[200];
  std::snprintf(error, sizeof(error), "the environment variable %s = \"%.80s\", must be %s", variable, text, bound);
  return error;
}

}  // namespace

const char* read_settings(Settings* settings) {
  const char* order = std::getenv("FLOWK_SIMT_THREAD_ORDER");
  settings->reverse = order != nullptr && std::strcmp(order, "reverse") == 0;
  if (order != nullptr && !settings->reverse && std::strcmp(order, "forward") != 0)
    return refuse("FLOWK_SIMT_THREAD_ORDER", order, "forward or reverse");
  const char* capability = std::getenv("FLOWK_SIMT_CAPABILITY");
  settings->capability = capability != nullptr && std::strcmp(capability, "90") == 0 ? 90 : 0;
  if (capability != nullptr && settings->capability == 0 && std::strcmp(capability, "0") != 0)
    return refuse("FLOWK_SIMT_CAPABILITY", capability, "0 or 90");
  static const int num_cores = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, max_host_threads);
  settings->num_host_threads = num_cores;
  const char* threads = std::getenv("FLOWK_SIMT_THREADS");
  if (threads == nullptr) return nullptr;
  char* end = nullptr;
  const long number = std::strtol(threads, &end, 10);
  if (end == threads || *end != '\0' || number < 1 || number > max_host_threads)
    return refuse("FLOWK_SIMT_THREADS", threads, "1 ... 256");
  settings->num_host_threads = static_cast<int>(number);
  return nullptr;
}

}  // namespace flowk::simt
