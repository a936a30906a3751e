// SPDX-License-Identifier: Apache-2.0
// The plan of PReLU forward, and what both directions use.
#include <algorithm>

#include "prelu/plan/prelu_problem.h"

namespace flowk::prelu {

VectorGrid vector_grid(const PreluShape& shape, const void* output) {
  VectorGrid grid;
  grid.num_elements = shape.outer * shape.channels * shape.inner;
  grid.channels = shape.channels;
  grid.inner = shape.inner;
  const int64_t period = std::max<int64_t>(1, shape.channels * shape.inner);
  grid.misalignment = static_cast<int32_t>(reinterpret_cast<uintptr_t>(output) % vector_bytes /
                                           static_cast<uintptr_t>(shape.element_bytes));
  grid.phase = round_up(grid.misalignment, period) - grid.misalignment;
  grid.num_planes = shape.outer * shape.channels;
  grid.missing_planes = (grid.phase + grid.misalignment) / std::max<int64_t>(1, shape.inner);
  grid.by_inner = Divider(static_cast<uint32_t>(std::min(shape.inner, int64_t{1} << 31)));
  grid.by_channels = Divider(static_cast<uint32_t>(std::min(shape.channels, int64_t{1} << 31)));
  grid.by_inner_wide = WideDivider(static_cast<uint64_t>(shape.inner));
  grid.by_channels_wide = WideDivider(static_cast<uint64_t>(shape.channels));
  // The last block computes positions of vectors past the end too.
  constexpr int64_t block_elements = 2 * max_backward_threads * vector_bytes;
  grid.is_wide = grid.num_elements + grid.phase + block_elements >= int64_t{1} << 31;
  return grid;
}

int16_t shift_of(const void* pointer, const void* output) {
  return static_cast<int16_t>((reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(output)) %
                              vector_bytes);
}

AlphaAccess alpha_access(const VectorGrid& grid, const void* alpha, int64_t vector_elements) {
  if (grid.channels == 1 || (grid.misalignment == 0 && grid.inner % vector_elements == 0))
    return AlphaAccess::one_per_vector;
  if (grid.inner >= vector_elements) return AlphaAccess::two_per_vector;
  if (grid.misalignment == 0 && grid.inner == 1 && grid.channels % vector_elements == 0 &&
      reinterpret_cast<uintptr_t>(alpha) % vector_bytes == 0)
    return AlphaAccess::consecutive;
  return AlphaAccess::one_per_element;
}

bool is_common(flowk_dtype dtype, flowk_dtype alpha_dtype) { return dtype == alpha_dtype && dtype != FLOWK_FLOAT64; }

// Blocks of 256 threads, or smaller ones so that each multiprocessor has a block.
int32_t threads_for(int64_t num_vectors, const Device& device) {
  int32_t threads = max_prelu_threads;
  while (threads > warp_lanes && ceil_div(num_vectors, threads) < device.num_multiprocessors) threads /= 2;
  return threads;
}

void plan_prelu(const PreluRequest& request, const Device& device, PreluPlan* plan) {
  const PreluShape shape = {request.outer, request.channels, request.inner, element_bytes_of(request.dtype)};
  const int64_t vector_elements = vector_bytes / shape.element_bytes;
  ForwardParams& params = plan->params;
  params.grid = vector_grid(shape, request.y);
  params.x = request.x;
  params.alpha = request.alpha;
  params.y = request.y;
  params.x_shift = shift_of(request.x, request.y);
  params.alpha_access = alpha_access(params.grid, request.alpha, vector_elements);
  params.has_float_alpha = request.alpha_dtype == FLOWK_FLOAT32;
  const bool is_whole =
      params.grid.misalignment == 0 && params.x_shift == 0 && params.grid.num_elements % vector_elements == 0;
  plan->is_general = !is_whole || params.grid.is_wide || !is_common(request.dtype, request.alpha_dtype);
  plan->dtype = request.dtype;
  const int64_t num_vectors = ceil_div(params.grid.num_elements + params.grid.misalignment, vector_elements);
  plan->launch.num_threads = threads_for(num_vectors, device);
  plan->launch.num_blocks = ceil_div(num_vectors, plan->launch.num_threads);
  plan->launch.uses_pdl = device.runs_pdl();
}

}  // namespace flowk::prelu
