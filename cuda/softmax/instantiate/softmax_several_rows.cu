// SPDX-License-Identifier: Apache-2.0
// The softmax kernels with several rows per block.
#include "softmax/softmax_launch.cuh"

template flowk::core::Status flowk::softmax::run_softmax_part<flowk::softmax::SoftmaxPart::several_rows>(
    const SoftmaxPlan&, flowk_stream);
