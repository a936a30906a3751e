// SPDX-License-Identifier: Apache-2.0
// The part of run_permute() that converts, apart so that the two compile at once.
#pragma once

#include "permute/permute.h"

namespace flowk::permute {

// Enqueues a plan with a conversion.
Status run_permute_convert(const PermutePlan& plan, flowk_stream stream);

}  // namespace flowk::permute
