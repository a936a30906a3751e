// SPDX-License-Identifier: Apache-2.0
// dispatch_unary(): what launches the kernels of unary operations, by what they compute in and how heavy they are.
#pragma once

#include "elementwise/elementwise_launch.cuh"

namespace flowk {

template <class Launch>
Status dispatch_unary(const ElementwisePlan& plan, flowk_stream stream) {
  return visit_compute(plan, [&](auto compute, auto pack, auto largest) -> Status {
    using Compute = decltype(compute);
    using Any = AnyElement<Compute, decltype(largest)::value>;
    constexpr int kN = decltype(pack)::value;
    constexpr bool narrow = std::is_same_v<Compute, float> && kN > 4;
    const auto run = [&](auto functor) {
      return Launch::template run<kN, decltype(functor), Any, Any>(plan, functor, stream);
    };
    switch (weight_of(static_cast<flowk_unary_op>(plan.op))) {
      case OpWeight::light:
        return run(UnaryFunctor<Compute, narrow, OpWeight::light>{plan.op, parameter<Compute>(plan.a),
                                                                  parameter<Compute>(plan.b)});
      case OpWeight::heavy:
        if constexpr (std::is_floating_point_v<Compute>)
          return run(UnaryFunctor<Compute, narrow, OpWeight::heavy>{plan.op, parameter<Compute>(plan.a),
                                                                    parameter<Compute>(plan.b)});
        break;
      case OpWeight::heaviest:
        if constexpr (std::is_floating_point_v<Compute>)
          return run(UnaryFunctor<Compute, narrow, OpWeight::heaviest>{plan.op, parameter<Compute>(plan.a),
                                                                       parameter<Compute>(plan.b)});
        break;
    }
    return unknown_plan(plan);
  });
}

}  // namespace flowk
