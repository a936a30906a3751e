// SPDX-License-Identifier: Apache-2.0
// run_permute_convert_channels(): from a plan to a launch. Apart from permute_convert.cu so that the two compile at
// once.
#include "core/launch.cuh"
#include "permute/permute_convert_channels.cuh"

namespace flowk::permute {
namespace {

template <int kSrcBytes, int kDstBytes>
Status run_sizes(const PermuteConvertPlan& plan, flowk_stream stream) {
  const LaunchConfig& config = plan.movement.launch;
  const ChannelParams& params = plan.movement.channels;
  if (plan.movement.kernel == PermuteKernel::channel_interleave) {
    if (params.num_channels == 3)
      return launch(convert_interleave<kSrcBytes, kDstBytes, 3>, config, stream, params, plan.conversion);
    return launch(convert_interleave<kSrcBytes, kDstBytes, 4>, config, stream, params, plan.conversion);
  }
  if (params.num_channels == 3)
    return launch(convert_deinterleave<kSrcBytes, kDstBytes, 3>, config, stream, params, plan.conversion);
  return launch(convert_deinterleave<kSrcBytes, kDstBytes, 4>, config, stream, params, plan.conversion);
}

template <int kSrcBytes>
Status run_source(const PermuteConvertPlan& plan, flowk_stream stream) {
  switch (plan.dst_unit_bytes) {
    case 1: return run_sizes<kSrcBytes, 1>(plan, stream);
    case 2: return run_sizes<kSrcBytes, 2>(plan, stream);
    default: return run_sizes<kSrcBytes, 4>(plan, stream);
  }
}

}  // namespace

Status run_permute_convert_channels(const PermuteConvertPlan& plan, flowk_stream stream) {
  const int32_t num_channels = plan.movement.channels.num_channels;
  if (plan.in_double || (num_channels != 3 && num_channels != 4))
    return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "%d channels computed in %s, must be 3 or 4 in float32",
                           num_channels, plan.in_double ? "float64" : "float32");
  switch (plan.movement.unit_bytes) {
    case 1: return run_source<1>(plan, stream);
    case 2: return run_source<2>(plan, stream);
    default: return run_source<4>(plan, stream);
  }
}

}  // namespace flowk::permute
