// SPDX-License-Identifier: Apache-2.0
// run_softmax(): selects the file of the plan's mechanism.
#include "softmax/softmax_run.h"

namespace flowk::softmax {

Status run_softmax(const SoftmaxPlan& plan, flowk_stream stream) {
  switch (part_of(plan.config.kernel())) {
    case SoftmaxPart::row_in_registers: return run_softmax_part<SoftmaxPart::row_in_registers>(plan, stream);
    case SoftmaxPart::several_rows: return run_softmax_part<SoftmaxPart::several_rows>(plan, stream);
    default: return run_softmax_part<SoftmaxPart::long_row>(plan, stream);
  }
}

}  // namespace flowk::softmax
