// SPDX-License-Identifier: Apache-2.0
// A formula of your own, in CUDA C++: of a transposed operand, and of one that is broadcast.
// Build: nvcc -std=c++20 -arch=native functor.cu $(python -m pyflowk --cflags) -L$LIB -lflowk -Xlinker=-rpath,$LIB
#include <cstdio>
#include <flowk/elementwise_views.cuh>
#include <vector>

struct ScaledSum {
  float scale;
  __device__ float operator()(float x, float bias) const { return scale * x + bias; }
};

int main() {
  constexpr int64_t rows = 300, columns = 200;
  std::vector<float> host(rows * columns);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(i);
  float *x = nullptr, *bias = nullptr, *out = nullptr;
  if (cudaMalloc(&x, host.size() * sizeof(float)) != cudaSuccess ||
      cudaMalloc(&bias, columns * sizeof(float)) != cudaSuccess ||
      cudaMalloc(&out, host.size() * sizeof(float)) != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(cudaGetLastError()));
    return 1;
  }
  cudaMemcpy(x, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemcpy(bias, host.data(), columns * sizeof(float), cudaMemcpyHostToDevice);
  try {
    flowk::transform(ScaledSum{2.0f}, nullptr, flowk::view{out, {rows, columns}},
                     flowk::view{x, {rows, columns}, {1, rows}}, flowk::view{bias, {columns}});
  } catch (const flowk::error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::vector<float> result(host.size());
  if (cudaMemcpy(result.data(), out, host.size() * sizeof(float), cudaMemcpyDeviceToHost) != cudaSuccess) return 1;
  int num_wrong = 0;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) num_wrong += result[i * columns + j] != 2 * host[j * rows + i] + host[j];
  std::printf("%d elements are wrong\n", num_wrong);
  return num_wrong != 0;
}
