// SPDX-License-Identifier: Apache-2.0
// run_elementwise(): from the plan's arity and kernel to the file of instantiate/ that has it.
#include "elementwise/elementwise_dispatch.cuh"

namespace flowk::elementwise {

Status run_elementwise(const ElementwisePlan& plan, flowk_stream stream) {
  const bool is_contiguous = plan.kernel == ElementwiseKernel::contiguous;
  const bool is_broadcast =
      plan.kernel == ElementwiseKernel::broadcast || plan.kernel == ElementwiseKernel::broadcast_rows;
  switch (plan.arity) {
    case ElementwiseArity::unary: return (is_contiguous ? run_unary_contiguous : run_unary_strided)(plan, stream);
    case ElementwiseArity::binary:
      return (is_contiguous  ? run_binary_contiguous
              : is_broadcast ? run_binary_broadcast
                             : run_binary_strided)(plan, stream);
    case ElementwiseArity::ternary: return run_ternary(plan, stream);
    case ElementwiseArity::functor: break;  // the caller has the kernel
  }
  return unknown_plan(plan);
}

}  // namespace flowk::elementwise
