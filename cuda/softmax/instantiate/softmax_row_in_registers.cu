// SPDX-License-Identifier: Apache-2.0
// The softmax kernels of row_in_registers.
#include "softmax/softmax_launch.cuh"

template flowk::core::Status flowk::softmax::run_softmax_part<flowk::softmax::SoftmaxPart::row_in_registers>(
    const SoftmaxPlan&, flowk_stream);
