// SPDX-License-Identifier: Apache-2.0
// The checks that all elementwise functions share: sizes, pointers and overlaps.
#pragma once

#include "core/status.h"
#include "elementwise/elementwise.h"

namespace flowk::api {

struct ElementwiseTensor {
  const void* pointer;
  const int64_t* strides;  // NULL: C order
  flowk_dtype dtype;       // one of flowk.h
  bool is_number = false;  // the pointer is to one element in host memory
};

// An input whose dtype may include FLOWK_NUMBER.
ElementwiseTensor input_of(const void* pointer, const int64_t* strides, flowk_dtype dtype);

// The operands' names in messages: out, then the inputs.
extern const char* const elementwise_operand_names[max_operands];

// Fills in the tensors and the shape of `request`, or sets `is_empty` if there is nothing to do. tensors[0] is out.
Status check_tensors(const ElementwiseTensor* tensors, int num_operands, int32_t rank, const int64_t* shape,
                     elementwise::ElementwiseRequest* request, bool* is_empty);

}  // namespace flowk::api
