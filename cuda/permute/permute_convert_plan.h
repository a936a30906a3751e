// SPDX-License-Identifier: Apache-2.0
// What flowk_permute_convert() is to do and how it will: the plan of the movement, as permute_plan.h has it, and what
// happens to the elements on the way.
#pragma once

#include "core/conversion.h"
#include "core/dtype.h"
#include "permute/permute_plan.h"

namespace flowk::permute {

// A checked call of two types that is_convertible() takes. `shape` as in PermuteRequest.
struct PermuteConvertRequest {
  const void* src = nullptr;
  void* dst = nullptr;
  flowk_dtype src_dtype = FLOWK_FLOAT32;
  flowk_dtype dst_dtype = FLOWK_FLOAT32;
  double scale = 1;
  PairShape shape;
};

// The elements of src that one thread of convert_rows() turns into elements of dst.
FLOWK_HOST_DEVICE constexpr int convert_group_elements(int src_bytes, int dst_bytes) {
  const int wider = src_bytes > dst_bytes ? src_bytes : dst_bytes;
  const int narrower = src_bytes > dst_bytes ? dst_bytes : src_bytes;
  const int by_wider = 16 / wider, by_narrower = 4 / narrower;
  return by_wider > by_narrower ? by_wider : by_narrower;
}

struct PermuteConvertPlan {
  // Its kernel stands for the one that converts as well: row_copy for convert_rows, tiled_transpose for
  // convert_transpose, two_sided_tile for convert_tile, strided_tile for convert_strided_tile, channel_interleave and
  // channel_deinterleave for convert_interleave and convert_deinterleave. unit_bytes are src's.
  PermutePlan movement;
  Conversion conversion;
  int32_t dst_unit_bytes = 0;
  bool in_double = false;  // computed in double; otherwise in float
  friend bool operator==(const PermuteConvertPlan&, const PermuteConvertPlan&) = default;
};

// Bool, the integers to 32 bits and the real floats.
bool is_convertible(flowk_dtype dtype);

// Does the call only move bits? Then it is a plain permute of src_dtype: equal types, or integers of one size,
// unscaled.
bool is_plain_move(flowk_dtype src_dtype, flowk_dtype dst_dtype, double scale);

// Is the product of the two types computed in double? Where a type is float64 or an integer of 32 bits.
bool computes_in_double(flowk_dtype src_dtype, flowk_dtype dst_dtype);

// Chooses kernel, tile and launch, or finds the choice in this thread's memory: cached_plan(). Never fails: every
// checked request has a plan.
void plan_permute_convert(const PermuteConvertRequest& request, const Device& device, PermuteConvertPlan* plan);

// Enqueues the plan.
Status run_permute_convert(const PermuteConvertPlan& plan, flowk_stream stream);

// The plans of the two channel kernels; permute_convert_channels.cu.
Status run_permute_convert_channels(const PermuteConvertPlan& plan, flowk_stream stream);

// Writes the plan in words; as flowk_permute_convert_explain().
void explain_permute_convert(const PermuteConvertPlan& plan, const PermuteConvertRequest& request, char* text,
                             size_t text_bytes);

}  // namespace flowk::permute
