// SPDX-License-Identifier: Apache-2.0
// The kernels of every elementwise operation, flowk's own and a user's: out[i] = functor(x[i], y[i], ...). Device code
// for nvcc, the CPU executor, and NVRTC (up to 13.0 with --device-as-default-execution-space, because of the lambdas).
// elementwise.cuh and flowk's own plan fill in the parameters.
#pragma once

#include "flowk/detail/elementwise_aligned_tiles.cuh"
#include "flowk/detail/elementwise_broadcast.cuh"
#include "flowk/detail/elementwise_broadcast_rows.cuh"
#include "flowk/detail/elementwise_contiguous.cuh"
#include "flowk/detail/elementwise_shifted_tiles.cuh"
#include "flowk/detail/elementwise_strided.cuh"
