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

// The element types of a call, and what elements are multiplied by.
struct PermuteTypes {
  flowk_dtype src, dst;
  double scale = 1;
  const char* src_name = "src_dtype";
  const char* dst_name = "dst_dtype";
};

// Checks the types, and fills the request's element_bytes and conversion.
Status check_permute_types(const PermuteTypes& types, permute::PermuteRequest* request);

// Checks all but the types, and fills the rest of the request; or sets `is_empty` if there is nothing to do.
Status check_permute(const PermuteArguments& arguments, const PermuteTypes& types, permute::PermuteRequest* request,
                     bool* is_empty);

// Checks, plans, and runs or explains.
flowk_status call_permute(const PermuteArguments& arguments, const PermuteTypes& types, const PlanUse& use);

}  // namespace flowk::api
