// SPDX-License-Identifier: Apache-2.0
// dispatch_copy(): what launches conversions from every type to every other, by what the input is computed in.
#pragma once

#include "elementwise/elementwise_launch.cuh"

namespace flowk::elementwise {

// Packs of 16 bytes of the widest type: those of 8 and 16 elements have inputs of at most 2 bytes and 1.
template <class Launch, class Compute>
Status run_conversion(const ElementwisePlan& plan, flowk_stream stream) {
  const auto run = [&](auto pack) {
    constexpr int kN = decltype(pack)::value;
    constexpr int largest = 16 / kN < static_cast<int>(sizeof(Compute)) ? 16 / kN : static_cast<int>(sizeof(Compute));
    return Launch::template run<kN, CopyFunctor<Compute>, AnyTarget<Compute, 16 / kN>, AnyElement<Compute, largest>>(
        plan, CopyFunctor<Compute>{}, stream);
  };
  constexpr bool has_narrow_types = std::is_same_v<Compute, float> || std::is_same_v<Compute, int32_t>;
  switch (plan.pack_elements) {
    case 2: return run(Constant<2>());
    case 4:
      if constexpr (sizeof(Compute) == 4) return run(Constant<4>());
      break;
    case 8:
      if constexpr (has_narrow_types) return run(Constant<8>());
      break;
    case 16:
      if constexpr (has_narrow_types) return run(Constant<16>());
      break;
  }
  return unknown_plan(plan);
}

template <class Launch>
Status dispatch_copy(const ElementwisePlan& plan, flowk_stream stream) {
  switch (plan.compute) {
    case ComputeClass::float32: return run_conversion<Launch, float>(plan, stream);
    case ComputeClass::int32: return run_conversion<Launch, int32_t>(plan, stream);
    case ComputeClass::uint32: return run_conversion<Launch, uint32_t>(plan, stream);
    case ComputeClass::float64: return run_conversion<Launch, double>(plan, stream);
    case ComputeClass::int64: return run_conversion<Launch, int64_t>(plan, stream);
    case ComputeClass::uint64: return run_conversion<Launch, uint64_t>(plan, stream);
  }
  return unknown_plan(plan);
}

}  // namespace flowk::elementwise
