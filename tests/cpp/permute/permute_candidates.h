// SPDX-License-Identifier: Apache-2.0
// Every tile that the planner of permute may choose.
#pragma once

#include "permute/plan/permute_problem.h"

// Calls use(plan, src_choice, dst_choice) with each.
template <class Use>
void for_each_tile_candidate(const flowk::permute::PermuteProblem& problem, const flowk::permute::Device& device,
                             Use use) {
  using flowk::permute::TileCandidate;
  for (int src = 0;; ++src)
    for (int dst = 0;; ++dst) {
      flowk::permute::PermutePlan plan;
      const TileCandidate found = flowk::permute::plan_tile_candidate(problem, device, src, dst, &plan);
      if (found == TileCandidate::out_of_range && dst == 0) return;
      if (found == TileCandidate::out_of_range) break;
      if (found == TileCandidate::planned) use(plan, src, dst);
    }
}
