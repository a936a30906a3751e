// SPDX-License-Identifier: Apache-2.0
// run_copy(): packs.
#include "elementwise/elementwise_copy.cuh"

namespace flowk {

Status run_copy(const ElementwisePlan& plan, flowk_stream stream) { return dispatch_copy<LaunchPacks>(plan, stream); }

}  // namespace flowk
