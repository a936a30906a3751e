// SPDX-License-Identifier: Apache-2.0
// run_permute_convert(): from a plan to a launch.
#include "core/launch.cuh"
#include "permute/permute_convert.cuh"

namespace flowk::permute {
namespace {

template <int kSrcBytes, int kDstBytes, class Compute>
Status run_kernel(const PermuteConvertPlan& plan, flowk_stream stream) {
  const PermutePlan& movement = plan.movement;
  const LaunchConfig& config = movement.launch;
  switch (movement.kernel) {
    case PermuteKernel::row_copy:
      if (movement.wide_index)
        return launch(convert_rows<kSrcBytes, kDstBytes, Compute, uint64_t>, config, stream, movement.copy,
                      plan.conversion);
      return launch(convert_rows<kSrcBytes, kDstBytes, Compute, uint32_t>, config, stream, movement.copy,
                    plan.conversion);
    case PermuteKernel::tiled_transpose:
      return launch(convert_transpose<kSrcBytes, kDstBytes, Compute>, config, stream, movement.tile, plan.conversion);
    case PermuteKernel::two_sided_tile:
      if (movement.tile.table_rank > 0)
        return launch(convert_tile<kSrcBytes, kDstBytes, Compute, true>, config, stream, movement.tile,
                      plan.conversion);
      return launch(convert_tile<kSrcBytes, kDstBytes, Compute, false>, config, stream, movement.tile, plan.conversion);
    case PermuteKernel::strided_tile:
      return launch(convert_strided_tile<kSrcBytes, kDstBytes, Compute>, config, stream, movement.tile,
                    plan.conversion);
    case PermuteKernel::channel_interleave:
    case PermuteKernel::channel_deinterleave: return run_permute_convert_channels(plan, stream);
    default:
      return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.movement.kernel = %d converts nothing",
                             static_cast<int>(movement.kernel));
  }
}

// Float for elements of up to 4 bytes; double where one side may hold 4 bytes of an integer, or has 8.
template <int kSrcBytes, int kDstBytes>
Status run_sizes(const PermuteConvertPlan& plan, flowk_stream stream) {
  constexpr int wider = kSrcBytes > kDstBytes ? kSrcBytes : kDstBytes;
  if constexpr (wider >= 4) {
    if (plan.in_double) return run_kernel<kSrcBytes, kDstBytes, double>(plan, stream);
  }
  if constexpr (wider <= 4) {
    if (!plan.in_double) return run_kernel<kSrcBytes, kDstBytes, float>(plan, stream);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.in_double = %d, for elements of %d and %d bytes",
                         static_cast<int>(plan.in_double), kSrcBytes, kDstBytes);
}

template <int kSrcBytes>
Status run_source(const PermuteConvertPlan& plan, flowk_stream stream) {
  switch (plan.dst_unit_bytes) {
    case 1: return run_sizes<kSrcBytes, 1>(plan, stream);
    case 2: return run_sizes<kSrcBytes, 2>(plan, stream);
    case 4: return run_sizes<kSrcBytes, 4>(plan, stream);
    case 8: return run_sizes<kSrcBytes, 8>(plan, stream);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.dst_unit_bytes = %d, must be 1, 2, 4 or 8",
                         plan.dst_unit_bytes);
}

}  // namespace

Status run_permute_convert(const PermuteConvertPlan& plan, flowk_stream stream) {
  switch (plan.movement.unit_bytes) {
    case 1: return run_source<1>(plan, stream);
    case 2: return run_source<2>(plan, stream);
    case 4: return run_source<4>(plan, stream);
    case 8: return run_source<8>(plan, stream);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.movement.unit_bytes = %d, must be 1, 2, 4 or 8",
                         plan.movement.unit_bytes);
}

}  // namespace flowk::permute
