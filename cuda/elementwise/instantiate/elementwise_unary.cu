// SPDX-License-Identifier: Apache-2.0
#include "elementwise/elementwise_dispatch.cuh"

namespace flowk::elementwise {

Status run_unary(const ElementwisePlan& plan, flowk_stream stream) {
  return run_one_of<ElementwiseArity::unary, ElementwiseKernel::contiguous, ElementwiseKernel::strided,
                    ElementwiseKernel::aligned_tiles, ElementwiseKernel::shifted_tiles>(plan, stream);
}

}  // namespace flowk::elementwise
