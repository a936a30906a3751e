// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "core/cuda_status.h"
#include "core/stopwatch.h"

namespace flowk::core {
namespace {

Status status_from(cudaError_t error) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  return Status::failure(status_of(error), "CUDA: %s", cudaGetErrorString(error));
}

}  // namespace

Status Stopwatch::open(flowk_stream stream) {
  stream_ = stream;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  FLOWK_RETURN_IF_ERROR(status_from(cudaStreamIsCapturing(stream, &capture)));
  if (capture != cudaStreamCaptureStatusNone)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT,
                           "stream = %p captures a CUDA graph, must not: the call waits for it",
                           static_cast<void*>(stream));
  cudaEvent_t begin = nullptr, end = nullptr;
  FLOWK_RETURN_IF_ERROR(status_from(cudaEventCreate(&begin)));
  begin_ = begin;
  FLOWK_RETURN_IF_ERROR(status_from(cudaEventCreate(&end)));
  end_ = end;
  return {};
}

Stopwatch::~Stopwatch() {
  if (begin_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(begin_));
  if (end_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(end_));
}

Status Stopwatch::start() { return status_from(cudaEventRecord(static_cast<cudaEvent_t>(begin_), stream_)); }

Status Stopwatch::stop(double* us) {
  float ms = 0;
  FLOWK_RETURN_IF_ERROR(status_from(cudaEventRecord(static_cast<cudaEvent_t>(end_), stream_)));
  FLOWK_RETURN_IF_ERROR(status_from(cudaEventSynchronize(static_cast<cudaEvent_t>(end_))));
  FLOWK_RETURN_IF_ERROR(
      status_from(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin_), static_cast<cudaEvent_t>(end_))));
  *us = 1000.0 * static_cast<double>(ms);
  return {};
}

}  // namespace flowk::core
