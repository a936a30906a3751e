// SPDX-License-Identifier: Apache-2.0
// run_permute(): from a plan to the launch of its kernel.
#include "core/launch.cuh"
#include "permute/kernels/aligned_tile.cuh"
#include "permute/kernels/byte_tile.cuh"
#include "permute/kernels/channels.cuh"
#include "permute/kernels/copy_rows.cuh"
#include "permute/kernels/general_tile.cuh"
#include "permute/kernels/strided_tile.cuh"
#include "permute/permute.h"

namespace flowk::permute {
namespace {

// Launches the plan's mechanism for one size of elements.
template <int Bytes>
struct Run {
  const LaunchConfig& config;
  flowk_stream stream;

  static Status wrong_size() {
    return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.unit_bytes = %d, and the mechanism has no such kernel",
                           Bytes);
  }

  template <int kRank>
  Status launch_rows(const CopyParams& params) const {
    return launch(copy_rows<Moved<vector_bytes>, kRank>, config, stream, params, Moved<vector_bytes>());
  }

  // One run of any length has a kernel; so have rows of each small rank.
  Status operator()(const CopyRows& plan) const {
    if constexpr (Bytes == vector_bytes) {
      if (plan.params.rank == 0) return launch_rows<0>(plan.params);
      if (plan.params.wide_index) return launch_rows<any_rank>(plan.params);
      switch (plan.params.rank) {
        case 1: return launch_rows<1>(plan.params);
        case 2: return launch_rows<2>(plan.params);
        case 3: return launch_rows<3>(plan.params);
        case 4: return launch_rows<4>(plan.params);
        case 5: return launch_rows<5>(plan.params);
      }
      return launch_rows<any_rank>(plan.params);
    }
    return wrong_size();
  }

  // The ends of rows of 8 and 16 bytes are stored by words.
  Status operator()(const CopyShiftedRows& plan) const {
    return launch(copy_shifted_rows<(Bytes < 4 ? Bytes : 4)>, config, stream, plan.params);
  }

  Status operator()(const CopyReversedRows& plan) const {
    return launch(copy_reversed_rows<Bytes>, config, stream, plan.params);
  }

  Status operator()(const AlignedTile& plan) const {
    if (plan.params.has_plain_rows)
      return launch(aligned_tile<Moved<Bytes>, true>, config, stream, plan.params, Moved<Bytes>());
    return launch(aligned_tile<Moved<Bytes>, false>, config, stream, plan.params, Moved<Bytes>());
  }

  template <RunOffsets kOffsets, bool kSwizzle>
  Status launch_general(const TileParams& params) const {
    return launch(general_tile<Moved<Bytes>, kOffsets, kSwizzle>, config, stream, params, Moved<Bytes>());
  }

  // Elements of 8 and 16 bytes are few per vector: there a kernel without the swizzle, or for one kind of places, gains
  // nothing.
  Status operator()(const GeneralTile& plan) const {
    const bool by_table = plan.params.table_rank > 0, is_swizzled = plan.params.swizzle_bits != 0;
    if constexpr (Bytes == 16) {
      return launch_general<RunOffsets::planned, true>(plan.params);
    } else if constexpr (Bytes == 8) {
      return by_table ? launch_general<RunOffsets::by_table, true>(plan.params)
                      : launch_general<RunOffsets::even, true>(plan.params);
    } else {
      if (by_table)
        return is_swizzled ? launch_general<RunOffsets::by_table, true>(plan.params)
                           : launch_general<RunOffsets::by_table, false>(plan.params);
      return is_swizzled ? launch_general<RunOffsets::even, true>(plan.params)
                         : launch_general<RunOffsets::even, false>(plan.params);
    }
  }

  Status operator()(const ByteTile& plan) const {
    if constexpr (Bytes == 1) {
      if (config.num_threads == byte_tile_threads)
        return launch(byte_tile<byte_tile_threads>, config, stream, plan.params);
      return launch(byte_tile<tile_threads>, config, stream, plan.params);
    }
    return wrong_size();
  }

  Status operator()(const StridedTile& plan) const {
    constexpr int log2_bytes = Bytes == 1 ? 0 : Bytes == 2 ? 1 : Bytes == 4 ? 2 : Bytes == 8 ? 3 : 4;
    return launch(strided_tile<AnyMoved>, config, stream, plan.params, AnyMoved{log2_bytes});
  }

  Status operator()(const Channels& plan) const {
    if constexpr (Bytes <= 8) {
      if (plan.interleaves)
        return launch(channels<Moved<Bytes>, true, any_channels>, config, stream, plan.params, Moved<Bytes>());
      return launch(channels<Moved<Bytes>, false, any_channels>, config, stream, plan.params, Moved<Bytes>());
    }
    return wrong_size();
  }
};

}  // namespace

Status run_permute(const PermutePlan& plan, flowk_stream stream) {
  switch (plan.unit_bytes) {
    case 1: return std::visit(Run<1>{plan.launch, stream}, plan.mechanism);
    case 2: return std::visit(Run<2>{plan.launch, stream}, plan.mechanism);
    case 4: return std::visit(Run<4>{plan.launch, stream}, plan.mechanism);
    case 8: return std::visit(Run<8>{plan.launch, stream}, plan.mechanism);
    case 16: return std::visit(Run<16>{plan.launch, stream}, plan.mechanism);
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.unit_bytes = %d, must be 1, 2, 4, 8 or 16",
                         plan.unit_bytes);
}

}  // namespace flowk::permute
