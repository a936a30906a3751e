// SPDX-License-Identifier: Apache-2.0
// The C ABI of the merge of two softmaxes: check, plan, run.
#include "api/call.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/iteration_space.h"
#include "core/status.h"
#include "flowk/flowk.h"
#include "softmax/softmax_merge.h"

namespace flowk::api {
using namespace softmax;
namespace {

struct MergeArguments {
  const void *y1, *lse1, *y2, *lse2;
  void *y, *lse;
  int64_t rows, columns;
  flowk_dtype dtype;
};

Status check_merge(const MergeArguments& arguments, MergeRowsRequest* request, bool* is_empty) {
  const auto& [y1, lse1, y2, lse2, y, lse, rows, columns, dtype] = arguments;
  DtypeInfo info;
  FLOWK_RETURN_IF_ERROR(check_float_of_16_to_64_bits("dtype", dtype, &info));
  FLOWK_RETURN_IF_ERROR(check_at_least("rows", rows, 0));
  FLOWK_RETURN_IF_ERROR(check_at_least("columns", columns, 1));
  *is_empty = rows == 0;
  if (*is_empty) return {};
  const flowk_dtype wide = dtype == FLOWK_FLOAT64 ? FLOWK_FLOAT64 : FLOWK_FLOAT32;
  const int64_t shape[] = {rows, columns};
  const Layout of_y = layout_of(2, shape, nullptr), per_row = layout_of(1, shape, nullptr);
  Tensors tensors;
  FLOWK_RETURN_IF_ERROR(tensors.add({"y1", y1, nullptr, dtype}, of_y, false));
  FLOWK_RETURN_IF_ERROR(tensors.add({"y2", y2, nullptr, dtype}, of_y, false));
  FLOWK_RETURN_IF_ERROR(tensors.add({"lse1", lse1, nullptr, wide}, per_row, false));
  FLOWK_RETURN_IF_ERROR(tensors.add({"lse2", lse2, nullptr, wide}, per_row, false));
  FLOWK_RETURN_IF_ERROR(tensors.add({"lse", lse, nullptr, wide}, per_row, true));
  FLOWK_RETURN_IF_ERROR(tensors.add({"y", y, nullptr, dtype}, of_y, true, 2));
  request->dtype = dtype;
  request->params = {.y1 = static_cast<const unsigned char*>(y1),
                     .y2 = static_cast<const unsigned char*>(y2),
                     .y = static_cast<unsigned char*>(y),
                     .lse1 = lse1,
                     .lse2 = lse2,
                     .lse = lse,
                     .num_rows = rows,
                     .columns = WideDivider(static_cast<uint64_t>(columns))};
  return {};
}

flowk_status merge(const MergeArguments& arguments, const PlanUse& use) {
  const auto check = [&](MergeRowsRequest* request, bool* is_empty) {
    return check_merge(arguments, request, is_empty);
  };
  return check_plan_run(use, check, "y", plan_softmax_merge, run_softmax_merge, explain_softmax_merge);
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

flowk_status flowk_softmax_merge(const void* y1, const void* lse1, const void* y2, const void* lse2, void* y, void* lse,
                                 int64_t rows, int64_t columns, flowk_dtype dtype, flowk_stream stream) {
  return merge({y1, lse1, y2, lse2, y, lse, rows, columns, dtype}, stream);
}

flowk_status flowk_softmax_merge_explain(const void* y1, const void* lse1, const void* y2, const void* lse2, void* y,
                                         void* lse, int64_t rows, int64_t columns, flowk_dtype dtype, char* text,
                                         size_t text_bytes) {
  return merge({y1, lse1, y2, lse2, y, lse, rows, columns, dtype}, {text, text_bytes});
}

}  // extern "C"
