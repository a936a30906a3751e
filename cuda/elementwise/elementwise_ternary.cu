// SPDX-License-Identifier: Apache-2.0
// run_ternary(): the kernels of ternary operations, by what they compute in.
#include "elementwise/elementwise_launch.cuh"

namespace flowk {

Status run_ternary(const ElementwisePlan& plan, flowk_stream stream) {
  return visit_compute(plan, [&](auto compute, auto pack, auto largest) -> Status {
    using Compute = decltype(compute);
    using Any = AnyElement<Compute, decltype(largest)::value>;
    using Functor = TernaryFunctor<Compute, decltype(pack)::value>;
    return launch_packs<decltype(pack)::value, Functor, Any, Any, Any, Any>(
        plan, Functor{plan.op, parameter<Compute>(plan.a)}, stream);
  });
}

}  // namespace flowk
