// SPDX-License-Identifier: Apache-2.0
// launch(): the only way to start a kernel, on a GPU or on the CPU executor.
#pragma once

#include <initializer_list>
#include <utility>

#include "core/launch_config.h"
#include "core/status.h"
#include "flowk/detail/target.cuh"

#ifdef FLOWK_SIMT
#include "simt/executor.h"
#else
#include "core/cuda_status.h"
#endif

namespace flowk::core {

#ifdef __CUDA_ARCH_LIST__
// Whether every GPU from sm_90 on runs code compiled for sm_90 or newer. If not, kernels use no feature of sm_90.
constexpr bool has_code_for_sm_90 = [] {
  bool has_900 = false, has_older = false;
  for (const int arch : {__CUDA_ARCH_LIST__}) {
    has_900 |= arch == 900;
    has_older |= arch < 900;
  }
  return has_900 || !has_older;
}();
#endif

// Enqueues `kernel` on `stream` (nvcc), or runs the whole grid before it returns (FLOWK_SIMT). An empty grid is
// success.
template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), const LaunchConfig& config, flowk_stream stream,
              Arguments&&... arguments) {
  if (config.num_blocks == 0) return {};
  if (config.num_blocks > max_grid_blocks)
    return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "a plan has a grid of %lld blocks, must be <= %lld",
                           static_cast<long long>(config.num_blocks), static_cast<long long>(max_grid_blocks));
#ifdef FLOWK_SIMT
  (void)stream;
  if (config.cluster_blocks != 1)
    return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "a plan for the executor has clusters of %d blocks",
                           config.cluster_blocks);
  const char* fault = simt::run_grid(config, [&] { kernel(arguments...); });
  if (fault != nullptr) return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "%s", fault);
  return {};
#else
  if (config.cluster_blocks > 1 && !has_code_for_sm_90)
    return Status::failure(FLOWK_STATUS_INTERNAL_ERROR,
                           "clusters need code for sm_90, and this libflowk has none: build it with gpu_archs=90");
  constexpr int32_t shared_bytes_without_opt_in = 48 * 1024;
  cudaError_t error = cudaSuccess;
  if (config.shared_bytes > shared_bytes_without_opt_in)
    error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 config.shared_bytes);
  constexpr int32_t portable_cluster_blocks = 8;
  if (error == cudaSuccess && config.cluster_blocks > portable_cluster_blocks)
    error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error == cudaSuccess) {
    cudaLaunchConfig_t launch_config = {};
    launch_config.gridDim = dim3(static_cast<unsigned>(config.num_blocks));
    launch_config.blockDim = dim3(static_cast<unsigned>(config.num_threads));
    launch_config.dynamicSmemBytes = static_cast<size_t>(config.shared_bytes);
    launch_config.stream = stream;
    cudaLaunchAttribute attributes[2] = {};
    launch_config.attrs = attributes;
    if (config.cluster_blocks > 1) {
      cudaLaunchAttribute& cluster = attributes[launch_config.numAttrs++];
      cluster.id = cudaLaunchAttributeClusterDimension;
      cluster.val.clusterDim.x = static_cast<unsigned>(config.cluster_blocks);
      cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    }
    if (config.uses_pdl && has_code_for_sm_90) {
      cudaLaunchAttribute& overlap = attributes[launch_config.numAttrs++];
      overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      overlap.val.programmaticStreamSerializationAllowed = 1;
    }
    error = cudaLaunchKernelEx(&launch_config, kernel, std::forward<Arguments>(arguments)...);
  }
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // the error is reported here; do not leave it for the caller's own next check
  return Status::failure(status_of(error), "kernel launch failed: %s", cudaGetErrorString(error));
#endif
}

}  // namespace flowk::core
