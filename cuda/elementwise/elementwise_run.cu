// SPDX-License-Identifier: Apache-2.0
// run_elementwise(): from the plan's arity and kernel to the file of instantiate/ that has it.
#include "elementwise/elementwise_dispatch.cuh"

namespace flowk::elementwise {

extern template Status run_file<ElementwiseFile::unary>(const ElementwisePlan& plan, flowk_stream stream);
extern template Status run_file<ElementwiseFile::binary_contiguous>(const ElementwisePlan& plan, flowk_stream stream);
extern template Status run_file<ElementwiseFile::binary_strided>(const ElementwisePlan& plan, flowk_stream stream);
extern template Status run_file<ElementwiseFile::ternary>(const ElementwisePlan& plan, flowk_stream stream);

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
