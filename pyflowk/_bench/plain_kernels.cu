// SPDX-License-Identifier: Apache-2.0
//
// The kernels that the articles start from, written from their descriptions: one element per thread, an index by
// division, a mask that is read at every pass. NVRTC compiles them for `python -m pyflowk bench --rivals plain`.

extern "C" {

struct PermuteIndex {
  int rank, count;
  int dst_extents[8];
  int src_strides[8];  // in the order of dst's dimensions
};

// dst[i] = src[j]: i is taken apart by dst's extents, j put together by src's strides.
#define PERMUTE(NAME, TYPE)                                                             \
  __global__ void NAME(const TYPE* src, TYPE* dst, const PermuteIndex index) {          \
    const int stride = blockDim.x * gridDim.x;                                          \
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < index.count; i += stride) { \
      int rest = i, offset = 0;                                                         \
      for (int dim = index.rank - 1; dim >= 0; --dim) {                                 \
        offset += rest % index.dst_extents[dim] * index.src_strides[dim];               \
        rest /= index.dst_extents[dim];                                                 \
      }                                                                                 \
      dst[i] = src[offset];                                                             \
    }                                                                                   \
  }
PERMUTE(permute_1, unsigned char)
PERMUTE(permute_2, unsigned short)
PERMUTE(permute_4, unsigned int)
PERMUTE(permute_8, unsigned long long)

// y[i] = half(x[i])
__global__ void cast_to_half(const float* x, unsigned short* y, const long long count) {
  const long long stride = static_cast<long long>(blockDim.x) * gridDim.x;
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < count; i += stride) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y[i]) : "f"(x[i]));
  }
}

// y[i] = x[i] > 0 ? x[i] : alpha[i / inner % channels] * x[i]
__global__ void prelu(const float* x, const float* alpha, float* y, const int count, const int channels,
                      const int inner) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x * gridDim.x) {
    y[i] = x[i] > 0 ? x[i] : alpha[i / inner % channels] * x[i];
  }
}

__device__ float warp_max(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, lanes));
  return value;
}

__device__ float warp_sum(float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  return value;
}

// y = softmax(scale x) of a row where mask is 0, else 0: one warp per row, in three passes. Blocks (b, h, q).
__global__ void softmax_by_mask(const float* x, const bool* mask, float* y, const int columns, const float scale) {
  const long long row = (blockIdx.x * static_cast<long long>(gridDim.y) + blockIdx.y) * gridDim.z + blockIdx.z;
  x += row * columns;
  y += row * columns;
  mask += (blockIdx.x * static_cast<long long>(gridDim.z) + blockIdx.z) * columns;
  float largest = -3.402823466e38f;
  for (int i = threadIdx.x; i < columns; i += 32) {
    if (!mask[i]) largest = fmaxf(largest, x[i] * scale);
  }
  largest = warp_max(largest);
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += 32) {
    if (!mask[i]) sum += expf(x[i] * scale - largest);
  }
  sum = warp_sum(sum);
  for (int i = threadIdx.x; i < columns; i += 32) y[i] = mask[i] ? 0 : expf(x[i] * scale - largest) / sum;
}

// The same where the first lengths[row] columns are unmasked.
__global__ void softmax_by_length(const float* x, const int* lengths, float* y, const int columns, const float scale) {
  const long long row = (blockIdx.x * static_cast<long long>(gridDim.y) + blockIdx.y) * gridDim.z + blockIdx.z;
  x += row * columns;
  y += row * columns;
  const int length = min(lengths[row], columns);
  float largest = -3.402823466e38f;
  for (int i = threadIdx.x; i < length; i += 32) largest = fmaxf(largest, x[i] * scale);
  largest = warp_max(largest);
  float sum = 0;
  for (int i = threadIdx.x; i < length; i += 32) sum += expf(x[i] * scale - largest);
  sum = warp_sum(sum);
  for (int i = threadIdx.x; i < columns; i += 32) y[i] = i < length ? expf(x[i] * scale - largest) / sum : 0;
}

}  // extern "C"
