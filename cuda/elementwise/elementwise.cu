// SPDX-License-Identifier: Apache-2.0
// run_elementwise(): one switch from the plan's arity to the file that holds its kernels.
#include "elementwise/elementwise_launch.cuh"

namespace flowk {

Status run_elementwise(const ElementwisePlan& plan, flowk_stream stream) {
  switch (plan.arity) {
    case ElementwiseArity::copy: return run_copy(plan, stream);
    case ElementwiseArity::unary: return run_unary(plan, stream);
    case ElementwiseArity::binary: return run_binary(plan, stream);
    case ElementwiseArity::ternary: return run_ternary(plan, stream);
  }
  return unknown_plan(plan);
}

}  // namespace flowk
