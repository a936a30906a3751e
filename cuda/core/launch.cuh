// SPDX-License-Identifier: Apache-2.0
// launch(): the only way to start a kernel, on a GPU or on the CPU executor.
#pragma once

#include "core/launch_config.h"
#include "core/status.h"
#include "flowk/detail/target.cuh"

#ifdef FLOWK_SIMT
#include "simt/executor.h"
#else
#include "core/cuda_status.h"
#include "flowk/detail/kernel_launch.cuh"
#endif

namespace flowk::core {

[[gnu::noinline]] inline Status grid_failure(int64_t num_blocks) {
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "a plan has a grid of %lld blocks, must be <= %lld",
                         static_cast<long long>(num_blocks), static_cast<long long>(max_grid_blocks));
}

#ifndef FLOWK_SIMT
[[gnu::noinline]] inline Status launch_failure(cudaError_t error) {
  cudaGetLastError();  // the error is reported here; do not leave it for the caller's own next check
  return Status::failure(status_of(error), "kernel launch failed: %s", cudaGetErrorString(error));
}
#endif

// Enqueues `kernel` on `stream` (nvcc), or runs the whole grid before it returns (FLOWK_SIMT). An empty grid is
// success.
template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), const LaunchConfig& config, flowk_stream stream,
              const Arguments&... arguments) {
  if (config.num_blocks == 0) return {};
  if (config.num_blocks > max_grid_blocks) return grid_failure(config.num_blocks);
#ifdef FLOWK_SIMT
  (void)stream;
  const char* fault = simt::run_grid(config, [&] { kernel(arguments...); });
  if (fault != nullptr) return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "%s", fault);
  return {};
#else
  const cudaError_t error = launch_kernel(kernel, config, stream, arguments...);
  return error == cudaSuccess ? Status{} : launch_failure(error);
#endif
}

}  // namespace flowk::core
