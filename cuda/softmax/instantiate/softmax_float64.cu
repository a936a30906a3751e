// SPDX-License-Identifier: Apache-2.0
// The softmax kernels for inputs of float64.
#include "softmax/softmax_launch.cuh"

template flowk::core::Status flowk::softmax::run_softmax_of<FLOWK_FLOAT64>(const SoftmaxPlan&, flowk_stream);
