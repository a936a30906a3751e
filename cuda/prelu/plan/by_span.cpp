// SPDX-License-Identifier: Apache-2.0
// by_span: a warp takes a span of vectors, in one long plane or in two.
#include <algorithm>

#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

// The vectors of the longest equal share of a plane that a warp can take, if that keeps 3 of 4 lanes busy (not
// measured); else 0.
int64_t equal_share(int64_t plane_vectors, int64_t max_vectors) {
  for (int64_t shares = ceil_div(plane_vectors, max_vectors); shares <= plane_vectors; ++shares) {
    const int64_t vectors = plane_vectors / shares;
    if (vectors * 4 < max_vectors * 3) return 0;
    if (plane_vectors % shares == 0) return vectors;
  }
  return 0;
}

}  // namespace

bool plan_by_span(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  if (!problem.is_common() || !problem.is_aligned_alike()) return false;
  const auto [outer, channels, inner, element_bytes] = problem.shape;
  const int64_t V = problem.vector_elements, forced = problem.choice.vectors_in_flight;
  constexpr int64_t max_vectors = max_span_vectors(true), max_in_two_planes = max_span_vectors(false);
  if (forced > max_vectors) return false;
  const bool wants_most = element_bytes >= 4 || problem.num_bytes() >= min_bytes_of_most_span_vectors ||
                          outer * ceil_div(inner, max_in_two_planes * warp_lanes * V) > max_partials_of_channel;
  int64_t vectors_per_lane = forced > 0 ? forced : wants_most ? max_vectors : max_in_two_planes;
  const bool is_plane_whole_vectors = problem.is_whole() && inner % V == 0;
  int64_t span_vectors = 0;
  for (; vectors_per_lane >= 1; vectors_per_lane /= 2) {
    const int64_t max_share = vectors_per_lane * warp_lanes;
    if (is_plane_whole_vectors && (span_vectors = equal_share(inner / V, max_share)) > 0) break;
    if (vectors_per_lane <= max_in_two_planes && max_share * V <= inner) break;
    if (forced > 0) return false;
  }
  if (vectors_per_lane == 0) return false;
  const bool is_in_one_plane = span_vectors > 0;
  if (!is_in_one_plane) span_vectors = vectors_per_lane * warp_lanes;
  int32_t threads = problem.choice.max_threads > 0 ? problem.choice.max_threads : span_threads;
  if (threads > max_span_threads) return false;

  BySpanParams params;
  const int64_t span_elements = span_vectors * V;
  params.tensors = problem.tensors;
  params.span_elements = static_cast<int32_t>(span_elements);
  params.partials_per_plane = is_in_one_plane ? inner / span_elements : (inner - 2) / span_elements + 2;
  params.outer = outer;
  params.missing_outer = params.tensors.grid.missing_planes / channels;
  params.by_span = Divider(static_cast<uint32_t>(span_elements));
  params.by_span_wide = WideDivider(static_cast<uint64_t>(span_elements));
  const int64_t num_spans = ceil_div(problem.num_vectors, span_vectors);
  while (threads > warp_lanes && ceil_div(num_spans, threads / warp_lanes) < 4 * problem.device.num_multiprocessors)
    threads /= 2;
  plan->launch.num_threads = threads;
  plan->launch.num_blocks = ceil_div(num_spans, threads / warp_lanes);
  const int64_t num_rows = outer * params.partials_per_plane;
  if (problem.wants_sums() && num_rows == 1) {
    params.tensors.dalpha = problem.request.dalpha;
  } else if (problem.wants_sums()) {
    params.tensors.partials = problem.request.workspace;
    plan_reductions(problem, {.num_rows = num_rows, .row_stride = 1}, plan);
  }
  plan->gradient = BySpan{static_cast<int32_t>(vectors_per_lane), is_in_one_plane, params};
  return true;
}

}  // namespace flowk::prelu
