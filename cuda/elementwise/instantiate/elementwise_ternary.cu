// SPDX-License-Identifier: Apache-2.0
#include "elementwise/elementwise_dispatch.cuh"

namespace flowk::elementwise {

Status run_ternary(const ElementwisePlan& plan, flowk_stream stream) {
  return run_one_of<ElementwiseArity::ternary, ElementwiseKernel::flat_packs, ElementwiseKernel::periodic_packs,
                    ElementwiseKernel::row_walk, ElementwiseKernel::strided_packs>(plan, stream);
}

}  // namespace flowk::elementwise
