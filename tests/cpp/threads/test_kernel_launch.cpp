// SPDX-License-Identifier: Apache-2.0
// launch_kernel(): the attributes of kernels and of launches.
#include <atomic>

#include "check.h"
#include "cuda_runtime_stand_in.h"
#include "flowk/detail/kernel_launch.cuh"
#include "run_in_threads.h"

using namespace flowk::detail;

namespace {

cudaError_t launch(int kernel, const LaunchConfig& config, int argument = 0) {
  return launch_kernel(stand_in::kernel(kernel), config, nullptr, argument);
}

LaunchConfig with_shared(int shared_bytes) {
  return {.num_blocks = 1, .num_threads = 32, .shared_bytes = shared_bytes};
}

// The attributes that launches on the current device set.
template <class Launches>
int attributes_set_by(const Launches& launches) {
  const int before = stand_in::num_attributes_set;
  launches();
  return stand_in::num_attributes_set - before;
}

}  // namespace

TEST(threads_launch_a_kernel_with_different_shared_memory) {
  std::atomic<int> num_failures = 0;
  const int num_set = attributes_set_by([&] {
    run_in_threads([&](int thread) {
      stand_in::current = thread / 4;
      const int shared_bytes = thread % 2 == 0 ? 57 * 1024 : 101 * 1024;
      for (int i = 0; i < 1000; ++i) num_failures += launch(0, with_shared(shared_bytes)) != cudaSuccess;
    });
  });
  CHECK(num_failures == 0);
  CHECK(num_set >= 2 && num_set <= num_test_threads);
}

TEST(limits_are_raised_once_for_a_kernel_and_a_device_if_a_launch_needs_it) {
  for (stand_in::current = 0; stand_in::current < stand_in::num_devices; ++stand_in::current) {
    const auto small = [] { CHECK(launch(1, with_shared(48 * 1024)) == cudaSuccess); };
    const auto large = [] {
      CHECK(launch(1, with_shared(48 * 1024 + 1)) == cudaSuccess);
      CHECK(launch(1, with_shared(stand_in::shared_bytes_per_block - stand_in::static_shared_bytes)) == cudaSuccess);
    };
    const auto clusters = [] {
      for (const int blocks : {8, 16})
        CHECK(launch(1, {.num_blocks = 16, .num_threads = 32, .cluster_blocks = blocks}) == cudaSuccess);
    };
    CHECK(attributes_set_by(small) == 0);
    CHECK(attributes_set_by(large) == 1);
    CHECK(attributes_set_by(clusters) == 1);
    for (int i = 0; i < 3; ++i)
      CHECK(attributes_set_by(small) + attributes_set_by(large) + attributes_set_by(clusters) == 0);
  }
  stand_in::current = 0;
  CHECK(launch(1, with_shared(stand_in::shared_bytes_per_block)) == cudaErrorInvalidValue);
}

TEST(limits_are_raised_again_where_they_are_lost) {
  const auto launches = [] {
    CHECK(launch(2, {.num_blocks = 16, .num_threads = 32, .shared_bytes = 100000, .cluster_blocks = 16}) ==
          cudaSuccess);
  };
  CHECK(attributes_set_by(launches) == 2);
  CHECK(attributes_set_by(launches) == 0);
  stand_in::forget_attributes();
  CHECK(attributes_set_by(launches) == 2);
  CHECK(attributes_set_by(launches) == 0);
}

TEST(more_kernels_than_the_set_holds_are_launched) {
  for (int turn = 0; turn < 2; ++turn)
    for (int kernel = 0; kernel < stand_in::num_kernels; ++kernel)
      CHECK(launch(kernel, with_shared(100000)) == cudaSuccess);
}

TEST(a_launch_has_its_argument_and_pdl_if_the_plan_says_so) {
  const int before = stand_in::num_pdl_launches;
  LaunchConfig config = with_shared(0);
  CHECK(launch(3, config, 41) == cudaSuccess);
  CHECK(stand_in::last_argument == 41 && stand_in::num_pdl_launches == before);
  config.uses_pdl = true;
  CHECK(launch(3, config, 42) == cudaSuccess);
  CHECK(stand_in::last_argument == 42 && stand_in::num_pdl_launches == before + 1);
}
