// SPDX-License-Identifier: Apache-2.0
// run_permute(): one switch from plan.kernel to a launch.
#include "core/launch.cuh"
#include "permute/permute_kernels.cuh"
#include "permute/permute_plan.h"

namespace flowk::permute {
namespace {

template <int Bytes, int kChannels>
Status run_channels(const PermutePlan& plan, flowk_stream stream) {
  if (plan.kernel == PermuteKernel::channel_interleave)
    return launch(channel_interleave<Bytes, kChannels>, plan.launch, stream, plan.channels);
  return launch(channel_deinterleave<Bytes, kChannels>, plan.launch, stream, plan.channels);
}

// Rows of 16-byte units have a kernel of their own for each small rank; a narrower unit is a tensor of one.
template <int Bytes>
Status run_rows(const PermutePlan& plan, flowk_stream stream) {
  if constexpr (Bytes == vector_bytes) {
    if (!plan.wide_index) {
      switch (plan.copy.rank) {
        case 0: return launch(copy_rows<Bytes, uint32_t, 0>, plan.launch, stream, plan.copy);
        case 1: return launch(copy_rows<Bytes, uint32_t, 1>, plan.launch, stream, plan.copy);
        case 2: return launch(copy_rows<Bytes, uint32_t, 2>, plan.launch, stream, plan.copy);
        case 3: return launch(copy_rows<Bytes, uint32_t, 3>, plan.launch, stream, plan.copy);
        case 4: return launch(copy_rows<Bytes, uint32_t, 4>, plan.launch, stream, plan.copy);
        case 5: return launch(copy_rows<Bytes, uint32_t, 5>, plan.launch, stream, plan.copy);
        default: return launch(copy_rows<Bytes, uint32_t, any_rank>, plan.launch, stream, plan.copy);
      }
    }
    return launch(copy_rows<Bytes, uint64_t, any_rank>, plan.launch, stream, plan.copy);
  } else {
    return launch(copy_rows<Bytes, uint32_t, 0>, plan.launch, stream, plan.copy);
  }
}

template <int Bytes>
Status run_unit(const PermutePlan& plan, flowk_stream stream) {
  switch (plan.kernel) {
    case PermuteKernel::contiguous_copy:
    case PermuteKernel::row_copy: return run_rows<Bytes>(plan, stream);
    case PermuteKernel::shifted_row_copy:
      if (plan.wide_index) return launch(copy_shifted_rows<Bytes, uint64_t, false>, plan.launch, stream, plan.copy);
      return launch(copy_shifted_rows<Bytes, uint32_t, false>, plan.launch, stream, plan.copy);
    case PermuteKernel::reversed_row_copy:
      if (plan.wide_index) return launch(copy_shifted_rows<Bytes, uint64_t, true>, plan.launch, stream, plan.copy);
      return launch(copy_shifted_rows<Bytes, uint32_t, true>, plan.launch, stream, plan.copy);
    case PermuteKernel::tiled_transpose:
      if (plan.tile.has_plain_rows) return launch(tiled_transpose<Bytes, true>, plan.launch, stream, plan.tile);
      return launch(tiled_transpose<Bytes, false>, plan.launch, stream, plan.tile);
    case PermuteKernel::two_sided_tile:
      if (plan.tile.table_rank > 0) {
        if (plan.tile.swizzle_bits != 0)
          return launch(two_sided_tile<Bytes, true, true>, plan.launch, stream, plan.tile);
        return launch(two_sided_tile<Bytes, true, false>, plan.launch, stream, plan.tile);
      }
      if (plan.tile.swizzle_bits != 0)
        return launch(two_sided_tile<Bytes, false, true>, plan.launch, stream, plan.tile);
      return launch(two_sided_tile<Bytes, false, false>, plan.launch, stream, plan.tile);
    case PermuteKernel::strided_tile: return launch(strided_tile<Bytes>, plan.launch, stream, plan.tile);
    case PermuteKernel::two_step_tile:
      if constexpr (Bytes == 1) {
        if (plan.launch.num_threads == two_step_threads)
          return launch(two_step_tile<two_step_threads>, plan.launch, stream, plan.tile);
        return launch(two_step_tile<tile_threads>, plan.launch, stream, plan.tile);
      }
      break;
    case PermuteKernel::channel_interleave:
    case PermuteKernel::channel_deinterleave:
      switch (plan.channels.num_channels) {
        case 2: return run_channels<Bytes, 2>(plan, stream);
        case 3: return run_channels<Bytes, 3>(plan, stream);
        case 4: return run_channels<Bytes, 4>(plan, stream);
      }
      return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.channels.num_channels = %d, must be 2, 3 or 4",
                             plan.channels.num_channels);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.kernel = %d is no kernel of permute for units of %d bytes",
                         static_cast<int>(plan.kernel), Bytes);
}

}  // namespace

Status run_permute(const PermutePlan& plan, flowk_stream stream) {
  switch (plan.unit_bytes) {
    case 1: return run_unit<1>(plan, stream);
    case 2: return run_unit<2>(plan, stream);
    case 4: return run_unit<4>(plan, stream);
    case 8: return run_unit<8>(plan, stream);
    case 16: return run_unit<16>(plan, stream);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.unit_bytes = %d, must be 1, 2, 4, 8 or 16",
                         plan.unit_bytes);
}

}  // namespace flowk::permute
