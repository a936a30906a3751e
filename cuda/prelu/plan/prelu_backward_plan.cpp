// SPDX-License-Identifier: Apache-2.0
// The plan of PReLU backward: which mechanism.
#include <algorithm>
#include <iterator>

#include "prelu/plan/prelu_backward_problem.h"

namespace flowk::prelu {
namespace {

PreluBackwardProblem make_problem(const PreluBackwardRequest& request, const Device& device,
                                  const PreluBackwardChoice& choice) {
  const PreluShape shape = {request.outer, request.channels, request.inner, element_bytes_of(request.dtype)};
  PreluBackwardProblem problem = {
      request, device, choice, shape, vector_bytes / shape.element_bytes, request.dtype == FLOWK_FLOAT64 ? 8 : 4,
      {},      0};
  // Vectors are aligned in dx, or in x if dx is not wanted.
  const void* aligned = request.dx != nullptr ? request.dx : request.x;
  BackwardTensors& tensors = problem.tensors;
  tensors.grid = vector_grid(shape, aligned);
  tensors.dy = request.dy;
  tensors.x = request.x;
  tensors.alpha = request.alpha;
  tensors.dx = request.dx;
  tensors.dy_shift = shift_of(request.dy, aligned);
  tensors.x_shift = shift_of(request.x, aligned);
  tensors.has_float_alpha = request.alpha_dtype == FLOWK_FLOAT32;
  if (tensors.grid.num_elements > 0)
    problem.num_vectors = ceil_div(tensors.grid.num_elements + tensors.grid.misalignment, problem.vector_elements);
  return problem;
}

// In the order of PreluBackwardKernel.
constexpr bool (*planners[])(const PreluBackwardProblem&, PreluBackwardPlan*) = {
    plan_by_channel, plan_by_span, plan_by_plane, plan_by_column, plan_by_warp_column};
// The first of these that fits is taken.
constexpr PreluBackwardKernel preference[] = {PreluBackwardKernel::by_channel, PreluBackwardKernel::by_span,
                                              PreluBackwardKernel::by_warp_column, PreluBackwardKernel::by_plane,
                                              PreluBackwardKernel::by_column};

}  // namespace

bool plan_prelu_backward(const PreluBackwardRequest& request, const Device& device, const PreluBackwardChoice& choice,
                         PreluBackwardPlan* plan) {
  const PreluBackwardProblem problem = make_problem(request, device, choice);
  *plan = {};
  plan->dtype = request.dtype;
  // With PDL a kernel starts before the stream's previous one ends, which hides part of its launch.
  plan->launch.uses_pdl = choice.overlap != 1 && device.runs_pdl();
  if (problem.num_vectors == 0) {
    if (problem.wants_sums()) plan_reductions(problem, {.num_rows = 0, .row_stride = request.channels}, plan);
    return true;
  }
  if (choice.kernel > 0 && choice.kernel <= static_cast<int32_t>(std::size(planners)))
    return planners[choice.kernel - 1](problem, plan);
  return std::any_of(std::begin(preference), std::end(preference),
                     [&](PreluBackwardKernel kernel) { return planners[static_cast<int>(kernel)](problem, plan); });
}

int64_t prelu_backward_workspace_bytes(const PreluBackwardRequest& request, const Device& device) {
  int64_t max_bytes = 0;
  const int64_t element_bytes = element_bytes_of(request.dtype), max_misalignment = vector_bytes / element_bytes - 1;
  const auto at = [](int64_t address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); };
  // A plan's workspace depends on whether dx is misaligned, and on the number of vectors, which the smallest and the
  // largest misalignment cover. Only by_warp_column depends on alpha's alignment, and it needs no workspace.
  for (const int64_t misalignment : {int64_t{0}, int64_t{1}, max_misalignment})
    for (const int64_t x_distance : {int64_t{0}, element_bytes, int64_t{4096}}) {  // in place, misaligned, neither
      PreluBackwardRequest placed = request;                                       // no plan reads through its pointers
      placed.dx = at(4096 + misalignment * element_bytes);
      placed.x = at(4096 + misalignment * element_bytes + x_distance);
      placed.dy = at(misalignment * element_bytes);
      placed.alpha = at(8192 + element_bytes);
      placed.dalpha = at(4096);
      PreluBackwardPlan plan;
      plan_prelu_backward(placed, device, {}, &plan);
      max_bytes = std::max(max_bytes, plan.workspace_bytes);
    }
  return max_bytes;
}

}  // namespace flowk::prelu
