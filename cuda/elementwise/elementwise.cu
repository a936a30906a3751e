// SPDX-License-Identifier: Apache-2.0
// run_elementwise(): one switch from the plan's arity to the file that holds its kernels.
#include "elementwise/elementwise_launch.cuh"

namespace flowk::elementwise {

Status run_elementwise(const ElementwisePlan& plan, flowk_stream stream) {
  const bool is_linear =
      plan.kernel == ElementwiseKernel::flat_packs || plan.kernel == ElementwiseKernel::periodic_packs;
  switch (plan.arity) {
    case ElementwiseArity::copy: return (is_linear ? run_linear_copy : run_strided_copy)(plan, stream);
    case ElementwiseArity::unary: return (is_linear ? run_linear_unary : run_strided_unary)(plan, stream);
    case ElementwiseArity::binary: return (is_linear ? run_linear_binary : run_strided_binary)(plan, stream);
    case ElementwiseArity::ternary: return (is_linear ? run_linear_ternary : run_strided_ternary)(plan, stream);
  }
  return unknown_plan(plan);
}

}  // namespace flowk::elementwise
