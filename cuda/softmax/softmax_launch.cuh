// SPDX-License-Identifier: Apache-2.0
// From a plan to its launch, for a part of the mechanisms: the table of kernels, expanded. Each file of instantiate/
// compiles its own part.
#pragma once

#include <algorithm>
#include <utility>

#include "core/launch.cuh"
#include "core/resident_clusters.cuh"
#include "softmax/kernels/framed_rows.cuh"
#include "softmax/kernels/framed_softmax.cuh"
#include "softmax/kernels/persistent_rows.cuh"
#include "softmax/kernels/row_in_registers.cuh"
#include "softmax/kernels/row_in_registers_gradient.cuh"
#include "softmax/kernels/row_in_shared.cuh"
#include "softmax/kernels/rows_by_vectors.cuh"
#include "softmax/kernels/rows_in_lanes.cuh"
#include "softmax/kernels/split_row.cuh"
#include "softmax/kernels/staged_rows.cuh"
#include "softmax/kernels/strided_rows.cuh"
#include "softmax/kernels/two_pass_row.cuh"
#include "softmax/softmax_run.h"

namespace flowk::softmax {

// Groups of rows: the second grid of a group finds in L2 what the first one has read.
template <class Terms, int kRow>
Status launch_split_row(const SoftmaxPlan& plan, flowk_stream stream) {
  const SoftmaxParams& params = plan.params;
  LaunchConfig config = plan.launch;
  SplitRow split = plan.config.as<SplitRow>();
  for (; split.first_row < params.rows.num_rows; split.first_row += split.rows_per_launch) {
    config.num_blocks = std::min(split.rows_per_launch, params.rows.num_rows - split.first_row) * split.slices;
    FLOWK_RETURN_IF_ERROR(launch(split_row_partials<Terms>, config, stream, split, params));
    FLOWK_RETURN_IF_ERROR(launch(split_row_results<Terms, kRow>, config, stream, split, params));
  }
  return {};
}

template <class Terms, int kRow>
Status launch_persistent_rows(const SoftmaxPlan& plan, flowk_stream stream) {
  LaunchConfig config = plan.launch;
  FLOWK_RETURN_IF_ERROR(limit_to_resident(persistent_rows<Terms, kRow>, &config));
  return launch(persistent_rows<Terms, kRow>, config, stream, plan.config.as<PersistentRows>(), plan.params);
}

// Launches the kernel of row kRow of the table.
template <class T, SoftmaxMask kMask, int kRow>
Status launch_kernel(const SoftmaxPlan& plan, flowk_stream stream) {
  constexpr SoftmaxKernelRow row = softmax_kernels[kRow];
  const auto start = [&](auto kernel) { return launch(kernel, plan.launch, stream, plan.params); };
  const auto start_with = [&](auto kernel, const auto& mechanism) {
    return launch(kernel, plan.launch, stream, mechanism, plan.params);
  };
  // Unaligned rows without a mask are rows with a dense mask that is not given.
  constexpr SoftmaxMask mask = row.unaligned && kMask == SoftmaxMask::none ? SoftmaxMask::dense : kMask;
  using RowTerms = std::conditional_t<row.backward, GradientTerms<T>, SoftmaxTerms<T, mask>>;
  using TermsOfRow = std::conditional_t<row.sinks, RowTerms, WithoutSinks<RowTerms>>;
  using Terms = std::conditional_t<row.row_values, TermsOfRow, WithoutRowValues<RowTerms>>;
  if constexpr (row.mechanism == SoftmaxKernel::row_in_registers && row.backward)
    return start_with(row_in_registers_gradient<Terms, kRow>, plan.config.as<RowInRegisters>());
  else if constexpr (row.mechanism == SoftmaxKernel::row_in_registers)
    return start_with(row_in_registers<Terms, kRow>, plan.config.as<RowInRegisters>());
  else if constexpr (row.mechanism == SoftmaxKernel::row_in_shared)
    return start_with(row_in_shared<Terms, kRow>, plan.config.as<RowInShared>());
  else if constexpr (row.mechanism == SoftmaxKernel::staged_rows)
    return start_with(staged_rows<StagedTerms<T, kMask, kRow>, kRow>, plan.config.as<StagedRows>());
  else if constexpr (row.mechanism == SoftmaxKernel::framed_rows && row.backward)
    return start_with(framed_rows<Terms, kRow>, plan.config.as<FramedRows>());
  else if constexpr (row.mechanism == SoftmaxKernel::framed_rows)
    return start_with(framed_rows_softmax<T, kRow>, plan.config.as<FramedRows>());
  else if constexpr (row.mechanism == SoftmaxKernel::strided_rows)
    return start_with(strided_rows<Terms, kRow>, plan.config.as<StridedRows>());
  else if constexpr (row.mechanism == SoftmaxKernel::rows_by_vectors)
    return start(rows_by_vectors<Terms, kRow>);
  else if constexpr (row.mechanism == SoftmaxKernel::rows_in_lanes)
    return start(rows_in_lanes<T, kRow>);
  else if constexpr (row.mechanism == SoftmaxKernel::split_row)
    return launch_split_row<SplitTerms<T, row.backward>, kRow>(plan, stream);
  else if constexpr (row.mechanism == SoftmaxKernel::persistent_rows)
    return launch_persistent_rows<Terms, kRow>(plan, stream);
  else
    return start_with(two_pass_row<std::conditional_t<row.backward, Terms, SoftmaxTerms<T, SoftmaxMask::bias>>, kRow>,
                      plan.config.as<TwoPassRow>());
}

template <SoftmaxPart kPart, class T, SoftmaxMask kMask, int... kRows>
Status launch_from_table(const SoftmaxPlan& plan, flowk_stream stream, std::integer_sequence<int, kRows...>) {
  Status status;
  const auto launch_if = [&](auto index) {
    constexpr int row = decltype(index)::value;
    if constexpr (part_of(softmax_kernels[row].mechanism) == kPart && takes(softmax_kernels[row], sizeof(T), kMask)) {
      if (plan.kernel_row == row) {
        status = launch_kernel<T, kMask, row>(plan, stream);
        return true;
      }
    }
    return false;
  };
  if ((launch_if(std::integral_constant<int, kRows>()) || ...)) return status;
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "no kernel %s for this plan",
                         softmax_kernel_name(plan.config.kernel()));
}

template <SoftmaxPart kPart, class T>
Status run_softmax_part_of(const SoftmaxPlan& plan, flowk_stream stream) {
  constexpr std::make_integer_sequence<int, num_softmax_kernels> rows;
  switch (plan.mask) {
    case SoftmaxMask::none: return launch_from_table<kPart, T, SoftmaxMask::none>(plan, stream, rows);
    case SoftmaxMask::dense: return launch_from_table<kPart, T, SoftmaxMask::dense>(plan, stream, rows);
    case SoftmaxMask::scores: return launch_from_table<kPart, T, SoftmaxMask::scores>(plan, stream, rows);
    default: return launch_from_table<kPart, T, SoftmaxMask::bias>(plan, stream, rows);
  }
}

template <SoftmaxPart kPart>
Status run_softmax_part(const SoftmaxPlan& plan, flowk_stream stream) {
  switch (plan.in_dtype) {
    case FLOWK_FLOAT16: return run_softmax_part_of<kPart, Float16>(plan, stream);
    case FLOWK_BFLOAT16: return run_softmax_part_of<kPart, BFloat16>(plan, stream);
    case FLOWK_FLOAT32: return run_softmax_part_of<kPart, float>(plan, stream);
    case FLOWK_FLOAT64: return run_softmax_part_of<kPart, double>(plan, stream);
    default: break;
  }
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "plan.in_dtype = %d, must be a float of 16 to 64 bits",
                         static_cast<int>(plan.in_dtype));
}

}  // namespace flowk::softmax
