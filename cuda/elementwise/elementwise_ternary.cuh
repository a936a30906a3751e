// SPDX-License-Identifier: Apache-2.0
// dispatch_ternary(): what launches the kernels of ternary operations, by what they compute in.
#pragma once

#include "elementwise/elementwise_launch.cuh"

namespace flowk::elementwise {

template <class Launch>
Status dispatch_ternary(const ElementwisePlan& plan, flowk_stream stream) {
  return visit_compute(plan, [&](auto compute, auto pack, auto largest) -> Status {
    using Compute = decltype(compute);
    using Any = AnyElement<Compute, decltype(largest)::value>;
    using Functor = TernaryFunctor<Compute, decltype(pack)::value>;
    return Launch::template run<decltype(pack)::value, Functor, Any, Any, Any, Any>(
        plan, Functor{plan.op, parameter<Compute>(plan.a)}, stream);
  });
}

}  // namespace flowk::elementwise
