// SPDX-License-Identifier: Apache-2.0
// run_ternary(): packs.
#include "elementwise/elementwise_ternary.cuh"

namespace flowk {

Status run_ternary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_ternary<LaunchPacks>(plan, stream);
}

}  // namespace flowk
