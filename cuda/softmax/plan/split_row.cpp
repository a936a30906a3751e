// SPDX-License-Identifier: Apache-2.0
// split_row: chooses the slices that a row is cut into, and the rows that one launch takes.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {

// Slices of 8 vectors per thread, or less if that would leave multiprocessors idle. The second grid of a launch finds
// in L2 what the first one has read.
SoftmaxConfig choose_split_row(const SoftmaxCall& call) {
  constexpr int32_t threads = 256, vectors_per_thread = 8, max_slices = 512;
  int32_t slices = 1;
  const auto is_too_few = [&] {
    const int64_t slice_vectors = int64_t{slices} * threads;
    return call.row_vectors > slice_vectors * vectors_per_thread ||
           (call.rows.num_rows * slices < call.device.num_multiprocessors && call.row_vectors >= 2 * slice_vectors);
  };
  while (slices < max_slices && is_too_few()) slices *= 2;
  SoftmaxConfig config;
  config.mechanism = SplitRow{
      .slices = slices,
      .rows_per_launch = std::clamp<int64_t>(split_launch_bytes / call.row_bytes, 1, call.rows.num_rows),
  };
  config.lanes_per_row = config.block_threads = threads;
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const SplitRow& mechanism) {
  const int32_t slices = mechanism.slices;
  if (!call.is_one_type || !call.vectors_agree) return false;
  // The second grid reads x after the first of its blocks have written.
  const SoftmaxRequest& request = call.request;
  const void* const out = request.pointers[softmax_out];
  if (out == request.pointers[softmax_x] || (request.backward && out == request.pointers[softmax_bias_or_y]))
    return false;
  if (slices < 1 || !std::has_single_bit(static_cast<uint32_t>(slices)) || mechanism.rows_per_launch < 1) return false;
  if (config.lanes_per_row < warp_lanes) return false;
  // The first grid writes its partial results over the start of the row of `out`.
  const int64_t slot_vectors = slice_slot_vectors(partial_result_bytes(call.in_bytes), slices);
  return config.block_threads >= min_lanes(call) && call.row_vectors - 1 >= slot_vectors;
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const SplitRow&) {
  return find_kernel(query_of(call, SoftmaxKernel::split_row));
}

void fill(const SoftmaxCall& call, SplitRow& mechanism, SoftmaxPlan* plan) {
  plan->params.row_blocks_shift = std::countr_zero(static_cast<uint32_t>(mechanism.slices));
  plan->params.starts_on_lines = true;
  plan->launch.num_blocks = std::min(mechanism.rows_per_launch, call.rows.num_rows) * mechanism.slices;
}

}  // namespace flowk::softmax
