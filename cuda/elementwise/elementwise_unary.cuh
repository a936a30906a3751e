// SPDX-License-Identifier: Apache-2.0
// dispatch_unary(): what launches the kernels of unary operations.
#pragma once

#include "elementwise/elementwise_weighted.cuh"

namespace flowk {

#define FLOWK_ROW(NAME, value, name, kinds, result, num_parameters, formula) {FLOWK_UNARY_##NAME, takes::kinds},
inline constexpr OpRow<flowk_unary_op> unary_rows[] = {FLOWK_UNARY_OPS(FLOWK_ROW)};
#undef FLOWK_ROW

template <class Launch>
Status dispatch_unary(const ElementwisePlan& plan, flowk_stream stream) {
  return visit_compute(plan, [&](auto compute, auto pack, auto largest) -> Status {
    using Compute = decltype(compute);
    using Any = AnyElement<Compute, decltype(largest)::value>;
    constexpr int kN = decltype(pack)::value;
    constexpr bool narrow = std::is_same_v<Compute, float> && kN > 4;
    return run_by_weight<Launch, Compute, unary_rows>(plan, [&](auto ops) {
      using Functor = UnaryFunctor<Compute, narrow, decltype(ops)>;
      return Launch::template run<kN, Functor, Any, Any>(
          plan, Functor{plan.op, parameter<Compute>(plan.a), parameter<Compute>(plan.b)}, stream);
    });
  });
}

}  // namespace flowk
