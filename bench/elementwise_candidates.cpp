// SPDX-License-Identifier: Apache-2.0
// For tune_elementwise.py: a conversion of neighbours with packs of a given number of elements.
#include "core/device.h"
#include "core/dtype.h"
#include "elementwise/elementwise_ops.h"
#include "elementwise/elementwise_plan.h"

using namespace flowk;

// 0: enqueued. 1: there is no such pack. 3: an error.
extern "C" __attribute__((visibility("default"))) int flowk_bench_elementwise_candidate(
    const void* x, flowk_dtype x_dtype, void* out, flowk_dtype out_dtype, int64_t count, int32_t pack_elements,
    flowk_stream stream) {
  ElementwiseRequest request;
  request.op = FLOWK_UNARY_COPY;
  request.compute = compute_class(x_dtype);
  request.pointers[0] = out;
  request.pointers[1] = x;
  request.dtypes[0] = out_dtype;
  request.dtypes[1] = x_dtype;
  request.shape.num_operands = 2;
  request.shape.rank = 1;
  request.shape.extents[0] = count;
  int32_t widest = 0;
  for (int k = 0; k < 2; ++k) {
    request.element_shifts[k] = __builtin_ctz(static_cast<unsigned>(dtype_info(request.dtypes[k]).element_bytes));
    request.shape.strides[k][0] = 1;
    if (request.element_shifts[k] > widest) widest = request.element_shifts[k];
  }
  // Packs of up to 32 bytes are compiled.
  if (pack_elements << widest > 32) return 1;
  Device device;
  if (!current_device(&device).ok()) return 3;
  ElementwisePlan plan;
  plan_elementwise(request, device, pack_elements, &plan);
  return run_elementwise(plan, stream).ok() ? 0 : 1;
}
