// SPDX-License-Identifier: Apache-2.0
// What the functions of permute have in common.
#pragma once

#include "core/dtype.h"
#include "core/iteration_space.h"
#include "core/status.h"

namespace flowk::api {

struct PermuteArguments {
  const void* src;
  const int64_t* src_strides;
  void* dst;
  const int64_t* dst_strides;
  int32_t rank;
  const int64_t* shape;
  const int32_t* axes;
};

// Checks all but the types, and fills `shape` as a request has it; or sets `is_empty` where there is nothing to do.
Status check_permute(const PermuteArguments& arguments, const DtypeInfo& src_dtype, const DtypeInfo& dst_dtype,
                     PairShape* shape, bool* is_empty);

// A permute of elements as they are, and its plan in words.
Status call_permute(const PermuteArguments& arguments, const DtypeInfo& dtype, flowk_stream stream);
Status call_permute_explain(const PermuteArguments& arguments, const DtypeInfo& dtype, char* text, size_t text_bytes);

}  // namespace flowk::api
