// SPDX-License-Identifier: Apache-2.0
// The softmax kernels with a row in shared memory, or in several blocks.
#include "softmax/softmax_launch.cuh"

template flowk::core::Status flowk::softmax::run_softmax_part<flowk::softmax::SoftmaxPart::long_row>(const SoftmaxPlan&,
                                                                                                     flowk_stream);
