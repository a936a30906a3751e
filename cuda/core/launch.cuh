// SPDX-License-Identifier: Apache-2.0
// launch(): the only way to start a kernel, on a GPU or on the CPU executor.
#pragma once

#include <type_traits>

#include "core/status.h"
#include "flowk/detail/launch_shape.h"
#include "flowk/detail/target.cuh"

#ifdef FLOWK_SIMT
#include "simt/executor.h"
#else
#include "core/cuda_status.h"
#include "flowk/detail/kernel_launch.cuh"
#endif

namespace flowk::core {

inline Status check_grid_size(int64_t num_blocks) {
  if (num_blocks <= max_grid_blocks) return {};
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "a plan has a grid of %lld blocks, must be <= %lld",
                         static_cast<long long>(num_blocks), static_cast<long long>(max_grid_blocks));
}

#ifndef FLOWK_SIMT
// What the launches of all kernels have in common.
[[gnu::noinline]] inline Status launch_function(const void* kernel, const LaunchConfig& config, flowk_stream stream,
                                                void** addresses) {
  if (config.num_blocks == 0) return {};
  FLOWK_RETURN_IF_ERROR(check_grid_size(config.num_blocks));
  const cudaError_t error = detail::launch_by_addresses(kernel, config, stream, addresses);
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // clears the error, which is reported here, so that the caller's next check does not see it
  return Status::failure(status_of(error), "kernel launch failed: %s", cudaGetErrorString(error));
}
#endif

// Enqueues `kernel` on `stream` (nvcc), or runs the whole grid before it returns (FLOWK_SIMT). An empty grid is
// success. The parameters have the kernel's types, so that none is copied.
template <class... Parameters>
Status launch(void (*kernel)(Parameters...), const LaunchConfig& config, [[maybe_unused]] flowk_stream stream,
              const std::type_identity_t<Parameters>&... parameters) {
#ifdef FLOWK_SIMT
  if (config.num_blocks == 0) return {};
  FLOWK_RETURN_IF_ERROR(check_grid_size(config.num_blocks));
  const char* fault = simt::run_grid(config, [&] { kernel(parameters...); });
  return fault == nullptr ? Status{} : Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "%s", fault);
#else
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
  return launch_function(reinterpret_cast<const void*>(kernel), config, stream, addresses);
#endif
}

}  // namespace flowk::core
