// SPDX-License-Identifier: Apache-2.0
// run_strided_copy(): strided packs and tiles.
#include "elementwise/elementwise_copy.cuh"

namespace flowk::elementwise {

Status run_strided_copy(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_copy<LaunchStrided>(plan, stream);
}

}  // namespace flowk::elementwise
