// SPDX-License-Identifier: Apache-2.0
// limit_to_resident(): the grid of a persistent kernel, whose blocks take one piece of work after another.
#pragma once

#include <atomic>

#include "core/launch.cuh"

namespace flowk::core {

// Limits the grid to the clusters that are resident at once with one block per multiprocessor. A cluster lies in one
// GPC, so some multiprocessors stay free: an H200 of 132 multiprocessors holds 30 clusters of 4 blocks, 15 of 8, or 7
// of 16. The runtime is asked once per device and cluster size, for blocks that use all of a multiprocessor's shared
// memory, so that the answer is the same for every kernel.
template <class... Parameters>
Status limit_to_resident(void (*kernel)(Parameters...), LaunchConfig* config) {
#ifdef FLOWK_SIMT
  (void)kernel;
  (void)config;
#else
  constexpr int max_devices = 64, num_sizes = 5;               // of 1 to 16 blocks
  static std::atomic<int> known[max_devices][num_sizes] = {};  // 0: not yet asked
  int ordinal = 0, clusters = 0, shared_bytes = 0;
  const int size = __builtin_ctz(static_cast<unsigned>(config->cluster_blocks));
  cudaError_t error = cudaGetDevice(&ordinal);
  if (error == cudaSuccess && ordinal < max_devices) clusters = known[ordinal][size].load(std::memory_order_relaxed);
  if (error == cudaSuccess && clusters == 0) {
    const void* const function = reinterpret_cast<const void*>(kernel);
    error = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal);
    if (error == cudaSuccess)
      error = raise_limits(function, {.shared_bytes = shared_bytes, .cluster_blocks = config->cluster_blocks}, false);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(config->cluster_blocks);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t launch_config = {};
    launch_config.gridDim = dim3(static_cast<unsigned>(config->cluster_blocks));
    launch_config.blockDim = dim3(static_cast<unsigned>(config->num_threads));
    launch_config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    launch_config.attrs = &cluster;
    launch_config.numAttrs = 1;
    if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch_config);
    if (error == cudaSuccess && ordinal < max_devices) known[ordinal][size].store(clusters, std::memory_order_relaxed);
  }
  if (error != cudaSuccess) {
    cudaGetLastError();
    return Status::failure(FLOWK_STATUS_CUDA_ERROR, "no number of resident clusters: %s", cudaGetErrorString(error));
  }
  const int64_t max_blocks = static_cast<int64_t>(clusters > 0 ? clusters : 1) * config->cluster_blocks;
  if (config->num_blocks > max_blocks) config->num_blocks = max_blocks;
#endif
  return {};
}

}  // namespace flowk::core
