// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "core/cuda_status.h"
#include "core/device.h"
#include "core/gpu_archs.h"

namespace flowk::core {
namespace {

// The numbers of one device. The first thread that has read them from the runtime keeps them here.
struct KnownDevice {
  std::atomic<bool> is_known{false};
  Device device;
};
constexpr int max_devices = 64;
KnownDevice known_devices[max_devices];
std::mutex filling;

Status failure_of(cudaError_t error) {
  cudaGetLastError();
  // The runtime reports a missing driver as an insufficient one.
  int driver = 0;
  if (error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess && driver < CUDART_VERSION) {
    if (driver == 0)
      return Status::failure(FLOWK_STATUS_NO_DEVICE, "no usable CUDA device: no NVIDIA driver (libcuda.so.1) is found");
    return Status::failure(FLOWK_STATUS_NO_DEVICE,
                           "no usable CUDA device: the NVIDIA driver supports CUDA %d.%d, this libflowk needs "
                           "CUDA %d.0 or newer",
                           driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000);
  }
  return Status::failure(status_of(error), "no usable CUDA device: %s", cudaGetErrorString(error));
}

cudaError_t read_device(int ordinal, Device* device) {
  int major = 0, minor = 0;
  const struct {
    cudaDeviceAttr attribute;
    int* value;
  } wanted[] = {{cudaDevAttrComputeCapabilityMajor, &major},
                {cudaDevAttrComputeCapabilityMinor, &minor},
                {cudaDevAttrMultiProcessorCount, &device->num_multiprocessors},
                {cudaDevAttrMaxSharedMemoryPerMultiprocessor, &device->shared_bytes_per_multiprocessor},
                {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device->shared_bytes_per_block}};
  for (const auto& item : wanted) {
    const cudaError_t error = cudaDeviceGetAttribute(item.value, item.attribute, ordinal);
    if (error != cudaSuccess) return error;
  }
  device->capability = 10 * major + minor;
  return cudaSuccess;
}

}  // namespace

Status current_device(Device* device) {
  int ordinal = 0;
  cudaError_t error = cudaGetDevice(&ordinal);
  if (error != cudaSuccess) return failure_of(error);
  if (ordinal >= max_devices)
    return Status::failure(FLOWK_STATUS_NO_DEVICE, "device ordinal = %d, must be < %d", ordinal, max_devices);
  KnownDevice& known = known_devices[ordinal];
  if (!known.is_known.load(std::memory_order_acquire)) {
    Device found;
    error = read_device(ordinal, &found);
    if (error != cudaSuccess) return failure_of(error);
    if (!has_code_for(FLOWK_GPU_ARCHS, found.capability))
      return Status::failure(FLOWK_STATUS_NO_DEVICE,
                             "device %d is sm_%d, for which this libflowk has no code: it is built with gpu_archs=%s",
                             ordinal, found.capability, FLOWK_GPU_ARCHS);
    if (found.capability >= 90 && !newer_gpus_run_code_for_sm_90(FLOWK_GPU_ARCHS)) found.capability = 89;
    const std::lock_guard lock(filling);
    if (!known.is_known.load(std::memory_order_relaxed)) {
      known.device = found;
      known.is_known.store(true, std::memory_order_release);
    }
  }
  *device = known.device;
  return {};
}

Status current_device_name(char (*name)[device_name_bytes]) {
  int ordinal = 0;
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDevice(&ordinal);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, ordinal);
  if (error != cudaSuccess) return failure_of(error);
  static_assert(sizeof(properties.name) == device_name_bytes);
  std::memcpy(*name, properties.name, sizeof(properties.name));
  return {};
}

}  // namespace flowk::core
