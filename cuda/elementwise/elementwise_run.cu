// SPDX-License-Identifier: Apache-2.0
// run_elementwise(): from the plan's arity and kernel to the file of instantiate/ that has it.
#include "elementwise/elementwise_dispatch.cuh"

namespace flowk::elementwise {

// run_binary_contiguous() has the kernels up to broadcast_rows, run_binary_strided() the others.
static_assert(ElementwiseKernel::contiguous < ElementwiseKernel::broadcast_rows &&
              ElementwiseKernel::broadcast < ElementwiseKernel::broadcast_rows &&
              ElementwiseKernel::strided > ElementwiseKernel::broadcast_rows &&
              ElementwiseKernel::aligned_tiles > ElementwiseKernel::broadcast_rows &&
              ElementwiseKernel::shifted_tiles > ElementwiseKernel::broadcast_rows);

Status run_elementwise(const ElementwisePlan& plan, flowk_stream stream) {
  switch (plan.arity) {
    case ElementwiseArity::unary: return run_unary(plan, stream);
    case ElementwiseArity::binary:
      if (plan.kernel() <= ElementwiseKernel::broadcast_rows) return run_binary_contiguous(plan, stream);
      return run_binary_strided(plan, stream);
    case ElementwiseArity::ternary: return run_ternary(plan, stream);
    case ElementwiseArity::functor: break;  // the caller has the kernel
  }
  return unknown_plan(plan);
}

}  // namespace flowk::elementwise
