// SPDX-License-Identifier: Apache-2.0
// dispatch_binary(): what launches the kernels of binary operations.
#pragma once

#include "elementwise/elementwise_weighted.cuh"

namespace flowk::elementwise {

#define FLOWK_ROW(NAME, value, name, kinds, result, num_parameters, formula) {FLOWK_BINARY_##NAME, takes::kinds},
inline constexpr OpRow<flowk_binary_op> binary_rows[] = {FLOWK_BINARY_OPS(FLOWK_ROW)};
#undef FLOWK_ROW

template <class Launch>
Status dispatch_binary(const ElementwisePlan& plan, flowk_stream stream) {
  return dispatch_by_weight<Launch, binary_rows, BinaryFunctor, 2>(plan, stream);
}

}  // namespace flowk::elementwise
