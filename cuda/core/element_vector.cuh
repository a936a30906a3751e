// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes of a tensor, at any alignment and at its ends.
#pragma once

#include "core/values.cuh"

namespace flowk::core {

template <class T>
union ElementVector {
  uint4 whole;
  T elements[vector_width<T>];
};

// tensor[first], ..., tensor[first + V - 1]. An element that does not exist is taken from `absent`. tensor[first] is
// `shift` bytes past a multiple of 16: a shifted vector is cut from the two aligned ones that hold it, and at the
// tensor's ends loaded element by element. With kWhole the vector exists and is aligned.
template <class T, bool kWhole>
__device__ __forceinline__ uint4 load_elements(const void* tensor, int64_t first, int64_t num_elements, int shift,
                                               const uint4& absent = {0, 0, 0, 0}) {
  constexpr int V = vector_width<T>;
  const T* elements = static_cast<const T*>(tensor) + first;
  if (kWhole) return *reinterpret_cast<const uint4*>(elements);
  const int num_read = shift == 0 ? V : 2 * V - shift / static_cast<int>(sizeof(T));
  if (first >= 0 && first + num_read <= num_elements) {
    const uint4* aligned = reinterpret_cast<const uint4*>(reinterpret_cast<const unsigned char*>(elements) - shift);
    return shift == 0 ? aligned[0] : shift_vectors(aligned[0], aligned[1], shift);
  }
  ElementVector<T> vector;
  vector.whole = absent;
#pragma unroll
  for (int j = 0; j < V; ++j)
    if (first + j >= 0 && first + j < num_elements) vector.elements[j] = elements[j];
  return vector.whole;
}

// Keeps the load of `vector` where it is written. Otherwise the compiler moves it down to the vector's first use, after
// the loads and the branches that find the alphas.
__device__ __forceinline__ void issue_load([[maybe_unused]] uint4& vector) {
#ifndef FLOWK_SIMT
  asm volatile("" : "+r"(vector.x), "+r"(vector.y), "+r"(vector.z), "+r"(vector.w));
#endif
}

// Stores the elements that exist. With kWhole all of them do.
template <class T, bool kWhole>
__device__ __forceinline__ void store_elements(void* tensor, int64_t first, int64_t num_elements, const uint4& bytes) {
  constexpr int V = vector_width<T>;
  T* elements = static_cast<T*>(tensor) + first;
  if (kWhole || (first >= 0 && first + V <= num_elements)) {
    store_vector(elements, bytes);
  } else {
    const ElementVector<T> vector = {bytes};
#pragma unroll
    for (int j = 0; j < V; ++j)
      if (first + j >= 0 && first + j < num_elements) elements[j] = vector.elements[j];
  }
}

}  // namespace flowk::core
