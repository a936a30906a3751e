// SPDX-License-Identifier: Apache-2.0
// shared<T>(): the only way to a block's shared memory, whose size is the launch's.
#pragma once

#include "flowk/detail/target.cuh"

namespace flowk::detail {

// The block's shared memory as a T at its start, aligned to 128 bytes. For a size known only at run time take
// `&shared<unsigned char>()`. On the executor it is an exact heap block, so that a sanitizer sees an overrun.
template <class T>
__device__ __forceinline__ T& shared() {
#ifdef FLOWK_SIMT
  return *static_cast<T*>(simt::block_shared_memory(sizeof(T)));
#else
  extern __shared__ __align__(128) unsigned char shared_memory[];
  return *reinterpret_cast<T*>(shared_memory);
#endif
}

}  // namespace flowk::detail
