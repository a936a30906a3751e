// SPDX-License-Identifier: Apache-2.0
// The softmax kernels for inputs of float16.
#include "softmax/softmax_launch.cuh"

template flowk::core::Status flowk::softmax::run_softmax_of<FLOWK_FLOAT16>(const SoftmaxPlan&, flowk_stream);
