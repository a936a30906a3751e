// SPDX-License-Identifier: Apache-2.0
// run_softmax() for one input type; instantiate/ has a file for each.
#pragma once

#include "softmax/softmax.h"

namespace flowk::softmax {

template <flowk_dtype kInput>
Status run_softmax_of(const SoftmaxPlan& plan, flowk_stream stream);

}  // namespace flowk::softmax
