// SPDX-License-Identifier: Apache-2.0
// dispatch_copy(): what launches conversions from every type to every other, by what the input is computed in.
#pragma once

#include "elementwise/elementwise_launch.cuh"

namespace flowk {
template <class Launch, class Compute, int kN, int kLargest>
Status run_conversion(const ElementwisePlan& plan, flowk_stream stream) {
  using Functor = CopyFunctor<Compute>;
  return Launch::template run<kN, Functor, AnyTarget<Compute, 32 / kN>, AnyElement<Compute, kLargest>>(plan, Functor{},
                                                                                                       stream);
}

// Inputs of up to kLargest bytes: with 1 to 4 packs of 2 to 16, with 4 or 8 alone packs of 2 and 4.
template <class Launch, class Compute, int kLargest, bool kHasNarrower>
Status run_packs(const ElementwisePlan& plan, flowk_stream stream) {
  switch (plan.pack_elements) {
    case 2: return run_conversion<Launch, Compute, 2, kLargest>(plan, stream);
    case 4: return run_conversion<Launch, Compute, 4, kLargest>(plan, stream);
    case 8:
      if constexpr (kHasNarrower) return run_conversion<Launch, Compute, 8, kLargest>(plan, stream);
      break;
    case 16:
      if constexpr (kHasNarrower) return run_conversion<Launch, Compute, 16, 2>(plan, stream);
      break;
  }
  return unknown_plan(plan);
}

template <class Launch>
Status dispatch_copy(const ElementwisePlan& plan, flowk_stream stream) {
  switch (plan.compute) {
    case ComputeClass::float32: return run_packs<Launch, float, 4, true>(plan, stream);
    case ComputeClass::int32: return run_packs<Launch, int32_t, 4, true>(plan, stream);
    case ComputeClass::uint32: return run_packs<Launch, uint32_t, 4, false>(plan, stream);
    case ComputeClass::float64: return run_packs<Launch, double, 8, false>(plan, stream);
    case ComputeClass::int64: return run_packs<Launch, int64_t, 8, false>(plan, stream);
    case ComputeClass::uint64: return run_packs<Launch, uint64_t, 8, false>(plan, stream);
  }
  return unknown_plan(plan);
}

}  // namespace flowk
