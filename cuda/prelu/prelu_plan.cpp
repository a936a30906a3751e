// SPDX-License-Identifier: Apache-2.0
// The plan of PReLU forward, and what both directions share.
#include "prelu/prelu_plan.h"

#include <algorithm>

#include "prelu/prelu_problem.h"

namespace flowk::prelu {

void place_packs(const PreluShape& shape, const void* output, PackGrid* grid) {
  grid->num_elements = shape.outer * shape.channels * shape.inner;
  grid->channels = shape.channels;
  grid->inner = shape.inner;
  const int64_t period = std::max<int64_t>(1, shape.channels * shape.inner);
  grid->lead = pointer_lead(output, shape.element_bytes);
  grid->phase = round_up(grid->lead, period) - grid->lead;
  grid->num_planes = shape.outer * shape.channels;
  grid->missing_planes = (grid->phase + grid->lead) / std::max<int64_t>(1, shape.inner);
  grid->by_inner = Divider(static_cast<uint32_t>(std::min(shape.inner, int64_t{1} << 31)));
  grid->by_channels = Divider(static_cast<uint32_t>(std::min(shape.channels, int64_t{1} << 31)));
  grid->by_inner_wide = WideDivider(static_cast<uint64_t>(shape.inner));
  grid->by_channels_wide = WideDivider(static_cast<uint64_t>(shape.channels));
  // Positions, and those of the packs of a last block that do not exist.
  constexpr int64_t block_elements = 2 * max_backward_threads * pack_bytes;
  grid->is_wide = grid->num_elements + grid->phase + block_elements >= int64_t{1} << 31;
}

int32_t shift_of(const void* pointer, const void* output) {
  return static_cast<int32_t>((reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(output)) %
                              pack_bytes);
}

AlphaAccess alpha_access(const PackGrid& grid, const void* alpha, int64_t pack_elements) {
  if (grid.channels == 1 || (grid.lead == 0 && grid.inner % pack_elements == 0)) return AlphaAccess::one_per_pack;
  if (grid.inner >= pack_elements) return AlphaAccess::two_per_pack;
  if (grid.lead == 0 && grid.inner == 1 && grid.channels % pack_elements == 0 &&
      reinterpret_cast<uintptr_t>(alpha) % pack_bytes == 0)
    return AlphaAccess::vector_per_pack;
  return AlphaAccess::one_per_element;
}

bool has_kernels_of_its_own(flowk_dtype dtype, flowk_dtype alpha_dtype) {
  return dtype == alpha_dtype && dtype != FLOWK_FLOAT64;
}

// Blocks of 256 threads, smaller ones where they would leave multiprocessors without one.
int32_t threads_for(int64_t num_packs, const Device& device) {
  int32_t threads = max_prelu_threads;
  while (threads > 32 && ceil_div(num_packs, threads) < device.num_multiprocessors) threads /= 2;
  return threads;
}

void plan_prelu(const PreluRequest& request, const Device& device, PreluPlan* plan) {
  const PreluShape shape = {request.outer, request.channels, request.inner, element_bytes_of(request.dtype)};
  const int64_t pack_elements = pack_bytes / shape.element_bytes;
  PreluParams& params = plan->params;
  place_packs(shape, request.y, &params.grid);
  params.x = request.x;
  params.alpha = request.alpha;
  params.y = request.y;
  params.x_shift = shift_of(request.x, request.y);
  params.alpha_access = alpha_access(params.grid, request.alpha, pack_elements);
  params.has_float_alpha = request.alpha_dtype == FLOWK_FLOAT32;
  plan->dtype = request.dtype;
  plan->alpha_dtype = request.alpha_dtype;
  const bool is_whole = params.grid.lead == 0 && params.x_shift == 0 && params.grid.num_elements % pack_elements == 0;
  plan->is_general = !is_whole || params.grid.is_wide || !has_kernels_of_its_own(request.dtype, request.alpha_dtype);
  const int64_t num_packs = ceil_div(params.grid.num_elements + params.grid.lead, pack_elements);
  plan->launch.num_threads = threads_for(num_packs, device);
  plan->launch.num_blocks = ceil_div(num_packs, plan->launch.num_threads);
  plan->launch.uses_pdl = device.capability >= 90;
}

}  // namespace flowk::prelu
