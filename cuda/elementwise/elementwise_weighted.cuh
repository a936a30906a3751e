// SPDX-License-Identifier: Apache-2.0
// dispatch_by_weight(): what launches the kernels of unary and binary operations. An operation has a kernel alone or
// shares it, by how heavy it is.
#pragma once

#include <iterator>
#include <utility>

#include "elementwise/elementwise_launch.cuh"

namespace flowk::elementwise {

// An operation, and the classes of types that it takes.
template <class Op>
struct OpRow {
  Op op;
  int takes;
};

// Calls run(ops): light operations share a kernel; a heavier one has its own where out is linear, and elsewhere shares
// that of its weight. `kRows` are the operations of an arity.
template <class Launch, class Compute, const auto& kRows, class Run>
Status run_by_weight(const ElementwisePlan& plan, Run run) {
  using Op = std::remove_const_t<decltype(kRows[0].op)>;
  if (weight_of(static_cast<Op>(plan.op)) == OpWeight::light) return run(OpsOf<OpWeight::light>());
  Status status;
  bool is_known = false;
  const auto run_row = [&](auto index) {
    constexpr auto row = kRows[decltype(index)::value];
    if constexpr (weight_of(row.op) != OpWeight::light && (row.takes & taken_as<Compute>) != 0) {
      if (row.op != static_cast<Op>(plan.op)) return;
      is_known = true;
      if constexpr (Launch::has_kernel_per_op)
        status = run(OneOp<row.op>());
      else
        status = run(OpsOf<weight_of(row.op)>());
    }
  };
  [&]<size_t... i>(std::index_sequence<i...>) {
    (run_row(Constant<static_cast<int>(i)>()), ...);
  }(std::make_index_sequence<std::size(kRows)>());
  return is_known ? status : unknown_plan(plan);
}

// Launches the kernel of the plan's operation, one of `kRows`, of as many inputs.
template <class Launch, const auto& kRows, template <class, bool, class> class Functor, int kInputs>
Status dispatch_by_weight(const ElementwisePlan& plan, flowk_stream stream) {
  return visit_compute(plan, [&](auto compute, auto pack, auto largest) -> Status {
    using Compute = decltype(compute);
    using Any = AnyElement<Compute, decltype(largest)::value>;
    constexpr int kN = decltype(pack)::value;
    constexpr bool narrow = std::is_same_v<Compute, float> && kN > 4;
    return run_by_weight<Launch, Compute, kRows>(plan, [&](auto ops) {
      const auto functor = Functor<Compute, narrow, decltype(ops)>::make(plan.op, parameter<Compute>(plan.a),
                                                                         parameter<Compute>(plan.b));
      if constexpr (kInputs == 1)
        return Launch::template run<kN, std::remove_const_t<decltype(functor)>, Any, Any>(plan, functor, stream);
      else
        return Launch::template run<kN, std::remove_const_t<decltype(functor)>, Any, Any, Any>(plan, functor, stream);
    });
  });
}

}  // namespace flowk::elementwise
