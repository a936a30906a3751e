// SPDX-License-Identifier: Apache-2.0
// The softmax kernels for inputs of float32.
#include "softmax/softmax_launch.cuh"

namespace flowk::softmax {

Status run_softmax_float32(const SoftmaxPlan& plan, flowk_stream stream) { return launch_softmax<float>(plan, stream); }

}  // namespace flowk::softmax
