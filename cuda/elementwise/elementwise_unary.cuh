// SPDX-License-Identifier: Apache-2.0
// dispatch_unary(): what launches the kernels of unary operations.
#pragma once

#include "elementwise/elementwise_weighted.cuh"

namespace flowk::elementwise {

#define FLOWK_ROW(NAME, value, name, kinds, result, num_parameters, formula) {FLOWK_UNARY_##NAME, takes::kinds},
inline constexpr OpRow<flowk_unary_op> unary_rows[] = {FLOWK_UNARY_OPS(FLOWK_ROW)};
#undef FLOWK_ROW

template <class Launch>
Status dispatch_unary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_by_weight<Launch, unary_rows, UnaryFunctor, 1>(plan, stream);
}

}  // namespace flowk::elementwise
