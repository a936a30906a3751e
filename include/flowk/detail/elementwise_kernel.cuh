// SPDX-License-Identifier: Apache-2.0
// The kernels of every elementwise operation, flowk's own and a user's: out[i] = functor(x[i], y[i], ...). Device code
// for nvcc, NVRTC (13.0 and before with --device-as-default-execution-space, for the lambdas) and the executor;
// elementwise.cuh and flowk's own plan fill their parameters in.
#pragma once

#include "flowk/detail/elementwise_linear.cuh"
#include "flowk/detail/elementwise_row_walk.cuh"
#include "flowk/detail/elementwise_shifted_tiles.cuh"
#include "flowk/detail/elementwise_strided.cuh"
#include "flowk/detail/elementwise_tiles.cuh"
