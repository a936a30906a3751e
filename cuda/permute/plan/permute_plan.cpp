// SPDX-License-Identifier: Apache-2.0
// The selection: the only place that compares mechanisms.
#include <algorithm>

#include "permute/plan/permute_problem.h"

namespace flowk::permute {

void plan_problem(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  if (!plan_copy(problem, device, plan) && !plan_channels(problem, device, plan)) plan_tile(problem, device, plan);
}

void plan_permute(const PermuteRequest& request, const Device& device, PermutePlan* plan) {
  PermuteProblem problem;
  make_problem(request, &problem);
  plan_problem(problem, device, plan);
}

bool set_pairs(int num_pairs, const int64_t* src_offsets, const int64_t* dst_offsets, PermutePlan* plan) {
  if (num_pairs == 1) return true;
  return std::visit(
      [&](auto& chosen) {
        auto& params = launch_params(chosen.params);
        int rank = 0;
        if constexpr (requires { params.dims; })
          rank = params.rank;
        else
          rank = params.grid_rank;
        if (num_pairs > std::min(max_launch_pairs, max_rank - rank)) return false;
        if (plan->launch.num_blocks > max_grid_blocks / num_pairs) return false;
        params.num_pairs = static_cast<uint8_t>(num_pairs);
        for (int i = 0; i < num_pairs; ++i) {
          pair_src_offset(params, i) = src_offsets[i];
          pair_dst_offset(params, i) = dst_offsets[i];
        }
        plan->launch.num_blocks *= num_pairs;
        return true;
      },
      plan->mechanism);
}

}  // namespace flowk::permute
