// SPDX-License-Identifier: Apache-2.0
// The softmax kernels for inputs of float32.
#include "softmax/softmax_launch.cuh"

template flowk::core::Status flowk::softmax::run_softmax_of<FLOWK_FLOAT32>(const SoftmaxPlan&, flowk_stream);
