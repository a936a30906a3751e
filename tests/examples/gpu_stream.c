/* SPDX-License-Identifier: Apache-2.0 */
/* C on a GPU: device memory of cudaMalloc, and a stream.
 * Build: cc gpu_stream.c $(pkg-config --cflags --libs flowk) -I$CUDA_HOME/include -L$CUDA_HOME/lib64 -lcudart */
#include <cuda_runtime_api.h>
#include <flowk/flowk.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA(call)                                                                          \
  do {                                                                                      \
    const cudaError_t error = (call);                                                       \
    if (error != cudaSuccess) return fprintf(stderr, "%s\n", cudaGetErrorString(error)), 1; \
  } while (0)

int main(void) {
  enum { rows = 512, columns = 384 };
  const size_t bytes = sizeof(float) * rows * columns;
  float *const host = malloc(bytes), *const result = malloc(bytes);
  float *src = NULL, *dst = NULL;
  cudaStream_t stream = NULL;
  flowk_status status;
  int i, num_wrong = 0;
  if (host == NULL || result == NULL) return 1;
  for (i = 0; i < rows * columns; ++i) host[i] = (float)i;
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc((void **)&src, bytes));
  CUDA(cudaMalloc((void **)&dst, bytes));
  CUDA(cudaMemcpyAsync(src, host, bytes, cudaMemcpyHostToDevice, stream));
  status = flowk_batch_transpose(src, dst, 1, rows, columns, FLOWK_FLOAT32, stream); /* enqueued, not waited for */
  if (status != FLOWK_STATUS_SUCCESS) {
    fprintf(stderr, "%s: %s\n", flowk_status_string(status), flowk_last_error());
    return 1;
  }
  CUDA(cudaMemcpyAsync(result, dst, bytes, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (i = 0; i < rows * columns; ++i) num_wrong += result[i] != host[i % rows * columns + i / rows];
  printf("%d of %d elements are wrong\n", num_wrong, rows * columns);
  CUDA(cudaFree(src));
  CUDA(cudaFree(dst));
  CUDA(cudaStreamDestroy(stream));
  free(host);
  free(result);
  return num_wrong != 0;
}
