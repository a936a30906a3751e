// SPDX-License-Identifier: Apache-2.0
// run_permute_convert(): from a plan to the launch of its kernel. Apart from permute_run.cu so that the two compile at
// once.
//
// Pairs of sizes that people convert between have kernels of their own: has_own_kernels(). All other pairs share one
// kernel per mechanism, which decides sizes and types at run time.
#include "core/launch.cuh"
#include "permute/kernels/aligned_tile.cuh"
#include "permute/kernels/channels.cuh"
#include "permute/kernels/copy_rows.cuh"
#include "permute/kernels/general_tile.cuh"
#include "permute/kernels/strided_tile.cuh"
#include "permute/permute.h"

namespace flowk::permute {
namespace {

Status no_kernel(const PermuteConvertPlan& plan) {
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "%s has no kernel for elements of %d to %d bytes, computed in %s",
                         permute_kernel_name(plan.movement.kernel()), plan.movement.unit_bytes, plan.dst_unit_bytes,
                         plan.in_double ? "float64" : "float32");
}

AnyConverted any_converted(const PermuteConvertPlan& plan) {
  const auto log2 = [](int32_t bytes) { return bytes == 8 ? 3 : bytes >> 1; };
  return {plan.conversion, log2(plan.movement.unit_bytes), log2(plan.dst_unit_bytes), plan.in_double};
}

template <int kSrcBytes, int kDstBytes, class Compute>
Status run_own(const PermuteConvertPlan& plan, flowk_stream stream) {
  using Elements = Converted<kSrcBytes, kDstBytes, Compute>;
  const Elements elements = {plan.conversion};
  const LaunchConfig& config = plan.movement.launch;
  if (const auto* tile = std::get_if<AlignedTile>(&plan.movement.mechanism))
    return launch(aligned_tile<Elements, false>, config, stream, tile->params, elements);
  if constexpr (std::is_same_v<Compute, float>) {
    if (const auto* tile = std::get_if<GeneralTile>(&plan.movement.mechanism))
      return launch(general_tile<Elements, RunOffsets::planned, true>, config, stream, tile->params, elements);
    if constexpr (kSrcBytes != kDstBytes) {
      if (const auto* planes = std::get_if<Channels>(&plan.movement.mechanism)) {
        if (planes->interleaves) return launch(channels<Elements, true>, config, stream, planes->params, elements);
        return launch(channels<Elements, false>, config, stream, planes->params, elements);
      }
    }
  }
  return no_kernel(plan);
}

}  // namespace

Status run_permute_convert(const PermuteConvertPlan& plan, flowk_stream stream) {
  const LaunchConfig& config = plan.movement.launch;
  if (const auto* rows = std::get_if<CopyRows>(&plan.movement.mechanism))
    return launch(copy_rows<AnyConverted, any_rank>, config, stream, rows->params, any_converted(plan));
  if (const auto* tile = std::get_if<StridedTile>(&plan.movement.mechanism))
    return launch(strided_tile<AnyConverted>, config, stream, tile->params, any_converted(plan));
  const auto* tile = std::get_if<GeneralTile>(&plan.movement.mechanism);
  if (tile != nullptr && (plan.in_double || !has_own_kernels(plan.movement.unit_bytes, plan.dst_unit_bytes, false)))
    return launch(general_tile<AnyConverted, RunOffsets::planned, true>, config, stream, tile->params,
                  any_converted(plan));
  if (!has_own_kernels(plan.movement.unit_bytes, plan.dst_unit_bytes, plan.in_double)) return no_kernel(plan);
  switch (plan.movement.unit_bytes << 4 | plan.dst_unit_bytes) {
    case 0x11: return run_own<1, 1, float>(plan, stream);
    case 0x12: return run_own<1, 2, float>(plan, stream);
    case 0x14: return run_own<1, 4, float>(plan, stream);
    case 0x21: return run_own<2, 1, float>(plan, stream);
    case 0x22: return run_own<2, 2, float>(plan, stream);
    case 0x24: return run_own<2, 4, float>(plan, stream);
    case 0x41: return run_own<4, 1, float>(plan, stream);
    case 0x42: return run_own<4, 2, float>(plan, stream);
    case 0x84: return run_own<8, 4, double>(plan, stream);
  }
  return no_kernel(plan);
}

}  // namespace flowk::permute
