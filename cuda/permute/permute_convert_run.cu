// SPDX-License-Identifier: Apache-2.0
// run_permute_convert(): from a plan to the launch of its kernel.
//
// Pairs of sizes that people convert between have kernels of their own. All other pairs share one kernel per mechanism,
// which decides sizes and types at run time.
#include <optional>

#include "core/launch.cuh"
#include "permute/kernels/aligned_tile.cuh"
#include "permute/kernels/channels.cuh"
#include "permute/kernels/copy_rows.cuh"
#include "permute/kernels/general_tile.cuh"
#include "permute/kernels/strided_tile.cuh"
#include "permute/permute.h"

namespace flowk::permute {
namespace {

Status no_kernel(const PermutePlan& plan) {
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "%s has no kernel for elements of %d to %d bytes, computed in %s",
                         permute_kernel_name(plan.kernel()), plan.unit_bytes, plan.dst_unit_bytes,
                         plan.conversion->in_double ? "float64" : "float32");
}

AnyConverted any_converted(const PermutePlan& plan) {
  const auto log2 = [](int32_t bytes) { return bytes == 8 ? 3 : bytes >> 1; };
  return {*plan.conversion, log2(plan.unit_bytes), log2(plan.dst_unit_bytes)};
}

// Launches a kernel that is compiled for the sizes of Elements.
template <class Elements, class Kernel, class Chosen>
Status launch_own(Kernel* kernel, const PermutePlan& plan, const Chosen& chosen, flowk_stream stream) {
  return launch(kernel, plan.launch, stream, chosen.params, Elements{*plan.conversion});
}

template <class Elements>
std::optional<Status> run_own_aligned_tile(const PermutePlan& plan, flowk_stream stream) {
  const auto* tile = std::get_if<AlignedTile>(&plan.mechanism);
  if (tile == nullptr) return std::nullopt;
  return launch_own<Elements>(aligned_tile<Elements, false>, plan, *tile, stream);
}

// Runs the kernel that the pair has for the plan's mechanism, if it has one.
template <int kSrcBytes, int kDstBytes>
std::optional<Status> run_own(const PermutePlan& plan, flowk_stream stream) {
  using Elements = Converted<kSrcBytes, kDstBytes, float>;
  if (plan.conversion->in_double) return std::nullopt;
  const auto& mechanism = plan.mechanism;
  const auto run = [&](auto* kernel, const auto& chosen) { return launch_own<Elements>(kernel, plan, chosen, stream); };
  if constexpr (converts_aligned_tiles(kSrcBytes, kDstBytes, false)) {
    if (const auto status = run_own_aligned_tile<Elements>(plan, stream)) return status;
  }
  if (const auto* tile = std::get_if<GeneralTile>(&mechanism)) return run(general_tile<Elements, true>, *tile);
  if constexpr (kSrcBytes != kDstBytes) {
    const auto* rows = std::get_if<CopyRows>(&mechanism);
    if (rows != nullptr && converts_rows(kSrcBytes, kDstBytes, false, rows->params.wide_index))
      return run(copy_rows<Elements, any_narrow_rank>, *rows);
    if (const auto* planes = std::get_if<Channels>(&mechanism)) {
      if constexpr (converts_channels(kSrcBytes, kDstBytes, false))
        if (planes->interleaves) return run(channels<Elements, true>, *planes);
      if constexpr (converts_channels(kDstBytes, kSrcBytes, false))
        if (!planes->interleaves) return run(channels<Elements, false>, *planes);
    }
  }
  return std::nullopt;
}

std::optional<Status> run_pair(const PermutePlan& plan, flowk_stream stream) {
  switch (plan.unit_bytes << 4 | plan.dst_unit_bytes) {
    case 0x11: return run_own<1, 1>(plan, stream);
    case 0x12: return run_own<1, 2>(plan, stream);
    case 0x14: return run_own<1, 4>(plan, stream);
    case 0x21: return run_own<2, 1>(plan, stream);
    case 0x22: return run_own<2, 2>(plan, stream);
    case 0x24: return run_own<2, 4>(plan, stream);
    case 0x41: return run_own<4, 1>(plan, stream);
    case 0x42: return run_own<4, 2>(plan, stream);
    case 0x44: return run_own<4, 4>(plan, stream);
    case 0x84: return run_own_aligned_tile<Converted<8, 4, double>>(plan, stream);
  }
  return std::nullopt;
}

}  // namespace

Status run_permute_convert(const PermutePlan& plan, flowk_stream stream) {
  if (const std::optional<Status> status = run_pair(plan, stream)) return *status;
  const auto run = [&](auto* kernel, const auto& chosen) {
    return launch(kernel, plan.launch, stream, chosen.params, any_converted(plan));
  };
  const auto& mechanism = plan.mechanism;
  if (const auto* rows = std::get_if<CopyRows>(&mechanism)) return run(copy_rows<AnyConverted, any_rank>, *rows);
  if (const auto* tile = std::get_if<StridedTile>(&mechanism)) return run(strided_tile<AnyConverted>, *tile);
  if (const auto* tile = std::get_if<GeneralTile>(&mechanism)) return run(general_tile<AnyConverted, true>, *tile);
  return no_kernel(plan);
}

}  // namespace flowk::permute
