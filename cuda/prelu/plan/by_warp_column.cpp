// SPDX-License-Identifier: Apache-2.0
// by_warp_column: a warp takes one vector of columns of all rows.
#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

// H200, f16 96x512: one warp per block, 64 blocks, 1.24 us; two warps per block 1.35; by_column 1.37.
constexpr int64_t max_bytes = int64_t{1} << 20;
constexpr int64_t max_rows = 4 * warp_lanes;

}  // namespace

bool plan_by_warp_column(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  if (!problem.is_common() || !has_whole_channels(problem) || !problem.wants_sums() || problem.shape.outer > max_rows ||
      problem.num_bytes() > max_bytes)
    return false;
  const auto& [dy, x, alpha, dx, dalpha, workspace, outer, channels, inner, dtype, alpha_dtype] = problem.request;
  const int32_t row_vectors = static_cast<int32_t>(channels / problem.vector_elements);
  plan->gradient = ByWarpColumn{{dy, x, alpha, dx, dalpha, static_cast<int32_t>(outer), row_vectors}};
  plan->launch.num_threads = 32;
  plan->launch.num_blocks = row_vectors;
  return true;
}

}  // namespace flowk::prelu
