// SPDX-License-Identifier: Apache-2.0
// For tune_elementwise.py: a conversion of neighbours with a given number of packs per thread.
#include "core/device.h"
#include "core/dtype.h"
#include "elementwise/elementwise.h"
#include "elementwise/elementwise_op_info.h"

using namespace flowk::elementwise;

// 0: enqueued. Else: an error.
extern "C" __attribute__((visibility("default"))) int flowk_bench_elementwise_candidate(const void* x,
                                                                                        flowk_dtype x_dtype, void* out,
                                                                                        flowk_dtype out_dtype,
                                                                                        int64_t count, int32_t packs,
                                                                                        flowk_stream stream) {
  ElementwiseRequest request;
  request.arity = ElementwiseArity::unary;
  request.op = FLOWK_UNARY_COPY;
  request.pointers[0] = out;
  request.pointers[1] = x;
  request.dtypes[0] = out_dtype;
  request.dtypes[1] = x_dtype;
  request.shape.num_operands = 2;
  request.shape.rank = 1;
  request.shape.extents[0] = count;
  for (int k = 0; k < 2; ++k) {
    request.element_shifts[k] = __builtin_ctz(static_cast<unsigned>(dtype_info(request.dtypes[k]).element_bytes));
    request.shape.strides[k][0] = 1;
  }
  Device device;
  if (!current_device(&device).ok()) return 3;
  ElementwisePlan plan;
  plan_elementwise(request, device, packs, &plan);
  return run_elementwise(plan, stream).ok() ? 0 : 1;
}
