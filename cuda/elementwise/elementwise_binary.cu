// SPDX-License-Identifier: Apache-2.0
// run_binary(): packs.
#include "elementwise/elementwise_binary.cuh"

namespace flowk {

Status run_binary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_binary<LaunchPacks>(plan, stream);
}

}  // namespace flowk
