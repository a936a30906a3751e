// SPDX-License-Identifier: Apache-2.0
#include "elementwise/elementwise_dispatch.cuh"

namespace flowk::elementwise {

Status run_ternary(const ElementwisePlan& plan, flowk_stream stream) {
  return run_one_of<ElementwiseArity::ternary, ElementwiseKernel::contiguous, ElementwiseKernel::broadcast,
                    ElementwiseKernel::broadcast_rows, ElementwiseKernel::strided>(plan, stream);
}

}  // namespace flowk::elementwise
