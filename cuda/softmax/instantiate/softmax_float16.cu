// SPDX-License-Identifier: Apache-2.0
// The softmax kernels for inputs of float16.
#include "softmax/softmax_launch.cuh"

namespace flowk::softmax {

Status run_softmax_float16(const SoftmaxPlan& plan, flowk_stream stream) {
  return launch_softmax<Float16>(plan, stream);
}

}  // namespace flowk::softmax
