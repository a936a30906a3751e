// SPDX-License-Identifier: Apache-2.0
// run_softmax_merge(): from the plan's type to a launch.
#include "core/launch.cuh"
#include "softmax/kernels/merge_rows.cuh"

namespace flowk::softmax {

Status run_softmax_merge(const MergeRowsPlan& plan, flowk_stream stream) {
  switch (plan.dtype) {
    case FLOWK_FLOAT16: return launch(merge_rows<Float16>, plan.launch, stream, plan.params);
    case FLOWK_BFLOAT16: return launch(merge_rows<BFloat16>, plan.launch, stream, plan.params);
    case FLOWK_FLOAT32: return launch(merge_rows<float>, plan.launch, stream, plan.params);
    default: return launch(merge_rows<double>, plan.launch, stream, plan.params);
  }
}

}  // namespace flowk::softmax
