// SPDX-License-Identifier: Apache-2.0
// run_unary(): packs.
#include "elementwise/elementwise_unary.cuh"

namespace flowk {

Status run_unary(const ElementwisePlan& plan, flowk_stream stream) { return dispatch_unary<LaunchPacks>(plan, stream); }

}  // namespace flowk
