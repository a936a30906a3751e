// SPDX-License-Identifier: Apache-2.0
// What a kernel sees under FLOWK_SIMT instead of <cuda_runtime.h>: keywords, built-in variables, functions.
#pragma once

#include "simt/executor.h"

// The toolkit's headers of the vectors define some of these too.
#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__  // and stays undefined: shared<T>() is the only way
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#undef __cluster_dims__

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __noinline__  // empty, because libstdc++ writes __attribute__((__noinline__))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (::flowk::simt::position().thread)
#define blockIdx (::flowk::simt::position().block)
#define blockDim (::flowk::simt::position().block_dim)
#define gridDim (::flowk::simt::position().grid_dim)

#include "simt/clusters.h"
#include "simt/intrinsics.h"
#include "simt/synchronization.h"
