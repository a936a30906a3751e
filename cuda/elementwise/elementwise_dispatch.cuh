// SPDX-License-Identifier: Apache-2.0
// From a plan to a launch: the plan's values pick the instantiation. The files of instantiate/ share the kernels.
#pragma once

#include <iterator>
#include <utility>

#include "core/launch.cuh"
#include "elementwise/device/elementwise_functors.cuh"
#include "elementwise/device/elementwise_types.cuh"
#include "elementwise/elementwise.h"

namespace flowk::elementwise {

inline Status unknown_plan(const ElementwisePlan& plan) {
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan: no kernel %s for compute class %d, packs of %d",
                         elementwise_kernel_name(plan.kernel()), static_cast<int>(plan.compute), plan.pack_elements);
}

// The compute classes by their C++ type.
template <class Compute>
constexpr ComputeClass class_of = std::is_same_v<Compute, float>     ? ComputeClass::float32
                                  : std::is_same_v<Compute, double>  ? ComputeClass::float64
                                  : std::is_same_v<Compute, int32_t> ? ComputeClass::int32
                                                                     : ComputeClass::int64;

// A parameter as an operation computes with it.
template <class Compute>
Compute parameter(double value) {
  if constexpr (std::is_floating_point_v<Compute>) {
    return static_cast<Compute>(value);
  } else {
    constexpr double end = static_cast<double>(uint64_t{1} << (std::numeric_limits<Compute>::digits - 1)) * 2;
    if (value >= end) return std::numeric_limits<Compute>::max();
    if (value <= (std::is_signed_v<Compute> ? -end : 0.0)) return std::numeric_limits<Compute>::min();
    return value == value ? static_cast<Compute>(value) : Compute{0};
  }
}
template <class Compute>
Compute parameter_of(const ElementwisePlan& plan, double value) {
  if constexpr (std::is_integral_v<Compute>) {
    if (plan.is_unsigned) return static_cast<Compute>(parameter<std::make_unsigned_t<Compute>>(value));
  }
  return parameter<Compute>(value);
}
template <class Compute>
Compute sign_flip_of(const ElementwisePlan& plan) {
  return plan.is_unsigned ? std::numeric_limits<Compute>::lowest() : Compute{0};
}

// The operations of an arity: kOps.
#define FLOWK_ROW(NAME, value, name, kinds, result, num_parameters, formula) UnaryOp(FLOWK_UNARY_##NAME),
inline constexpr UnaryOp unary_ops[] = {FLOWK_UNARY_OPS(FLOWK_ROW)};
#undef FLOWK_ROW
#define FLOWK_ROW(NAME, value, name, kinds, result, num_parameters, formula) BinaryOp(FLOWK_BINARY_##NAME),
inline constexpr BinaryOp binary_ops[] = {FLOWK_BINARY_OPS(FLOWK_ROW)};
#undef FLOWK_ROW

// Calls run(ops) with the operations that share a kernel with `op`, one of kOps. In contiguous these are the operations
// of its cost, or the operation alone. Other kernels need 40 registers and more themselves: there light operations
// share a kernel if that leaves room for one more block per SM, and all others share one. In shifted_tiles the heaviest
// operations have a kernel of their own only with two inputs in packs of 8. All operations of integers share a kernel,
// except divisions and powers of 16 bits, which would take registers from the light ones. float64 has
// heavy operations in contiguous and strided only. silu_mul has a strided kernel of its own, because its inputs are
// usually halves of rows.
template <ElementwiseKernel kKernel, class Compute, int kN, const auto& kOps, class Run>
Status visit_ops(int32_t op, Run run) {
  using enum OpCost;
  using enum ElementwiseKernel;
  using Op = std::remove_const_t<std::remove_reference_t<decltype(kOps[0])>>;
  constexpr bool is_unary = std::is_same_v<Op, UnaryOp>, is_double = std::is_same_v<Compute, double>;
  const OpCost cost = cost_of(static_cast<Op>(op), is_double);
  if constexpr (kKernel == broadcast_rows || (kN == 16 && !std::is_integral_v<Compute>) ||
                (is_double && kKernel != contiguous && kKernel != strided)) {
    return run(AllOps<is_double, light, light>());
  } else if constexpr (std::is_integral_v<Compute>) {
    if constexpr (kKernel == contiguous && !is_unary && kN == 8)
      return cost == heaviest ? run(AllOps<false, heaviest, heaviest>()) : run(AllOps<false, light, light, heavy>());
    else
      return run(AllOps<false, light, light, medium, heavy, heaviest>());
  } else if constexpr (kKernel == strided || (kKernel == shifted_tiles && (is_unary || kN == 4)) ||
                       (kKernel == aligned_tiles && !is_unary)) {
    if constexpr (kKernel == strided && !is_unary && !is_double)
      if (op == FLOWK_BINARY_SILU_MUL) return run(OneOp<static_cast<Op>(FLOWK_BINARY_SILU_MUL)>());
    return run(AllOps<is_double, is_double ? heaviest : heavy, light, medium, heavy, heaviest>());
  } else if constexpr (kKernel == shifted_tiles) {
    return cost == heaviest ? run(AllOps<false, heaviest, heaviest>()) : run(AllOps<false, heavy, light, heavy>());
  } else if constexpr (kKernel == aligned_tiles) {
    return cost == light ? run(AllOps<false, light, light>()) : run(AllOps<false, heavy, medium, heavy, heaviest>());
  } else if constexpr (kKernel == broadcast) {
    return cost == light   ? run(AllOps<false, light, light>())
           : cost == heavy ? run(AllOps<false, heavy, heavy>())
                           : run(AllOps<false, heaviest, heaviest>());
  } else {
    Status status;
    bool is_own = false;
    const auto run_own = [&](auto index) {
      constexpr auto own = kOps[decltype(index)::value];
      if constexpr (has_own_kernel(own, is_double)) {
        if (own != static_cast<Op>(op)) return;
        is_own = true;
        status = run(OneOp<own>());
      }
    };
    [&]<size_t... i>(std::index_sequence<i...>) {
      (run_own(Constant<static_cast<int>(i)>()), ...);
    }(std::make_index_sequence<std::size(kOps)>());
    if (is_own) return status;
    if (cost == light) return run(AllOps<is_double, light, light>());
    if constexpr (is_unary) {
      if (cost == medium) return run(AllOps<is_double, medium, medium>());
      if (cost == heavy) return run(AllOps<is_double, heavy, heavy>());
    }
    if constexpr (is_double && !is_unary)
      return run(AllOps<true, heaviest, heavy, heaviest>());
    else
      return run(AllOps<is_double, heaviest, heaviest>());
  }
}

template <ElementwiseArity kArity, ElementwiseKernel kKernel, class Compute, int kN, class Params>
Status run_instance(const ElementwisePlan& plan, const Params& params, flowk_stream stream) {
  using Operands = OperandsOf < Compute, 16 / kN<static_cast<int>(sizeof(Compute)) ? 16 / kN : sizeof(Compute)>;
  using Same = typename Operands::Same;
  constexpr bool is_narrow = sizeof(Compute) == 4 && kN > 4;
  const Compute flip = sign_flip_of<Compute>(plan);
  if constexpr (kArity == ElementwiseArity::unary) {
    return visit_ops<kKernel, Compute, kN, unary_ops>(plan.op, [&](auto ops) {
      using Functor = UnaryFunctor<Compute, is_narrow, decltype(ops)>;
      constexpr bool converts = decltype(ops)::has(UnaryOp(FLOWK_UNARY_COPY));
      using In = std::conditional_t<converts, typename Operands::UnaryIn, Same>;
      using Out = std::conditional_t<converts, typename Operands::UnaryOut, Same>;
      const Functor functor = {plan.op, flip, parameter_of<Compute>(plan, plan.a), parameter_of<Compute>(plan, plan.b)};
      return launch(elementwise_kernel<kKernel, kN, Functor, Out, In>(), plan.launch, stream, params, functor);
    });
  } else if constexpr (kArity == ElementwiseArity::binary) {
    return visit_ops<kKernel, Compute, kN, binary_ops>(plan.op, [&](auto ops) {
      using Functor = BinaryFunctor<Compute, is_narrow, decltype(ops)>;
      return launch(elementwise_kernel<kKernel, kN, Functor, Same, Same, Same>(), plan.launch, stream, params,
                    Functor{plan.op, plan.signed_operand, flip});
    });
  } else {
    using Functor = TernaryFunctor<Compute, kN>;
    return launch(elementwise_kernel<kKernel, kN, Functor, Same, Same, Same, Same>(), plan.launch, stream, params,
                  Functor{plan.op, flip, parameter_of<Compute>(plan, plan.a)});
  }
}

template <ElementwiseArity kArity, ElementwiseKernel kKernel, class Params>
Status run_kernel(const ElementwisePlan& plan, const Params& params, flowk_stream stream) {
  const auto run = [&]<class Compute, int kN>(TypeOf<Compute>, Constant<kN>) -> Status {
    if constexpr (has_kernel(kKernel, kArity, class_of<Compute>, kN, OpCost::light))
      return run_instance<kArity, kKernel, Compute, kN>(plan, params, stream);
    else
      return unknown_plan(plan);
  };
  const auto run_packs = [&](auto type) -> Status {
    switch (plan.pack_elements) {
      case 4: return run(type, Constant<4>());
      case 8: return run(type, Constant<8>());
      case 16: return run(type, Constant<16>());
    }
    return unknown_plan(plan);
  };
  switch (plan.compute) {
    case ComputeClass::float32: return run_packs(TypeOf<float>());
    case ComputeClass::int32: return run_packs(TypeOf<int32_t>());
    case ComputeClass::float64: return run(TypeOf<double>(), Constant<2>());
    case ComputeClass::int64: return run(TypeOf<int64_t>(), Constant<2>());
  }
  return unknown_plan(plan);
}

// Launches a plan that has its kernel in the file. Each file of instantiate/ instantiates one.
template <ElementwiseFile kFile>
Status run_file(const ElementwisePlan& plan, flowk_stream stream) {
  constexpr ElementwiseArity arity = arity_of(kFile);
  constexpr int num_operands = 1 + static_cast<int>(arity);  // an operation of arity 1 has two
  return std::visit(
      [&]<class Mechanism>(const Mechanism& chosen) -> Status {
        if constexpr (file_of(arity, kernel_of<Mechanism>) == kFile)
          return run_kernel<arity, kernel_of<Mechanism>>(plan, params_for<num_operands>(chosen.params), stream);
        else
          return unknown_plan(plan);
      },
      plan.mechanism);
}

}  // namespace flowk::elementwise
