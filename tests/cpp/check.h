// SPDX-License-Identifier: Apache-2.0
// CHECK: prints a condition that does not hold, and goes on. A test's main() returns num_failed_checks == 0 ? 0 : 1.
#pragma once

#include <cstdio>

inline int num_failed_checks = 0;

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::printf("%s:%d: in %s: %s\n", __FILE__, __LINE__, __func__, #condition); \
      ++num_failed_checks;                                                         \
    }                                                                              \
  } while (false)
