// SPDX-License-Identifier: Apache-2.0
// The checks that all elementwise functions share: sizes, pointers and overlaps.
#pragma once

#include "api/call.h"
#include "elementwise/elementwise.h"

namespace flowk::api {

// An input of an operation. `dtype` may include FLOWK_HOST_SCALAR, which is removed if a flowk_dtype remains; the check
// rejects every other value.
Operand input_of(const char* name, const void* pointer, const int64_t* strides, flowk_dtype dtype);

// Fills in the tensors and the shape of `request`, or sets `is_empty` if there is nothing to do. operands[0] is out.
Status check_operands(const Operand* operands, int num_operands, int32_t rank, const int64_t* shape,
                      elementwise::ElementwiseRequest* request, bool* is_empty);

}  // namespace flowk::api
