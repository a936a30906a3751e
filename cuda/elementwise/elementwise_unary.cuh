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
    const auto run = [&](auto ops) {
      using Functor = UnaryFunctor<Compute, narrow, decltype(ops)>;
      return Launch::template run<kN, Functor, Any, Any>(
          plan, Functor{plan.op, parameter<Compute>(plan.a), parameter<Compute>(plan.b)}, stream);
    };
    const OpWeight weight = weight_of(static_cast<flowk_unary_op>(plan.op));
    if (weight == OpWeight::light) return run(OpsOf<OpWeight::light>());
    if constexpr (Launch::has_kernel_per_op) {
      switch (plan.op) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula)                             \
  case FLOWK_UNARY_##NAME:                                                                                \
    if constexpr (weight_of(FLOWK_UNARY_##NAME) != OpWeight::light && (takes::kinds & taken_as<Compute>)) \
      return run(OneOp<FLOWK_UNARY_##NAME>());                                                            \
    break;
        FLOWK_UNARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
      }
    } else {
      if constexpr (std::is_floating_point_v<Compute>) {
        if (weight == OpWeight::heavy) return run(OpsOf<OpWeight::heavy>());
        return run(OpsOf<OpWeight::heaviest>());
      }
    }
    return unknown_plan(plan);
  });
}

}  // namespace flowk
