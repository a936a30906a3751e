// SPDX-License-Identifier: Apache-2.0
// by_plane: a block takes a span of vectors, and each plane in it gives one partial sum.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

// Shorter planes go by_column, and so do planes shorter than a warp's vectors if has_rows_of_lines(). A plane of this
// length is 3 * 96 bytes of dy, x and dx, and its partial is 4 bytes, written and read again.
constexpr int64_t min_plane_bytes = 96;

// The vectors of a span. Whole planes, or an equal share of one, are chosen if that leaves at most half of a block
// idle, because planes then have as few partials as possible.
int64_t choose_span(const PreluBackwardProblem& problem, int64_t max_vectors) {
  const int64_t V = problem.vector_elements, inner = problem.shape.inner;
  if (problem.tensors.grid.misalignment != 0) return max_vectors;
  const int64_t vectors_of_planes = inner / std::gcd(inner, V);  // the fewest vectors that are whole planes
  if (vectors_of_planes <= max_vectors) return max_vectors / vectors_of_planes * vectors_of_planes;
  if (inner % V != 0) return max_vectors;
  for (int64_t shares = ceil_div(vectors_of_planes, max_vectors); shares <= vectors_of_planes / (max_vectors / 2);
       ++shares)
    if (vectors_of_planes % shares == 0) return vectors_of_planes / shares;
  return max_vectors;
}

// How many lanes sum one plane, if a block of `threads` has `num_sums` planes of `num_terms` terms each.
int32_t lanes_for(int64_t num_sums, int64_t num_terms, int64_t threads) {
  int32_t lanes = warp_lanes;
  while (lanes > 1 && (lanes * num_sums > threads || lanes >= 2 * num_terms)) lanes /= 2;
  return lanes;
}

}  // namespace

bool plan_by_plane(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  const auto [outer, channels, inner, element_bytes] = problem.shape;
  const int64_t V = problem.vector_elements;
  const bool goes_by_column =
      inner * element_bytes < min_plane_bytes || (inner < warp_lanes * V && has_rows_of_lines(problem));
  if (inner < V || (!problem.is_forced() && goes_by_column)) return false;
  const int64_t max_threads =
      problem.choice.max_threads > 0 ? problem.choice.max_threads : threads_for(problem.num_vectors, problem.device);
  ByPlaneParams params;
  params.tensors = problem.tensors;
  const int64_t span_vectors = choose_span(problem, max_threads), span_elements = span_vectors * V;
  params.span_vectors = static_cast<int32_t>(span_vectors);
  const bool are_equal_shares =
      params.tensors.grid.misalignment == 0 && (span_elements % inner == 0 || inner % span_elements == 0);
  params.partials_per_plane = are_equal_shares ? ceil_div(inner, span_elements) : (inner - 2) / span_elements + 2;
  params.by_span = Divider(static_cast<uint32_t>(span_elements));
  params.by_span_wide = WideDivider(static_cast<uint64_t>(span_elements));
  const int64_t threads = round_up(span_vectors, warp_lanes);
  const int32_t lanes =
      lanes_for(ceil_div(span_elements - 1, inner) + 1, std::min(span_vectors, ceil_div(inner, V)), threads);
  params.log2_threads_per_plane = std::countr_zero(static_cast<uint32_t>(lanes));
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = ceil_div(problem.num_vectors, span_vectors);
  plan->launch.shared_bytes = static_cast<int32_t>(threads * 2 * problem.sum_bytes);
  const int64_t num_rows = outer * params.partials_per_plane;
  if (problem.wants_sums() && num_rows == 1) {
    params.tensors.dalpha = problem.request.dalpha;
  } else if (problem.wants_sums()) {
    params.tensors.partials = problem.request.workspace;
    plan_reductions(problem, {.num_rows = num_rows, .row_stride = channels}, plan);
  }
  plan->gradient = ByPlane{!problem.is_whole() || !problem.is_common() || params.tensors.grid.is_wide, params};
  return true;
}

}  // namespace flowk::prelu
