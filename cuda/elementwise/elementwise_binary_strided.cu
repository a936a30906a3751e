// SPDX-License-Identifier: Apache-2.0
// run_strided_binary(): strided packs and tiles.
#include "elementwise/elementwise_binary.cuh"

namespace flowk::elementwise {

Status run_strided_binary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_binary<LaunchStrided>(plan, stream);
}

}  // namespace flowk::elementwise
