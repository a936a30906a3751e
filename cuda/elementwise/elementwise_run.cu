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
  if (plan.arity == ElementwiseArity::functor) return unknown_plan(plan);  // the caller has the kernel
  switch (file_of(plan.arity, plan.kernel())) {
    case ElementwiseFile::unary: return run_file<ElementwiseFile::unary>(plan, stream);
    case ElementwiseFile::binary_contiguous: return run_file<ElementwiseFile::binary_contiguous>(plan, stream);
    case ElementwiseFile::binary_strided: return run_file<ElementwiseFile::binary_strided>(plan, stream);
    case ElementwiseFile::ternary: return run_file<ElementwiseFile::ternary>(plan, stream);
  }
  return unknown_plan(plan);
}

}  // namespace flowk::elementwise
