// SPDX-License-Identifier: Apache-2.0
// TEST(name) { ... } defines a test and registers it; main() returns run_tests(argc, argv). CHECK prints a condition
// that does not hold, and goes on; after the test its name is printed too.
//
//   program             runs all tests in the order of the file; returns 0 if all checks held
//   program NAME ...    runs these tests
//   program --list      prints the names
#pragma once

#include <cstdio>
#include <cstring>
#include <vector>

inline int num_failed_checks = 0;

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::printf("%s:%d: in %s: %s\n", __FILE__, __LINE__, __func__, #condition); \
      ++num_failed_checks;                                                         \
    }                                                                              \
  } while (false)

struct Test {
  const char* name;
  void (*run)();
};
inline std::vector<Test> registered_tests;

#define TEST(name)                                                                                              \
  static void name();                                                                                           \
  [[maybe_unused]] static const bool name##_is_registered = (registered_tests.push_back({#name, &name}), true); \
  static void name()

inline int run_tests(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--list") == 0) {
    for (const Test& test : registered_tests) std::printf("%s\n", test.name);
    return 0;
  }
  size_t num_run = 0;
  for (const Test& test : registered_tests) {
    bool is_wanted = argc == 1;
    for (int i = 1; i < argc; ++i) is_wanted = is_wanted || std::strcmp(argv[i], test.name) == 0;
    if (!is_wanted) continue;
    const int num_failed_before = num_failed_checks;
    test.run();
    if (num_failed_checks != num_failed_before)
      std::printf("failed: %s, %d checks\n", test.name, num_failed_checks - num_failed_before);
    ++num_run;
  }
  const size_t num_wanted = argc == 1 ? registered_tests.size() : static_cast<size_t>(argc - 1);
  if (num_run != num_wanted) std::printf("%zu of %zu tests exist; --list prints their names\n", num_run, num_wanted);
  return num_failed_checks == 0 && num_run == num_wanted && num_run > 0 ? 0 : 1;
}
