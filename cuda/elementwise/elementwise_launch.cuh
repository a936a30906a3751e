// SPDX-License-Identifier: Apache-2.0
// From a plan to a launch: the plan's values pick the instantiation. Each arity is compiled by a file of its own.
#pragma once

#include "core/launch.cuh"
#include "elementwise/elementwise_functors.cuh"
#include "elementwise/elementwise_plan.h"
#include "elementwise/elementwise_plan_params.h"
#include "elementwise/elementwise_types.cuh"

namespace flowk::elementwise {

// Kernels of a linear out, and of any other, are compiled by files of their own.
Status run_linear_copy(const ElementwisePlan& plan, flowk_stream stream);
Status run_linear_unary(const ElementwisePlan& plan, flowk_stream stream);
Status run_linear_binary(const ElementwisePlan& plan, flowk_stream stream);
Status run_linear_ternary(const ElementwisePlan& plan, flowk_stream stream);
Status run_strided_copy(const ElementwisePlan& plan, flowk_stream stream);
Status run_strided_unary(const ElementwisePlan& plan, flowk_stream stream);
Status run_strided_binary(const ElementwisePlan& plan, flowk_stream stream);
Status run_strided_ternary(const ElementwisePlan& plan, flowk_stream stream);

inline Status unknown_plan(const ElementwisePlan& plan) {
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan: kernel %d, compute %d, packs of %d: none such",
                         static_cast<int>(plan.kernel), static_cast<int>(plan.compute), plan.pack_elements);
}

// Launches flat_packs and periodic_packs. One input has no periodic kernel.
struct LaunchLinear {
  static constexpr bool has_kernel_per_op = true;
  template <int kN, class Functor, class Out, class... In>
  static Status run(const ElementwisePlan& plan, const Functor& functor, flowk_stream stream) {
    constexpr int num_operands = 1 + static_cast<int>(sizeof...(In));
    if (plan.kernel == ElementwiseKernel::flat_packs)
      return launch(elementwise_flat<kN, Functor, Out, In...>, plan.launch, stream, flat_params<num_operands>(plan),
                    functor);
    if constexpr (num_operands >= 3) {
      if (plan.kernel == ElementwiseKernel::periodic_packs)
        return launch(elementwise_periodic<kN, Functor, Out, In...>, plan.launch, stream,
                      periodic_params<num_operands>(plan), functor);
    }
    return unknown_plan(plan);
  }
};

// Launches strided_packs, which have no 16 elements, and tiles.
struct LaunchStrided {
  static constexpr bool has_kernel_per_op = false;
  template <int kN, class Functor, class Out, class... In>
  static Status run(const ElementwisePlan& plan, const Functor& functor, flowk_stream stream) {
    const auto params = strided_params<1 + sizeof...(In)>(plan);
    switch (plan.kernel) {
      case ElementwiseKernel::aligned_tiles:
        return launch(elementwise_aligned_tiles<kN, Functor, Out, In...>, plan.launch, stream, params, functor);
      case ElementwiseKernel::shifted_tiles:
        return launch(elementwise_shifted_tiles<kN, Functor, Out, In...>, plan.launch, stream, params, functor);
      case ElementwiseKernel::row_walk:
        // Light operations of two inputs and more alone.
        if constexpr (sizeof...(In) >= 2 && !Functor::is_heavy)
          return launch(elementwise_row_walk<kN, Functor, Out, In...>, plan.launch, stream, params, functor);
        break;
      case ElementwiseKernel::strided_packs:
        if constexpr (kN <= 8)
          return launch(elementwise_strided<kN, Functor, Out, In...>, plan.launch, stream, params, functor);
        break;
      default: break;
    }
    return unknown_plan(plan);
  }
};

// Calls run(Compute(), Constant<pack>(), Constant<largest bytes of an element>()).
template <class Run>
Status visit_compute(const ElementwisePlan& plan, Run run) {
  switch (plan.compute) {
    case ComputeClass::float32:
    case ComputeClass::int32: {
      const auto of = [&](auto compute) -> Status {
        switch (plan.pack_elements) {
          case 4: return run(compute, Constant<4>(), Constant<4>());
          case 8: return run(compute, Constant<8>(), Constant<2>());
          case 16: return run(compute, Constant<16>(), Constant<1>());
        }
        return unknown_plan(plan);
      };
      return plan.compute == ComputeClass::float32 ? of(float()) : of(int32_t());
    }
    case ComputeClass::uint32:
      if (plan.pack_elements == 4) return run(uint32_t(), Constant<4>(), Constant<4>());
      break;
    case ComputeClass::float64:
      if (plan.pack_elements == 2) return run(double(), Constant<2>(), Constant<8>());
      break;
    case ComputeClass::int64:
      if (plan.pack_elements == 2) return run(int64_t(), Constant<2>(), Constant<8>());
      break;
    case ComputeClass::uint64:
      if (plan.pack_elements == 2) return run(uint64_t(), Constant<2>(), Constant<8>());
      break;
  }
  return unknown_plan(plan);
}

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

}  // namespace flowk::elementwise
