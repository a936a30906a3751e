// SPDX-License-Identifier: Apache-2.0
// dispatch_binary(): what launches the kernels of binary operations, by what they compute in and how heavy they are.
#pragma once

#include "elementwise/elementwise_launch.cuh"

namespace flowk {

template <class Launch>
Status dispatch_binary(const ElementwisePlan& plan, flowk_stream stream) {
  return visit_compute(plan, [&](auto compute, auto pack, auto largest) -> Status {
    using Compute = decltype(compute);
    using Any = AnyElement<Compute, decltype(largest)::value>;
    constexpr int kN = decltype(pack)::value;
    constexpr bool narrow = std::is_same_v<Compute, float> && kN > 4;
    const auto run = [&](auto ops) {
      using Functor = BinaryFunctor<Compute, narrow, decltype(ops)>;
      return Launch::template run<kN, Functor, Any, Any, Any>(plan, Functor{plan.op}, stream);
    };
    const OpWeight weight = weight_of(static_cast<flowk_binary_op>(plan.op));
    if (weight == OpWeight::light) return run(OpsOf<OpWeight::light>());
    if constexpr (Launch::has_kernel_per_op) {
      switch (plan.op) {
#define FLOWK_CASE(NAME, value, name, kinds, result, num_parameters, formula)                              \
  case FLOWK_BINARY_##NAME:                                                                                \
    if constexpr (weight_of(FLOWK_BINARY_##NAME) != OpWeight::light && (takes::kinds & taken_as<Compute>)) \
      return run(OneOp<FLOWK_BINARY_##NAME>());                                                            \
    break;
        FLOWK_BINARY_OPS(FLOWK_CASE)
#undef FLOWK_CASE
      }
    } else {
      if (weight == OpWeight::heavy) return run(OpsOf<OpWeight::heavy>());
      if constexpr (std::is_floating_point_v<Compute>) return run(OpsOf<OpWeight::heaviest>());
    }
    return unknown_plan(plan);
  });
}

}  // namespace flowk
