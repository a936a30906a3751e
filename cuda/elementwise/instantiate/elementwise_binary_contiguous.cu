// SPDX-License-Identifier: Apache-2.0
#include "elementwise/elementwise_dispatch.cuh"

namespace flowk::elementwise {

Status run_binary_contiguous(const ElementwisePlan& plan, flowk_stream stream) {
  return run_one_of<ElementwiseArity::binary, ElementwiseKernel::contiguous, ElementwiseKernel::broadcast,
                    ElementwiseKernel::broadcast_rows>(plan, stream);
}

}  // namespace flowk::elementwise
