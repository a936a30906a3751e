// SPDX-License-Identifier: Apache-2.0
// launch_kernel(): starts a kernel on a GPU. Host code.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <initializer_list>
#include <type_traits>

#include "flowk/detail/kernel_set.h"
#include "flowk/detail/launch_shape.h"

namespace flowk::detail {

// What a launch may have without an attribute of its kernel.
constexpr int32_t shared_bytes_without_opt_in = 48 * 1024;
constexpr int32_t portable_cluster_blocks = 8;

// The kernels whose attributes are set.
inline KernelSet kernels_with_all_shared_memory, kernels_with_large_clusters;

inline bool needs_raised_limits(const LaunchConfig& config) {
  return config.shared_bytes > shared_bytes_without_opt_in || config.cluster_blocks > portable_cluster_blocks;
}

// Lets launches of `kernel` on the current device have as much shared memory, and as large clusters, as `config`. These
// limits are attributes of the kernel, not of a launch, so each is set once and to the device's maximum. A thread that
// set the bytes of its own launch could lower the limit before another thread's launch. `again`: sets them even if they
// are set.
inline cudaError_t raise_limits(const void* kernel, const LaunchConfig& config, bool again) {
  if (!needs_raised_limits(config)) return cudaSuccess;
  const bool is_large = config.shared_bytes > shared_bytes_without_opt_in;
  const bool has_large_clusters = config.cluster_blocks > portable_cluster_blocks;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess && is_large && (again || !kernels_with_all_shared_memory.contains(kernel, device))) {
    int device_bytes = 0;
    cudaFuncAttributes attributes;
    error = cudaDeviceGetAttribute(&device_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaSuccess)
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   device_bytes - static_cast<int>(attributes.sharedSizeBytes));
    if (error == cudaSuccess) kernels_with_all_shared_memory.insert(kernel, device);
  }
  if (error == cudaSuccess && has_large_clusters && (again || !kernels_with_large_clusters.contains(kernel, device))) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error == cudaSuccess) kernels_with_large_clusters.insert(kernel, device);
  }
  return error;
}

// Enqueues the kernel `function` on `stream` with the parameters at `addresses`. This function is compiled once, not
// once per kernel.
[[gnu::noinline]] inline cudaError_t launch_by_addresses(const void* function, const LaunchConfig& config,
                                                         cudaStream_t stream, void** addresses) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t launch = {dim3(static_cast<unsigned>(config.num_blocks)),
                               dim3(static_cast<unsigned>(config.num_threads)),
                               static_cast<size_t>(config.shared_bytes),
                               stream,
                               attributes,
                               0};
  if (config.cluster_blocks > 1) {
    cudaLaunchAttribute& cluster = attributes[launch.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(config.cluster_blocks);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  if (config.uses_pdl) {
    cudaLaunchAttribute& overlap = attributes[launch.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaError_t error = raise_limits(function, config, false);
  if (error == cudaSuccess) error = cudaLaunchKernelExC(&launch, function, addresses);
  // A kernel has attributes of its own in a second context of the device, and loses them by cudaDeviceReset().
  if (error != cudaSuccess && needs_raised_limits(config)) {
    cudaGetLastError();
    error = raise_limits(function, config, true);
    if (error == cudaSuccess) error = cudaLaunchKernelExC(&launch, function, addresses);
  }
  return error;
}

// Enqueues `kernel` on `stream`. Its parameters have the kernel's types, so that a launch copies none of them.
template <class... Parameters>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const LaunchConfig& config, cudaStream_t stream,
                          const std::type_identity_t<Parameters>&... parameters) {
  void* addresses[] = {const_cast<void*>(static_cast<const void*>(&parameters))...};
  return launch_by_addresses(reinterpret_cast<const void*>(kernel), config, stream, addresses);
}

#ifdef __CUDA_ARCH_LIST__
// Does every GPU from sm_90 on run code that is compiled for sm_90 or newer?
constexpr bool has_code_for_sm_90 = [] {
  bool has_900 = false, has_older = false;
  for (const int arch : {__CUDA_ARCH_LIST__}) {
    has_900 |= arch == 900;
    has_older |= arch < 900;
  }
  return has_900 || !has_older;
}();
#else
constexpr bool has_code_for_sm_90 = false;
#endif

// Device::runs_pdl() of the current device, for kernels of this compilation. The runtime is asked once per device.
inline cudaError_t current_device_runs_pdl(bool* runs_pdl) {
  constexpr int max_devices = 64;
  static std::atomic<int> capabilities[max_devices] = {};  // the major number; 0: not yet asked
  *runs_pdl = false;
  if (!has_code_for_sm_90) return cudaSuccess;
  int device = 0, major = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess && device < max_devices) major = capabilities[device].load(std::memory_order_relaxed);
  if (error == cudaSuccess && major == 0) {
    error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess && device < max_devices) capabilities[device].store(major, std::memory_order_relaxed);
  }
  *runs_pdl = error == cudaSuccess && major >= 9;
  return error;
}

}  // namespace flowk::detail
