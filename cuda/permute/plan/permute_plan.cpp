// SPDX-License-Identifier: Apache-2.0
// The selection: the only place that compares mechanisms.
#include "permute/plan/permute_problem.h"

namespace flowk::permute {

void plan_problem(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  if (plan_copy(problem, plan)) return;
  if (plan_channels(problem, plan)) return;
  plan_tile(problem, device, plan);
}

void plan_permute(const PermuteRequest& request, const Device& device, PermutePlan* plan) {
  PermuteProblem problem;
  make_problem(request, &problem);
  plan_problem(problem, device, plan);
}

void set_pairs(const PairParams& pairs, PermutePlan* plan) {
  std::visit(
      [&](auto& chosen) {
        chosen.params.pairs = pairs;
        chosen.params.num_pairs = static_cast<int32_t>(pairs.num_pairs.divisor);
      },
      plan->mechanism);
  plan->launch.num_blocks *= pairs.num_pairs.divisor;
}

void plan_permute_convert(const PermuteConvertRequest& request, const Device& device, PermuteConvertPlan* plan) {
  PermuteProblem problem;
  make_convert_problem(request, &problem);
  plan->movement = cached_plan(problem, device);
  plan->dst_unit_bytes = problem.dst_unit_bytes;
  plan->in_double = problem.in_double;
  plan->conversion = conversion_of(request);
}

}  // namespace flowk::permute
