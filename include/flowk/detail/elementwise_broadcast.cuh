// SPDX-License-Identifier: Apache-2.0
// elementwise_broadcast: out[i] = functor(x[(i / repeat) % period], ...) where out is linear; repeat and period are the
// input's own (ElementwisePeriod), and an input may also be linear or one element.
#pragma once

#include "flowk/detail/elementwise_contiguous.cuh"
#include "flowk/detail/launch_bounds.h"

namespace flowk::detail {

template <int kN, class Factory, class Out, class... In>
__global__ void __launch_bounds__(elementwise_threads, fitting_blocks(elementwise_threads, resident_blocks<Factory>))
    elementwise_broadcast(const __grid_constant__ GridConstant<BroadcastElementwiseParams<1 + sizeof...(In)>> params,
                          const Factory factory) {
  launch_dependent_grids();
  wait_on_dependent_grids();
  run_contiguous<kN, max_packs(kN, sizeof...(In)), BroadcastElementwiseParams<1 + sizeof...(In)>, Factory, Out, In...>(
      params, factory);
}

}  // namespace flowk::detail
