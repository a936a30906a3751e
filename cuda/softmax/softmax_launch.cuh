// SPDX-License-Identifier: Apache-2.0
// From a plan to its launch, for one input type. Each instantiate/softmax_TYPE.cu compiles it for its own type.
#pragma once

#include <algorithm>
#include <bit>

#include "core/launch.cuh"
#include "core/resident_clusters.cuh"
#include "softmax/kernels/persistent_rows.cuh"
#include "softmax/kernels/row_in_registers.cuh"
#include "softmax/kernels/row_in_shared.cuh"
#include "softmax/kernels/rows_by_vectors.cuh"
#include "softmax/kernels/rows_in_lanes.cuh"
#include "softmax/kernels/split_row.cuh"
#include "softmax/kernels/staged_rows.cuh"
#include "softmax/kernels/two_pass_row.cuh"
#include "softmax/softmax_run.h"

namespace flowk::softmax {

inline Status no_such_kernel(const SoftmaxPlan& plan) {
  return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "no kernel %s for this plan",
                         softmax_kernel_name(plan.config.kernel()));
}

// row_in_registers is compiled for some powers of 2 of vectors per thread. A kernel of more vectors than the plan's is
// also right, except with the form `whole`.
template <class T, SoftmaxMask kMask, SoftmaxForm kForm, bool kConverts, int kVectors, int... kMore>
Status launch_row_in_registers_as(const SoftmaxPlan& plan, flowk_stream stream) {
  if (plan.config.as<RowInRegisters>().vectors_per_thread <= kVectors)
    return launch(row_in_registers<T, kVectors, kMask, kForm, kConverts>, plan.launch, stream, plan.params);
  if constexpr (sizeof...(kMore) > 0)
    return launch_row_in_registers_as<T, kMask, kForm, kConverts, kMore...>(plan, stream);
  return no_such_kernel(plan);
}

// The form `whole`, for the vectors per thread of the usual rows; others take `unfilled`. float16 and bfloat16 rows
// have up to 8 vectors per thread, float32 rows without a bias 16.
template <class T, SoftmaxMask kMask>
Status launch_whole_row_in_registers(const SoftmaxPlan& plan, flowk_stream stream) {
  constexpr SoftmaxForm whole = SoftmaxForm::whole;
  if constexpr (kMask == SoftmaxMask::bias) {
    return launch_row_in_registers_as<T, kMask, whole, false, 8>(plan, stream);
  } else if constexpr (sizeof(T) == 2) {
    return launch_row_in_registers_as<T, kMask, whole, false, 1, 2, 4, 8>(plan, stream);
  } else {
    return launch_row_in_registers_as<T, kMask, whole, false, 1, 2, 4, 8, 16>(plan, stream);
  }
}

template <class T, SoftmaxMask kMask>
Status launch_row_in_registers(const SoftmaxPlan& plan, flowk_stream stream) {
  constexpr SoftmaxForm any = SoftmaxForm::any, aligned = SoftmaxForm::aligned, unfilled = SoftmaxForm::unfilled;
  constexpr bool has_bias = kMask == SoftmaxMask::bias, has_mask = kMask != SoftmaxMask::none;
  [[maybe_unused]] const auto [vectors, form] = plan.config.as<RowInRegisters>();
  if constexpr (sizeof(T) == 8) {
    return launch_row_in_registers_as<T, kMask, any, false, 8>(plan, stream);
  } else {
    if constexpr (sizeof(T) == 4)
      if (plan.in_dtype != plan.out_dtype) {
        if constexpr (has_bias)
          return launch_row_in_registers_as<T, kMask, any, true, 8>(plan, stream);
        else if constexpr (has_mask)
          return launch_row_in_registers_as<T, kMask, any, true, 16>(plan, stream);
        else
          return launch_row_in_registers_as<T, kMask, any, true, 4, 16>(plan, stream);
      }
    if constexpr (!has_bias || sizeof(T) == 4)
      if (form == SoftmaxForm::whole && (!has_bias || vectors == 8))
        return launch_whole_row_in_registers<T, kMask>(plan, stream);
    constexpr int least = has_mask && !(has_bias && sizeof(T) == 2) ? 4 : 2;
    if (form == SoftmaxForm::whole || form == unfilled) {
      if constexpr (sizeof(T) == 4 && !has_bias)
        return launch_row_in_registers_as<T, kMask, unfilled, false, least, 4, 8, 16>(plan, stream);
      else
        return launch_row_in_registers_as<T, kMask, unfilled, false, least, 4, 8>(plan, stream);
    }
    // `any` takes the other aligned rows.
    if constexpr (sizeof(T) == 4 && !has_mask)
      if (form == aligned && vectors <= 8)
        return launch_row_in_registers_as<T, kMask, aligned, false, 4, 8>(plan, stream);
    if constexpr (sizeof(T) == 4 && !has_bias)
      return launch_row_in_registers_as<T, kMask, any, false, 4, 8, 16>(plan, stream);
    else
      return launch_row_in_registers_as<T, kMask, any, false, 4, 8>(plan, stream);
  }
}

template <class T, bool kConverts, int kVectors, int... kMore>
Status launch_row_in_registers_backward_as(const SoftmaxPlan& plan, flowk_stream stream) {
  if (plan.config.as<RowInRegisters>().vectors_per_thread <= kVectors)
    return launch(row_in_registers_backward<T, kVectors, kConverts>, plan.launch, stream, plan.params);
  if constexpr (sizeof...(kMore) > 0) return launch_row_in_registers_backward_as<T, kConverts, kMore...>(plan, stream);
  return no_such_kernel(plan);
}

template <class T>
Status launch_row_in_registers_backward(const SoftmaxPlan& plan, flowk_stream stream) {
  if constexpr (sizeof(T) == 8) {
    return launch_row_in_registers_backward_as<T, false, 8>(plan, stream);
  } else {
    if constexpr (sizeof(T) == 2)
      if (plan.in_dtype != plan.out_dtype) return launch_row_in_registers_backward_as<T, true, 8>(plan, stream);
    return launch_row_in_registers_backward_as<T, false, 1, 2, 4, 8>(plan, stream);
  }
}

// Groups of rows: the second grid of a group finds in L2 what the first one has read.
template <class Terms>
Status launch_split_row(const SoftmaxPlan& plan, flowk_stream stream) {
  SoftmaxParams params = plan.params;
  LaunchConfig config = plan.launch;
  const auto [slices, rows_per_launch] = plan.config.as<SplitRow>();
  for (int64_t first = 0; first < params.num_rows; first += rows_per_launch) {
    params.first_row = first;
    config.num_blocks = std::min(rows_per_launch, params.num_rows - first) * slices;
    FLOWK_RETURN_IF_ERROR(launch(split_row_partials<Terms>, config, stream, params));
    FLOWK_RETURN_IF_ERROR(launch(split_row_results<Terms>, config, stream, params));
  }
  return {};
}

template <class Rows>
Status launch_persistent_rows(const SoftmaxPlan& plan, flowk_stream stream) {
  LaunchConfig config = plan.launch;
  FLOWK_RETURN_IF_ERROR(limit_to_resident(persistent_rows<Rows>, &config));
  return launch(persistent_rows<Rows>, config, stream, plan.params);
}

template <class Rows>
Status launch_staged(const SoftmaxPlan& plan, flowk_stream stream) {
  return launch(staged_rows<Rows>, plan.launch, stream, plan.params);
}

// A kernel takes the numbers of columns or units between its two bounds. Of float32, a thread has up to 5
// units of gradients or with a bias, and 9 with a dense mask.
template <class T>
Status launch_staged_gradients(const SoftmaxPlan& plan, flowk_stream stream) {
  const StagedRows& staged = plan.config.as<StagedRows>();
  const int n = staged.units_per_thread;
  if (staged.unit_columns == 1)
    return n <= 8 ? launch_staged<GradientColumns<T, 8, 1>>(plan, stream)
                  : launch_staged<GradientColumns<T, 20, 9>>(plan, stream);
  if constexpr (sizeof(T) == 4)
    return n <= 3 ? launch_staged<GradientUnits<T, 3, 3>>(plan, stream)
                  : launch_staged<GradientUnits<T, 5, 4>>(plan, stream);
  else
    return n <= 5 ? launch_staged<GradientUnits<T, 5, 3>>(plan, stream)
                  : launch_staged<GradientUnits<T, 10, 6>>(plan, stream);
}

template <class T, SoftmaxMask kMask>
Status launch_staged_rows(const SoftmaxPlan& plan, flowk_stream stream) {
  constexpr SoftmaxMask none = SoftmaxMask::none, dense = SoftmaxMask::dense, bias = SoftmaxMask::bias;
  const StagedRows& staged = plan.config.as<StagedRows>();
  const int n = staged.units_per_thread;
  if (staged.unit_columns == 1) {
    if constexpr (kMask != none) {
      return launch_staged<SoftmaxColumns<T, 20, 1, true>>(plan, stream);
    } else {
      if (n <= 2) return launch_staged<SoftmaxColumns<T, 2, 1, false>>(plan, stream);
      if (n <= 4) return launch_staged<SoftmaxColumns<T, 4, 3, false>>(plan, stream);
      if (n <= 8) return launch_staged<SoftmaxColumns<T, 8, 5, false>>(plan, stream);
      if (n <= 12) return launch_staged<SoftmaxColumns<T, 12, 9, false>>(plan, stream);
      return launch_staged<SoftmaxColumns<T, 20, 13, false>>(plan, stream);
    }
  }
  if constexpr (kMask == bias) {
    if constexpr (sizeof(T) == 4)
      return launch_staged<SoftmaxUnits<T, 5, 3, bias>>(plan, stream);
    else
      return n <= 6 ? launch_staged<SoftmaxUnits<T, 6, 3, bias>>(plan, stream)
                    : launch_staged<SoftmaxUnits<T, 10, 7, bias>>(plan, stream);
  } else if constexpr (kMask == dense) {
    if (n <= 4) return launch_staged<SoftmaxUnits<T, 4, 3, dense>>(plan, stream);
    if constexpr (sizeof(T) == 4) {
      // 5 units: 77 columns.
      if (n <= 5) return launch_staged<SoftmaxUnits<T, 5, 5, dense>>(plan, stream);
      if (n <= 7) return launch_staged<SoftmaxUnits<T, 7, 6, dense>>(plan, stream);
      return launch_staged<SoftmaxUnits<T, 9, 8, dense>>(plan, stream);
    } else {
      if (n <= 6) return launch_staged<SoftmaxUnits<T, 6, 5, dense>>(plan, stream);
      if (n <= 8) return launch_staged<SoftmaxUnits<T, 8, 7, dense>>(plan, stream);
      return launch_staged<SoftmaxUnits<T, 10, 9, dense>>(plan, stream);
    }
  } else {
    if (n <= 4) return launch_staged<SoftmaxUnits<T, 4, 3, none>>(plan, stream);
    if (n <= 6) return launch_staged<SoftmaxUnits<T, 6, 5, none>>(plan, stream);
    if (n <= 8) return launch_staged<SoftmaxUnits<T, 8, 7, none>>(plan, stream);
    return launch_staged<SoftmaxUnits<T, 10, 9, none>>(plan, stream);
  }
}

template <class T, SoftmaxMask kMask>
Status launch_forward(const SoftmaxPlan& plan, flowk_stream stream) {
  switch (plan.config.kernel()) {
    case SoftmaxKernel::row_in_registers: return launch_row_in_registers<T, kMask>(plan, stream);
    case SoftmaxKernel::row_in_shared:
      if constexpr (sizeof(T) < 8 && kMask != SoftmaxMask::bias) {
        if (plan.config.as<RowInShared>().vectors_per_thread == 4)
          return launch(row_in_shared<T, kMask, 4>, plan.launch, stream, plan.params);
        if constexpr (sizeof(T) == 4 && kMask == SoftmaxMask::none)
          return launch(row_in_shared<T, kMask, 8>, plan.launch, stream, plan.params);
      }
      break;
    case SoftmaxKernel::split_row:
      if constexpr (sizeof(T) < 8) return launch_split_row<SplitScores<T>>(plan, stream);
      break;
    case SoftmaxKernel::persistent_rows:
      if constexpr (sizeof(T) < 8 && kMask == SoftmaxMask::none)
        return launch_persistent_rows<PersistentSoftmax<T, 4>>(plan, stream);
      break;
    case SoftmaxKernel::staged_rows:
      if constexpr (sizeof(T) < 8) return launch_staged_rows<T, kMask>(plan, stream);
      break;
    case SoftmaxKernel::rows_by_vectors:
      if constexpr (sizeof(T) < 8 && kMask == SoftmaxMask::none)
        return launch(rows_by_vectors<T, 4>, plan.launch, stream, plan.params);
      break;
    case SoftmaxKernel::rows_in_lanes:
      if constexpr (sizeof(T) < 8 && kMask == SoftmaxMask::none) {
        const int vectors = plan.config.as<RowsInLanes>().vectors_per_thread, lanes = plan.config.lanes_per_row;
        if (vectors <= 2) return launch(rows_in_lanes<T, 0, 2>, plan.launch, stream, plan.params);
        if (vectors == 3) return launch(rows_in_lanes<T, 0, 3>, plan.launch, stream, plan.params);
        if (lanes == 16) return launch(rows_in_lanes<T, 16, 4>, plan.launch, stream, plan.params);
        if (lanes == 32) return launch(rows_in_lanes<T, 32, 4>, plan.launch, stream, plan.params);
        return launch(rows_in_lanes<T, 0, 4>, plan.launch, stream, plan.params);
      }
      break;
    case SoftmaxKernel::two_pass_row: return launch(two_pass_row<T>, plan.launch, stream, plan.params);
    default: break;
  }
  return no_such_kernel(plan);
}

template <class T>
Status launch_backward(const SoftmaxPlan& plan, flowk_stream stream) {
  switch (plan.config.kernel()) {
    case SoftmaxKernel::row_in_registers: return launch_row_in_registers_backward<T>(plan, stream);
    case SoftmaxKernel::row_in_shared:
      if constexpr (sizeof(T) < 8) return launch(row_in_shared_backward<T>, plan.launch, stream, plan.params);
      break;
    case SoftmaxKernel::split_row:
      if constexpr (sizeof(T) < 8) return launch_split_row<SplitGradients<T>>(plan, stream);
      break;
    case SoftmaxKernel::persistent_rows:
      if constexpr (sizeof(T) < 8) return launch_persistent_rows<PersistentGradient<T, 2>>(plan, stream);
      break;
    case SoftmaxKernel::staged_rows:
      if constexpr (sizeof(T) < 8) return launch_staged_gradients<T>(plan, stream);
      break;
    case SoftmaxKernel::rows_by_vectors:
      if constexpr (sizeof(T) < 8) return launch(rows_by_vectors_backward<T, 2>, plan.launch, stream, plan.params);
      break;
    case SoftmaxKernel::two_pass_row: return launch(two_pass_row_backward<T>, plan.launch, stream, plan.params);
    default: break;
  }
  return no_such_kernel(plan);
}

template <class T>
Status launch_softmax(const SoftmaxPlan& plan, flowk_stream stream) {
  if (plan.backward) return launch_backward<T>(plan, stream);
  switch (plan.mask) {
    case SoftmaxMask::none: return launch_forward<T, SoftmaxMask::none>(plan, stream);
    case SoftmaxMask::dense: return launch_forward<T, SoftmaxMask::dense>(plan, stream);
    case SoftmaxMask::bias: return launch_forward<T, SoftmaxMask::bias>(plan, stream);
  }
  return no_such_kernel(plan);
}

}  // namespace flowk::softmax
