// SPDX-License-Identifier: Apache-2.0
// by_warp_column: a warp takes one vector of columns of all rows.
#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

// Does each vector have consecutive channels, and are their alphas an aligned vector?
bool has_whole_channels(const PreluBackwardProblem& problem) {
  return problem.shape.inner == 1 && problem.is_whole() && problem.shape.channels <= max_grid_blocks &&
         alpha_access(problem.tensors.grid, problem.request.alpha, problem.vector_elements) == AlphaAccess::consecutive;
}

}  // namespace

bool plan_by_warp_column(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  if (!problem.is_common() || !has_whole_channels(problem) || !problem.wants_sums() ||
      problem.shape.outer > max_warp_column_rows || problem.num_bytes() > latency_bytes)
    return false;
  const auto& [dy, x, alpha, dx, dalpha, workspace, outer, channels, inner, dtype, alpha_dtype] = problem.request;
  const int32_t row_vectors = static_cast<int32_t>(channels / problem.vector_elements);
  plan->gradient = ByWarpColumn{{dy, x, alpha, dx, dalpha, static_cast<int32_t>(outer), row_vectors}};
  plan->launch.num_threads = 32;
  plan->launch.num_blocks = row_vectors;
  return true;
}

}  // namespace flowk::prelu
