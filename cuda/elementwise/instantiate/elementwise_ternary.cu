// SPDX-License-Identifier: Apache-2.0
#include "elementwise/elementwise_dispatch.cuh"

namespace flowk::elementwise {

template <>
Status run_file<ElementwiseFile::ternary>(const ElementwisePlan& plan, flowk_stream stream) {
  return run_kernels_of<ElementwiseFile::ternary, ElementwiseArity::ternary>(plan, stream);
}

}  // namespace flowk::elementwise
