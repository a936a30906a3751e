// SPDX-License-Identifier: Apache-2.0
// The softmax kernels for inputs of bfloat16.
#include "softmax/softmax_launch.cuh"

template flowk::core::Status flowk::softmax::run_softmax_of<FLOWK_BFLOAT16>(const SoftmaxPlan&, flowk_stream);
