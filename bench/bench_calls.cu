// SPDX-License-Identifier: Apache-2.0
// What a call costs on the CPU, from C: microseconds to enqueue a small operation, and to launch an empty kernel.
//
//   nvcc -std=c++20 -O3 -Iinclude bench/bench_calls.cu -o bench_calls -Xlinker=libflowk.so.1
//   LD_LIBRARY_PATH=. ./bench_calls
//
// The operands are small, so that the CPU never waits for the GPU; before each round the queue is empty.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "flowk/flowk.h"

namespace {

constexpr int num_rounds = 101, calls_a_round = 100;
constexpr int64_t rows = 64, cols = 128;

struct Params {  // about what a kernel of flowk takes
  char bytes[256];
};

__global__ void empty_kernel(Params) {}

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

void check(flowk_status status) {
  if (status == FLOWK_STATUS_SUCCESS) return;
  std::fprintf(stderr, "%s\n", flowk_last_error());
  std::exit(1);
}

// The median of the rounds.
template <class Call>
double microseconds(Call call) {
  double times[num_rounds];
  for (double& time : times) {
    check(cudaDeviceSynchronize());
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls_a_round; ++i) call();
    time = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls_a_round;
  }
  std::sort(times, times + num_rounds);
  return times[num_rounds / 2];
}

double bare = 0;

template <class Call>
void print(const char* name, Call call) {
  check(call());
  const double time = microseconds([&] { check(call()); });
  std::printf("%-44s %6.2f us  %+6.2f\n", name, time, time - bare);
}

float* tensor() {
  float* pointer = nullptr;
  check(cudaMalloc(&pointer, sizeof(float) * rows * cols));
  check(cudaMemset(pointer, 0, sizeof(float) * rows * cols));
  return pointer;
}

cudaError_t launch_empty(cudaStream_t stream, bool uses_pdl) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(256);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = uses_pdl ? 1 : 0;
  return cudaLaunchKernelEx(&config, empty_kernel, Params());
}

}  // namespace

int main() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float *x = tensor(), *y = tensor(), *out = tensor(), *dx = tensor();
  int64_t workspace_bytes = 1 << 20;
  void* workspace = nullptr;
  check(cudaMalloc(&workspace, static_cast<size_t>(workspace_bytes)));
  const int64_t shape[2] = {rows, cols}, row_strides[2] = {0, 1}, column_strides[2] = {1, rows};
  const int32_t axes[2] = {1, 0};
  const flowk_dtype type = FLOWK_FLOAT32;

  bare = microseconds([&] { check(launch_empty(stream, false)); });
  std::printf("%-44s %6.2f us\n", "an empty kernel", bare);
  print("an empty kernel that overlaps the previous", [&] { return launch_empty(stream, true); });
  print("cudaGetDevice alone", [&] {
    int device = 0;
    return cudaGetDevice(&device);
  });
  print("flowk_permute (64, 128) -> (128, 64)",
        [&] { return flowk_permute(x, nullptr, out, nullptr, 2, shape, axes, type, stream); });
  print("flowk_unary relu",
        [&] { return flowk_unary(FLOWK_UNARY_RELU, x, nullptr, type, out, nullptr, type, 2, shape, 0, 0, stream); });
  print("flowk_binary add", [&] {
    return flowk_binary(FLOWK_BINARY_ADD, x, nullptr, type, y, nullptr, type, out, nullptr, type, 2, shape, stream);
  });
  print("flowk_binary add of a row", [&] {
    return flowk_binary(FLOWK_BINARY_ADD, x, nullptr, type, y, row_strides, type, out, nullptr, type, 2, shape, stream);
  });
  print("flowk_binary add of a transposed operand", [&] {
    return flowk_binary(FLOWK_BINARY_ADD, x, nullptr, type, y, column_strides, type, out, nullptr, type, 2, shape,
                        stream);
  });
  print("flowk_prelu", [&] { return flowk_prelu(x, y, out, rows, cols, 1, type, type, stream); });
  print("flowk_prelu_backward", [&] {
    return flowk_prelu_backward(out, x, y, dx, static_cast<float*>(workspace) + (1 << 16), rows, cols, 1, type, type,
                                workspace, 1 << 18, stream);
  });
  print("flowk_masked_softmax",
        [&] { return flowk_masked_softmax(x, nullptr, type, out, nullptr, type, 2, shape, 1, nullptr, 0, stream); });
  print("flowk_masked_softmax_backward", [&] {
    return flowk_masked_softmax_backward(y, nullptr, out, nullptr, type, dx, nullptr, type, 2, shape, 1, nullptr, 0,
                                         stream);
  });
  check(cudaDeviceSynchronize());
  return 0;
}
