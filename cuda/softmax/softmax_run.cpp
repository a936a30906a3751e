// SPDX-License-Identifier: Apache-2.0
// run_softmax(): selects the file of the plan's input type.
#include "softmax/softmax_run.h"

namespace flowk::softmax {

Status run_softmax(const SoftmaxPlan& plan, flowk_stream stream) {
  switch (plan.in_dtype) {
    case FLOWK_FLOAT16: return run_softmax_of<FLOWK_FLOAT16>(plan, stream);
    case FLOWK_BFLOAT16: return run_softmax_of<FLOWK_BFLOAT16>(plan, stream);
    case FLOWK_FLOAT32: return run_softmax_of<FLOWK_FLOAT32>(plan, stream);
    case FLOWK_FLOAT64: return run_softmax_of<FLOWK_FLOAT64>(plan, stream);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.in_dtype = %d, must be a float of 16 to 64 bits",
                         static_cast<int>(plan.in_dtype));
}

}  // namespace flowk::softmax
