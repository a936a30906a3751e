// SPDX-License-Identifier: Apache-2.0
// run_elementwise(): one switch from the plan's arity to the file that holds its kernels.
#include "elementwise/elementwise_launch.cuh"

namespace flowk {

Status run_elementwise(const ElementwisePlan& plan, flowk_stream stream) {
  const bool in_tiles = plan.kernel == ElementwiseKernel::aligned_tiles;
  switch (plan.arity) {
    case ElementwiseArity::copy: return (in_tiles ? run_copy_tiles : run_copy)(plan, stream);
    case ElementwiseArity::unary: return (in_tiles ? run_unary_tiles : run_unary)(plan, stream);
    case ElementwiseArity::binary: return (in_tiles ? run_binary_tiles : run_binary)(plan, stream);
    case ElementwiseArity::ternary: return (in_tiles ? run_ternary_tiles : run_ternary)(plan, stream);
  }
  return unknown_plan(plan);
}

}  // namespace flowk
