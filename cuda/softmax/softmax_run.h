// SPDX-License-Identifier: Apache-2.0
// run_softmax() for one input type.
#pragma once

#include "softmax/softmax.h"

namespace flowk::softmax {

Status run_softmax_float16(const SoftmaxPlan& plan, flowk_stream stream);
Status run_softmax_bfloat16(const SoftmaxPlan& plan, flowk_stream stream);
Status run_softmax_float32(const SoftmaxPlan& plan, flowk_stream stream);
Status run_softmax_float64(const SoftmaxPlan& plan, flowk_stream stream);

}  // namespace flowk::softmax
