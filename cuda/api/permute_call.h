// SPDX-License-Identifier: Apache-2.0
// What the functions of permute have in common.
#pragma once

#include "api/call.h"
#include "permute/permute.h"

namespace flowk::api {

struct PermuteArguments {
  const void* src;
  const int64_t* src_strides;
  void* dst;
  const int64_t* dst_strides;
  int32_t rank;
  const int64_t* shape;
  const int32_t* axes;
  const char* src_name = "src";
  const char* dst_name = "dst";
};

// The element types of a call, and what they are multiplied by.
struct PermuteTypes {
  flowk_dtype src, dst;
  double scale;
  DtypeInfo src_info = {}, dst_info = {};
  bool is_plain_move() const { return permute::is_plain_move(src, dst, scale); }
};

// Checks the types, and fills src_info and dst_info.
Status check_permute_types(PermuteTypes* types);

// Checks all but the types, and fills `shape` as a request has it; or sets `is_empty` if there is nothing to do.
Status check_permute(const PermuteArguments& arguments, const DtypeInfo& src_dtype, const DtypeInfo& dst_dtype,
                     IterationSpace* shape, bool* is_empty);

// A permute of elements as they are.
flowk_status call_permute(const PermuteArguments& arguments, flowk_dtype dtype, const PlanUse& use);

}  // namespace flowk::api
