// SPDX-License-Identifier: Apache-2.0
// The softmax kernels for inputs of bfloat16.
#include "softmax/softmax_launch.cuh"

namespace flowk::softmax {

Status run_softmax_bfloat16(const SoftmaxPlan& plan, flowk_stream stream) {
  return launch_softmax<BFloat16>(plan, stream);
}

}  // namespace flowk::softmax
