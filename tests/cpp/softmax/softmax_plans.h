// SPDX-License-Identifier: Apache-2.0
// Plans of softmax, on devices with given properties, over addresses that are never read.
#pragma once

#include "devices.h"
#include "softmax_case.h"

using namespace flowk::softmax;

namespace {

const Device a100 = {.capability = 80,
                     .num_multiprocessors = 108,
                     .shared_bytes_per_multiprocessor = 167936,
                     .shared_bytes_per_block = 166912};

// A contiguous (rows, columns) softmax over addresses that are never read.
SoftmaxRequest request_of(flowk_dtype dtype, int64_t rows, int64_t columns, bool dense = false, bool backward = false) {
  SoftmaxRequest request;
  request.backward = backward;
  request.in_dtype = request.out_dtype = request.bias_dtype = dtype;
  request.rank = 1;
  request.extents[0] = rows;
  request.columns = columns;
  const auto at = [](int64_t address) { return reinterpret_cast<const void*>(address); };
  for (auto& strides : request.strides) strides[0] = 0;
  const auto put = [&](SoftmaxOperand operand, int64_t address, int64_t bytes) {
    request.pointers[operand] = at(address);
    request.strides[operand][0] = columns * bytes;
  };
  const int64_t bytes = dtype_info(dtype).element_bytes;
  put(softmax_x, int64_t{1} << 40, bytes);
  put(softmax_out, int64_t{1} << 41, bytes);
  if (backward) put(softmax_bias_or_y, int64_t{1} << 42, bytes);
  if (dense) put(softmax_dense, int64_t{1} << 43, 1);
  return request;
}

SoftmaxPlan plan_of(const SoftmaxRequest& request, const Device& device) {
  SoftmaxPlan plan;
  plan_softmax(request, device, &plan);
  return plan;
}

}  // namespace
