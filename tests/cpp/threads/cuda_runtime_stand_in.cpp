// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_stand_in.h"

#include <chrono>
#include <cstring>
#include <thread>

using namespace stand_in;

// Other threads come between two calls of a thread.
static void let_others_run() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "stand-in");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  let_others_run();
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = 132; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 233472; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_bytes_per_block; break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  *found = {};
  found->sharedSizeBytes = static_shared_bytes;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  ++num_attributes_set;
  if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
    attributes_of(function).may_have_large_clusters = value != 0;
  } else {
    if (value > shared_bytes_per_block - static_shared_bytes) return cudaErrorInvalidValue;
    attributes_of(function).shared_bytes = value;
  }
  let_others_run();
  return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  const Attributes& own = attributes_of(function);
  if (config->dynamicSmemBytes > static_cast<size_t>(own.shared_bytes.load())) return cudaErrorInvalidValue;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension && attribute.val.clusterDim.x > 8 &&
        !own.may_have_large_clusters)
      return cudaErrorInvalidClusterSize;
    num_pdl_launches += attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization;
  }
  last_argument = *static_cast<const int*>(arguments[0]);
  ++num_launches;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
