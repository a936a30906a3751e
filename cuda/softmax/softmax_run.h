// SPDX-License-Identifier: Apache-2.0
// run_softmax() for a part of the mechanisms; instantiate/ has a file for each.
#pragma once

#include "softmax/softmax.h"

namespace flowk::softmax {

// Three files compile beside each other, in about the same time. Each has its mechanisms for all types, because a
// mechanism's kernels for different types are much alike: in one file they compress well.
enum class SoftmaxPart { row_in_registers, several_rows, long_row };

constexpr SoftmaxPart part_of(SoftmaxKernel kernel) {
  switch (kernel) {
    case SoftmaxKernel::row_in_registers: return SoftmaxPart::row_in_registers;
    case SoftmaxKernel::row_in_shared:
    case SoftmaxKernel::two_pass_row:
    case SoftmaxKernel::split_row:
    case SoftmaxKernel::persistent_rows: return SoftmaxPart::long_row;
    default: return SoftmaxPart::several_rows;  // per block
  }
}

template <SoftmaxPart kPart>
Status run_softmax_part(const SoftmaxPlan& plan, flowk_stream stream);

}  // namespace flowk::softmax
