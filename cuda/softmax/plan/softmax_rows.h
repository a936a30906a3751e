// SPDX-License-Identifier: Apache-2.0
// The rows of a call in the fewest dimensions, in the order in which blocks take them.
#pragma once

#include "softmax/softmax.h"

namespace flowk::softmax {

SoftmaxRows order_rows(const SoftmaxRequest& request);

}  // namespace flowk::softmax
