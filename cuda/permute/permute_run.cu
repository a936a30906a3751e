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

  template <class Kernel, class Plan>
  Status run(Kernel* kernel, const Plan& plan) const {
    return launch(kernel, config, stream, plan.params, Moved<Bytes>());
  }

  // One run of one pair of tensors has a kernel of its own.
  Status operator()(const CopyRows& plan) const {
    if constexpr (Bytes == vector_bytes) {
      using Vectors = Moved<vector_bytes>;
      if (plan.params.rank == 0 && plan.params.num_pairs == 1) return run(copy_rows<Vectors, 0>, plan);
      return run(copy_rows<Vectors, any_rank>, plan);
    }
    return wrong_size();
  }

  // The ends of rows of 8 and 16 bytes are stored by words, unless elements change places.
  Status operator()(const CopyShiftedRows& plan) const {
    if (plan.is_reversed) return launch(copy_shifted_rows<Bytes, true>, config, stream, plan.params);
    return launch(copy_shifted_rows<(Bytes < 4 ? Bytes : 4), false>, config, stream, plan.params);
  }

  // Plain rows have a kernel where it is faster.
  Status operator()(const AlignedTile& plan) const {
    if constexpr (Bytes > 1 && Bytes < vector_bytes)
      if (plan.params.has_plain_rows) return run(aligned_tile<Moved<Bytes>, true>, plan);
    return run(aligned_tile<Moved<Bytes>, false>, plan);
  }

  // A kernel without the swizzle saves an instruction for two elements: elements of 1 and 2 bytes have one.
  Status operator()(const GeneralTile& plan) const {
    if constexpr (Bytes <= 2)
      if (plan.params.swizzle_bits == 0) return run(general_tile<Moved<Bytes>, false>, plan);
    return run(general_tile<Moved<Bytes>, true>, plan);
  }

  Status operator()(const ByteTile& plan) const {
    if constexpr (Bytes == 1) return launch(byte_tile, config, stream, plan.params);
    return wrong_size();
  }

  Status operator()(const StridedTile& plan) const {
    constexpr int log2_bytes = Bytes == 1 ? 0 : Bytes == 2 ? 1 : Bytes == 4 ? 2 : Bytes == 8 ? 3 : 4;
    return launch(strided_tile<AnyMoved>, config, stream, plan.params, AnyMoved{log2_bytes});
  }

  Status operator()(const Channels& plan) const {
    return plan.interleaves ? run(channels<Moved<Bytes>, true>, plan) : run(channels<Moved<Bytes>, false>, plan);
  }
};

}  // namespace

Status run_permute(const PermutePlan& plan, flowk_stream stream) {
  if (plan.conversion) return run_permute_convert(plan, stream);
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
