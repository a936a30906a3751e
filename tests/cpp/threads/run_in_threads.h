// SPDX-License-Identifier: Apache-2.0
// Calls work(0), work(1), ... from a thread each, all at the same time.
#pragma once

#include <barrier>
#include <thread>
#include <vector>

constexpr int num_test_threads = 8;

template <class Work>
void run_in_threads(const Work& work) {
  std::barrier start(num_test_threads);
  std::vector<std::jthread> threads;
  for (int n = 0; n < num_test_threads; ++n)
    threads.emplace_back([&, n] {
      start.arrive_and_wait();
      work(n);
    });
}
