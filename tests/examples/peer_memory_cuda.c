/* SPDX-License-Identifier: Apache-2.0 */
/* By CUDA IPC: memory of cudaMalloc(), on GPUs that access each other's memory, or on one GPU. */
#include <cuda_runtime_api.h>
#include <string.h>

#include "peer_memory.h"

static const char *text_of(cudaError_t error) { return error == cudaSuccess ? NULL : cudaGetErrorString(error); }

const char *peer_choose_device(int rank) {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  return text_of(error != cudaSuccess ? error : cudaSetDevice(rank % num_devices));
}

const char *peer_allocate(size_t bytes, void **memory, peer_handle *handle) {
  cudaIpcMemHandle_t ipc;
  cudaError_t error = cudaMalloc(memory, bytes);
  if (error == cudaSuccess) error = cudaIpcGetMemHandle(&ipc, *memory);
  if (error == cudaSuccess) memcpy(handle->bytes, &ipc, sizeof(ipc));
  return text_of(error);
}

const char *peer_open(const peer_handle *handle, size_t bytes, void **memory) {
  cudaIpcMemHandle_t ipc;
  (void)bytes;
  memcpy(&ipc, handle->bytes, sizeof(ipc));
  return text_of(cudaIpcOpenMemHandle(memory, ipc, cudaIpcMemLazyEnablePeerAccess));
}

const char *peer_copy(void *dst, const void *src, size_t bytes) {
  return text_of(cudaMemcpy(dst, src, bytes, cudaMemcpyDefault));
}

const char *peer_synchronize(void) { return text_of(cudaDeviceSynchronize()); }

const char *peer_close(void *memory, size_t bytes) {
  (void)bytes;
  return text_of(cudaIpcCloseMemHandle(memory));
}

const char *peer_free(void *memory, size_t bytes, const peer_handle *handle) {
  (void)bytes;
  (void)handle;
  return text_of(cudaFree(memory));
}
