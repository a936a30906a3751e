// SPDX-License-Identifier: Apache-2.0
// The plans of PReLU backward over planes.
#include <algorithm>
#include <bit>
#include <numeric>

#include "prelu/prelu_backward_problem.h"

namespace flowk::prelu {

namespace {

// ---- spans_of_planes ------------------------------------------------------------------------------------------------

// Packs a lane, at most. H200, of the time to move 3N, 2, 4 and 8 packs: f16 112x112 1.00, 1.01, 1.01; 28x28 0.98,
// 0.96, -; f32 56x56 -, 1.10, 1.11; 28x28 0.97, 0.96, 0.98; in two planes (57x57) f16 0.94, 0.88, -; f32 0.98, 0.97, -.
// Fewer partials where it is all the same. Blocks of 256 threads for 2 packs of one plane (f16 28x6x252x156 0.94, with
// 128 threads 0.92), of 128 for more and for two planes (f16 33x65x31x33 0.76, with 256 0.74).
constexpr int64_t min_bytes_of_four_packs = int64_t{64} << 20;
constexpr int64_t max_packs_of_one_plane(int64_t element_bytes, int64_t num_bytes) {
  return element_bytes >= 4 ? 8 : num_bytes >= min_bytes_of_four_packs ? 4 : 2;
}
constexpr int32_t threads_of_spans(int64_t packs_per_lane, bool is_one_plane) {
  return packs_per_lane <= 2 && is_one_plane ? 256 : 128;
}
constexpr int64_t max_packs_of_two_planes = 2;
constexpr int64_t most_packs_of_one_plane(int64_t element_bytes) { return element_bytes >= 4 ? 8 : 4; }

// The packs of the longest equal share of a plane that a warp can take, if that keeps most lanes busy; 0 if not.
int64_t equal_share(int64_t plane_packs, int64_t max_packs) {
  for (int64_t shares = ceil_div(plane_packs, max_packs); shares <= plane_packs; ++shares) {
    const int64_t packs = plane_packs / shares;
    if (packs * 4 < max_packs * 3) return 0;
    if (plane_packs % shares == 0) return packs;
  }
  return 0;
}

}  // namespace

bool plan_spans(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  if (!has_kernels_of_its_own(problem) || problem.tensors.x_shift != 0 || problem.tensors.dy_shift != 0) return false;
  const int64_t V = problem.pack_elements, inner = problem.shape.inner;
  const int64_t forced = problem.choice.packs_at_once,
                most_packs = most_packs_of_one_plane(problem.shape.element_bytes);
  if (forced > most_packs) return false;
  int64_t packs_per_lane =
      forced > 0 ? forced : max_packs_of_one_plane(problem.shape.element_bytes, problem.num_packs * pack_bytes);
  // A channel's partials are to be summed up by one kernel.
  const auto has_many_spans = [&](int64_t packs) {
    return problem.shape.outer * ceil_div(inner, packs * warp_lanes * V) > near_rows_at_once;
  };
  while (forced == 0 && packs_per_lane < most_packs && has_many_spans(packs_per_lane)) packs_per_lane *= 2;
  const bool plane_is_whole_packs = is_whole(problem) && inner % V == 0;
  int64_t span_packs = 0;
  for (; packs_per_lane >= 1; packs_per_lane /= 2) {
    const int64_t most = packs_per_lane * warp_lanes;
    if (plane_is_whole_packs && (span_packs = equal_share(inner / V, most)) > 0) break;
    if (packs_per_lane <= max_packs_of_two_planes && most * V <= inner) break;
    if (forced > 0) return false;
  }
  if (packs_per_lane == 0) return false;
  plan->kernel = PreluBackwardKernel::spans_of_planes;
  plan->packs_at_once = static_cast<int32_t>(std::max<int64_t>(2, packs_per_lane));  // a span may have fewer
  plan->span_is_in_one_plane = span_packs > 0;
  if (span_packs == 0) span_packs = packs_per_lane * warp_lanes;
  SpanParams& params = plan->spans;
  const PackGrid& grid = problem.tensors.grid;
  const int64_t span_elements = span_packs * V;
  params.tensors = problem.tensors;
  params.span_elements = static_cast<int32_t>(span_elements);
  params.partials_per_plane = plan->span_is_in_one_plane ? inner / span_elements : (inner - 2) / span_elements + 2;
  params.outer = problem.shape.outer;
  params.missing_outer = grid.missing_planes / problem.shape.channels;
  params.by_span = Divider(static_cast<uint32_t>(span_elements));
  params.by_span_wide = WideDivider(static_cast<uint64_t>(span_elements));
  const int64_t num_spans = ceil_div(problem.num_packs, span_packs);
  int32_t threads = problem.choice.max_threads > 0 ? problem.choice.max_threads
                                                   : threads_of_spans(packs_per_lane, plan->span_is_in_one_plane);
  if (threads > max_span_threads) return false;
  while (threads > 32 && ceil_div(num_spans, threads / 32) < 4 * problem.device.num_multiprocessors) threads /= 2;
  plan->launch.num_threads = threads;
  plan->launch.num_blocks = ceil_div(num_spans, threads / 32);
  if (problem.request.dalpha == nullptr) return true;
  const int64_t num_rows = problem.shape.outer * params.partials_per_plane;
  if (num_rows == 1) {
    params.tensors.dalpha = problem.request.dalpha;
    return true;
  }
  params.tensors.partials = problem.request.workspace;
  plan_sums(problem, {.num_rows = num_rows, .row_stride = 1}, plan);
  return true;
}

namespace {

// ---- packs_of_planes ------------------------------------------------------------------------------------------------

// Packs of a span: whole planes, or an equal share of one, where that wastes no more than half a block; so each plane
// gives one partial or as few as its shares.
int64_t choose_span(const PreluBackwardProblem& problem, int64_t max_packs) {
  const int64_t V = problem.pack_elements, inner = problem.shape.inner;
  if (problem.tensors.grid.lead != 0) return max_packs;
  const int64_t planes_packs = inner / std::gcd(inner, V);  // the fewest packs that are whole planes
  if (planes_packs <= max_packs) return max_packs / planes_packs * planes_packs;
  if (inner % V != 0) return max_packs;
  for (int64_t shares = ceil_div(planes_packs, max_packs); shares <= planes_packs / (max_packs / 2); ++shares)
    if (planes_packs % shares == 0) return planes_packs / shares;
  return max_packs;
}

// Shorter planes go by columns: a plane's partial is 4 bytes written and read again, and should add no more than 3% to
// its three times this many.
constexpr int64_t min_plane_bytes = 96;

}  // namespace

bool plan_planes(const PreluBackwardProblem& problem, PreluBackwardPlan* plan) {
  const int64_t V = problem.pack_elements, inner = problem.shape.inner;
  const bool is_forced = problem.choice.kernel != 0;
  const int64_t plane_bytes = inner * problem.shape.element_bytes;
  const bool goes_by_columns = plane_bytes < min_plane_bytes || (inner < warp_lanes * V && has_rows_of_lines(problem));
  if (inner < V || (!is_forced && goes_by_columns)) return false;
  const int64_t max_threads =
      problem.choice.max_threads > 0 ? problem.choice.max_threads : threads_for(problem.num_packs, problem.device);
  PlaneParams& params = plan->planes;
  params.tensors = problem.tensors;
  const int64_t span_packs = choose_span(problem, max_threads);
  const int64_t span_elements = span_packs * V;
  params.span_packs = static_cast<int32_t>(span_packs);
  const bool lead = problem.tensors.grid.lead != 0;
  if (!lead && (span_elements % inner == 0 || inner % span_elements == 0))
    params.partials_per_plane = ceil_div(inner, span_elements);
  else
    params.partials_per_plane = (inner - 2) / span_elements + 2;
  params.by_span = Divider(static_cast<uint32_t>(span_elements));
  params.by_span_wide = WideDivider(static_cast<uint64_t>(span_elements));
  const int64_t threads = round_up(span_packs, 32);
  const int32_t lanes =
      lanes_for(ceil_div(span_elements - 1, inner) + 1, std::min(span_packs, ceil_div(inner, V)), threads);
  params.log2_threads_per_plane = std::countr_zero(static_cast<uint32_t>(lanes));
  plan->is_general = !is_whole(problem) || !has_kernels_of_its_own(problem) || problem.tensors.grid.is_wide;
  plan->launch.num_threads = static_cast<int32_t>(threads);
  plan->launch.num_blocks = ceil_div(problem.num_packs, span_packs);
  plan->launch.shared_bytes = static_cast<int32_t>(threads * 2 * problem.sum_bytes);
  if (problem.request.dalpha == nullptr) return true;
  const int64_t num_rows = problem.shape.outer * params.partials_per_plane;
  if (num_rows == 1) {
    params.tensors.dalpha = problem.request.dalpha;
  } else {
    params.tensors.partials = problem.request.workspace;
    plan_sums(problem, {.num_rows = num_rows, .row_stride = problem.shape.channels}, plan);
  }
  return true;
}

}  // namespace flowk::prelu
