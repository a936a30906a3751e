// SPDX-License-Identifier: Apache-2.0
// The checks of the functions of masked softmax, in softmax_api.cpp.
#pragma once

#include "api/call.h"
#include "flowk/flowk.h"
#include "softmax/softmax.h"

namespace flowk::api {

struct SoftmaxArguments {
  bool backward;
  Operand x;  // or dy
  Operand y;  // backward
  Operand out;
  int32_t rank;
  const int64_t* shape;
  double scale;
  const flowk_softmax_mask* given_mask;  // the caller's, or NULL
  int32_t log_softmax;
  const char* in_dtype_name;
  const char* out_dtype_name;
  bool is_dbias = false;  // of flowk_masked_softmax_backward_dbias(): rows are contiguous, `out` may be NULL
  flowk_softmax_mask mask = FLOWK_SOFTMAX_MASK_INIT;
};

Status check_softmax_dtype(const char* parameter, flowk_dtype dtype);

// float32 or `dtype` itself; float64 only with itself.
Status check_other_dtype(const char* parameter, flowk_dtype other, const char* name, flowk_dtype dtype);

// Rows have at most max_row_columns.
Status check_row_columns(int32_t rank, const int64_t* shape);

// A tensor of the first `rank` extents of `shape`. Its last stride is 1 if it has_rows, which a mask asks for.
Status make_layout(const Operand& operand, int32_t rank, const int64_t* shape, bool has_rows, Layout* layout);

void put_operand(softmax::SoftmaxRequest* request, softmax::SoftmaxOperand operand, const void* pointer,
                 const Layout& layout, int64_t element_bytes);

// Fills `request` and the arguments' copy of the mask, or sets `is_empty` if there is nothing to do.
Status check_softmax(SoftmaxArguments* arguments, softmax::SoftmaxRequest* request, bool* is_empty);

}  // namespace flowk::api
