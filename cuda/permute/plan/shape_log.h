// SPDX-License-Identifier: Apache-2.0
// The file that the environment variable FLOWK_LOG_SHAPES names: the permutes of this process, as `python -m pyflowk
// tune` takes them. Without the variable both functions do nothing.
#pragma once

#include "permute/plan/plan_key.h"

namespace flowk::permute {

// Opens the file, once.
Status open_shape_log();

// Appends a line unless an equal problem, or an equal line of this or an earlier process, is in the file.
Status log_shape(const PermuteRequest& request, const PlanKey& key);

}  // namespace flowk::permute
