// SPDX-License-Identifier: Apache-2.0
// The C ABI of masked softmax, its backward, and the gradient of its bias: check, plan, run.
#include <algorithm>

#include "api/softmax_check.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/iteration_space.h"
#include "core/status.h"
#include "flowk/flowk.h"
#include "softmax/softmax.h"
#include "softmax/softmax_bias_gradient.h"

namespace flowk::api {
using namespace softmax;
namespace {

flowk_status softmax(SoftmaxArguments arguments, const PlanUse& use) {
  return check_plan_run<SoftmaxRequest>(
      use, [&](SoftmaxRequest* request, bool* is_empty) { return check_softmax(&arguments, request, is_empty); },
      [&](const SoftmaxRequest& request, const Device& device) -> Status {
        SoftmaxPlan plan;
        plan_softmax(request, device, &plan);
        FLOWK_RETURN_IF_ERROR(check_grid(arguments.out.name, plan.launch));
        if (!use.explains) return run_softmax(plan, use.stream);
        explain_softmax(plan, request, use.text, use.text_bytes);
        return {};
      });
}

SoftmaxArguments forward_arguments(const Operand& x, const Operand& y, int32_t rank, const int64_t* shape, double scale,
                                   const flowk_softmax_mask* mask, int32_t log_softmax) {
  return {false, x, {}, y, rank, shape, scale, mask, log_softmax, "x_dtype", "y_dtype"};
}

SoftmaxArguments backward_arguments(const Operand& dy, const Operand& y, const Operand& dx, int32_t rank,
                                    const int64_t* shape, double scale, const flowk_softmax_mask* mask,
                                    int32_t log_softmax) {
  return {true, dy, y, dx, rank, shape, scale, mask, log_softmax, "y_dtype", "dx_dtype"};
}

// ---- the gradient of a bias

struct DbiasArguments {
  SoftmaxArguments softmax;
  Operand dbias;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

// Is a dimension, but for the columns, one over which the bias is shared?
bool is_shared(const int64_t* shape, const int64_t* strides, int d) {
  return shape[d] != 1 && strides != nullptr && strides[d] == 0;
}

Status find_sizes(int32_t rank, const int64_t* shape, const int64_t* strides, flowk_dtype y_dtype,
                  BiasGradientSizes* sizes) {
  *sizes = {.columns = shape[rank - 1], .y_dtype = y_dtype};
  bool overflows = false;
  for (int d = 0; d < rank - 1; ++d) {
    if (is_shared(shape, strides, d)) {
      sizes->member_rows = 1;
      overflows |= __builtin_mul_overflow(sizes->members, shape[d], &sizes->members);
    } else {
      overflows |= __builtin_mul_overflow(sizes->groups, shape[d], &sizes->groups);
      overflows |= __builtin_mul_overflow(sizes->member_rows, shape[d], &sizes->member_rows);
    }
  }
  int64_t num_rows = 0;
  if (overflows || __builtin_mul_overflow(sizes->groups, sizes->members, &num_rows))
    return Status::failure(FLOWK_STATUS_SIZE_OVERFLOW, "shape has too many rows, must have < 2^63");
  return {};
}

// The tensors of a call that has elements, except dbias.
struct CallTensor {
  Operand operand;
  Layout layout;
};
constexpr int max_call_tensors = 8;
int tensors_of(const SoftmaxArguments& call, CallTensor (&tensors)[max_call_tensors]) {
  const flowk_softmax_mask& mask = call.mask;
  const flowk_dtype row_dtype = call.x.dtype == FLOWK_FLOAT64 ? FLOWK_FLOAT64 : FLOWK_FLOAT32;
  const bool has_dsinks = mask.dsinks != nullptr;
  const struct {
    Operand operand;
    int32_t rank;
  } given[max_call_tensors] = {
      {call.x, call.rank},
      {call.y, call.rank},
      {call.out, call.rank},
      {{"mask->lengths", mask.lengths, mask.lengths_strides, mask.lengths_dtype}, call.rank - 1},
      {{"mask->dlse", mask.dlse, nullptr, row_dtype}, call.rank - 1},
      {{"mask->dsinks", mask.dsinks, nullptr, row_dtype}, call.rank - 1},
      {{"mask->lse", has_dsinks ? mask.lse : nullptr, nullptr, row_dtype}, call.rank - 1},
      {{"mask->sinks", has_dsinks ? mask.sinks : nullptr, mask.sinks_strides, row_dtype}, call.rank - 1}};
  int count = 0;
  for (const auto& [operand, rank] : given)
    if (operand.pointer != nullptr) tensors[count++] = {operand, layout_of(rank, call.shape, operand.strides)};
  return count;
}

Status check_dbias(DbiasArguments* given, BiasGradientRequest* request, bool* is_empty) {
  FLOWK_RETURN_IF_ERROR(check_softmax(&given->softmax, &request->softmax, is_empty));
  const SoftmaxArguments& call = given->softmax;
  const Operand& dbias = given->dbias;
  const int32_t rank = call.rank;
  FLOWK_RETURN_IF_ERROR(check_other_dtype("dbias_dtype", dbias.dtype, "y_dtype", call.y.dtype));
  BiasGradientSizes& sizes = request->sizes;
  FLOWK_RETURN_IF_ERROR(find_sizes(rank, call.shape, dbias.strides, call.y.dtype, &sizes));
  *is_empty = sizes.groups == 0 || sizes.columns == 0;
  if (*is_empty) return {};
  int64_t shape[FLOWK_MAX_RANK];
  for (int d = 0; d < rank; ++d) shape[d] = d < rank - 1 && is_shared(call.shape, dbias.strides, d) ? 1 : call.shape[d];
  Layout layout;
  FLOWK_RETURN_IF_ERROR(make_layout(dbias, rank, shape, true, &layout));
  FLOWK_RETURN_IF_ERROR(check_no_self_overlap("dbias", layout));
  if (sizes.members > 0) {
    CallTensor tensors[max_call_tensors];
    const int count = tensors_of(call, tensors);
    for (int i = 0; i < count; ++i)
      FLOWK_RETURN_IF_ERROR(check_apart(tensors[i].operand, tensors[i].layout, dbias, layout));
  } else {
    SoftmaxRequest& softmax = request->softmax;
    softmax.backward = true;
    softmax.in_dtype = softmax.out_dtype = call.y.dtype;
    softmax.rank = rank - 1;
    softmax.columns = sizes.columns;
    std::copy_n(shape, softmax.rank, softmax.extents);
    for (auto& strides : softmax.strides) std::fill_n(strides, softmax.rank, int64_t{0});
  }
  put_operand(&request->softmax, softmax_dense, nullptr, layout, dtype_info(dbias.dtype).element_bytes);
  request->dbias = const_cast<void*>(dbias.pointer);
  request->dbias_dtype = dbias.dtype;
  request->workspace = given->workspace;
  return {};
}

Status check_workspace(const DbiasArguments& given, const BiasGradientSizes& sizes, const Device& device) {
  const SoftmaxArguments& call = given.softmax;
  const int64_t num_bytes = bias_gradient_workspace_bytes(sizes, device);
  if (num_bytes == 0) return {};
  FLOWK_RETURN_IF_ERROR(check_workspace_memory(given.workspace, given.workspace_bytes, num_bytes));
  const Operand workspace = {"workspace", given.workspace, nullptr, FLOWK_UINT8};
  const Layout layout = layout_of(1, &num_bytes, nullptr);
  CallTensor tensors[max_call_tensors];
  const int count = tensors_of(call, tensors);
  for (int i = 0; i < count; ++i)
    FLOWK_RETURN_IF_ERROR(check_apart(tensors[i].operand, tensors[i].layout, workspace, layout));
  return check_apart(given.dbias, layout_of(call.rank, call.shape, given.dbias.strides), workspace, layout);
}

flowk_status softmax_dbias(DbiasArguments arguments, const PlanUse& use) {
  arguments.softmax.is_dbias = true;
  return check_plan_run<BiasGradientRequest>(
      use, [&](BiasGradientRequest* request, bool* is_empty) { return check_dbias(&arguments, request, is_empty); },
      [&](const BiasGradientRequest& request, const Device& device) -> Status {
        if (!use.explains && request.sizes.members > 0)
          FLOWK_RETURN_IF_ERROR(check_workspace(arguments, request.sizes, device));
        BiasGradientPlan plan;
        plan_bias_gradient(request, device, &plan);
        FLOWK_RETURN_IF_ERROR(check_grid("dbias", plan.launch));
        FLOWK_RETURN_IF_ERROR(check_grid("dbias", plan.sum_launch));
        if (!use.explains) return run_bias_gradient(plan, use.stream);
        explain_bias_gradient(plan, use.text, use.text_bytes);
        return {};
      });
}

Status workspace_bytes_of(int32_t rank, const int64_t* shape, const int64_t* dbias_strides, flowk_dtype y_dtype,
                          size_t* workspace_bytes) {
  bool is_empty = false;
  BiasGradientSizes sizes;
  FLOWK_RETURN_IF_ERROR(check_softmax_dtype("y_dtype", y_dtype));
  FLOWK_RETURN_IF_ERROR(check_shape(1, rank, shape, &is_empty));
  FLOWK_RETURN_IF_ERROR(check_row_columns(rank, shape));
  FLOWK_RETURN_IF_ERROR(find_sizes(rank, shape, dbias_strides, y_dtype, &sizes));
  FLOWK_RETURN_IF_ERROR(check_not_null("workspace_bytes", workspace_bytes));
  *workspace_bytes = 0;
  if (is_empty) return {};
  Device device;
  FLOWK_RETURN_IF_ERROR(current_device(&device));
  *workspace_bytes = static_cast<size_t>(bias_gradient_workspace_bytes(sizes, device));
  return {};
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

flowk_status flowk_masked_softmax(const void* x, const int64_t* x_strides, flowk_dtype x_dtype, void* y,
                                  const int64_t* y_strides, flowk_dtype y_dtype, int32_t rank, const int64_t* shape,
                                  double scale, const flowk_softmax_mask* mask, int32_t log_softmax,
                                  flowk_stream stream) {
  return softmax(forward_arguments({"x", x, x_strides, x_dtype}, {"y", y, y_strides, y_dtype}, rank, shape, scale, mask,
                                   log_softmax),
                 stream);
}

flowk_status flowk_masked_softmax_explain(const void* x, const int64_t* x_strides, flowk_dtype x_dtype, void* y,
                                          const int64_t* y_strides, flowk_dtype y_dtype, int32_t rank,
                                          const int64_t* shape, double scale, const flowk_softmax_mask* mask,
                                          int32_t log_softmax, char* text, size_t text_bytes) {
  return softmax(forward_arguments({"x", x, x_strides, x_dtype}, {"y", y, y_strides, y_dtype}, rank, shape, scale, mask,
                                   log_softmax),
                 {text, text_bytes});
}

flowk_status flowk_masked_softmax_backward(const void* dy, const int64_t* dy_strides, const void* y,
                                           const int64_t* y_strides, flowk_dtype y_dtype, void* dx,
                                           const int64_t* dx_strides, flowk_dtype dx_dtype, int32_t rank,
                                           const int64_t* shape, double scale, const flowk_softmax_mask* mask,
                                           int32_t log_softmax, flowk_stream stream) {
  return softmax(backward_arguments({"dy", dy, dy_strides, y_dtype}, {"y", y, y_strides, y_dtype},
                                    {"dx", dx, dx_strides, dx_dtype}, rank, shape, scale, mask, log_softmax),
                 stream);
}

flowk_status flowk_masked_softmax_backward_explain(const void* dy, const int64_t* dy_strides, const void* y,
                                                   const int64_t* y_strides, flowk_dtype y_dtype, void* dx,
                                                   const int64_t* dx_strides, flowk_dtype dx_dtype, int32_t rank,
                                                   const int64_t* shape, double scale, const flowk_softmax_mask* mask,
                                                   int32_t log_softmax, char* text, size_t text_bytes) {
  return softmax(backward_arguments({"dy", dy, dy_strides, y_dtype}, {"y", y, y_strides, y_dtype},
                                    {"dx", dx, dx_strides, dx_dtype}, rank, shape, scale, mask, log_softmax),
                 {text, text_bytes});
}

flowk_status flowk_masked_softmax_backward_dbias_workspace_bytes(int32_t rank, const int64_t* shape,
                                                                 const int64_t* dbias_strides, flowk_dtype y_dtype,
                                                                 size_t* workspace_bytes) {
  return without_exceptions([&] { return workspace_bytes_of(rank, shape, dbias_strides, y_dtype, workspace_bytes); });
}

flowk_status flowk_masked_softmax_backward_dbias(const void* dy, const int64_t* dy_strides, const void* y,
                                                 const int64_t* y_strides, flowk_dtype y_dtype, void* dx,
                                                 const int64_t* dx_strides, flowk_dtype dx_dtype, void* dbias,
                                                 const int64_t* dbias_strides, flowk_dtype dbias_dtype, int32_t rank,
                                                 const int64_t* shape, double scale, const flowk_softmax_mask* mask,
                                                 int32_t log_softmax, void* workspace, size_t workspace_bytes,
                                                 flowk_stream stream) {
  return softmax_dbias({backward_arguments({"dy", dy, dy_strides, y_dtype}, {"y", y, y_strides, y_dtype},
                                           {"dx", dx, dx_strides, dx_dtype}, rank, shape, scale, mask, log_softmax),
                        {"dbias", dbias, dbias_strides, dbias_dtype},
                        workspace,
                        workspace_bytes},
                       stream);
}

flowk_status flowk_masked_softmax_backward_dbias_explain(const void* dy, const int64_t* dy_strides, const void* y,
                                                         const int64_t* y_strides, flowk_dtype y_dtype, void* dx,
                                                         const int64_t* dx_strides, flowk_dtype dx_dtype, void* dbias,
                                                         const int64_t* dbias_strides, flowk_dtype dbias_dtype,
                                                         int32_t rank, const int64_t* shape, double scale,
                                                         const flowk_softmax_mask* mask, int32_t log_softmax,
                                                         char* text, size_t text_bytes) {
  return softmax_dbias({backward_arguments({"dy", dy, dy_strides, y_dtype}, {"y", y, y_strides, y_dtype},
                                           {"dx", dx, dx_strides, dx_dtype}, rank, shape, scale, mask, log_softmax),
                        {"dbias", dbias, dbias_strides, dbias_dtype}},
                       {text, text_bytes});
}

}  // extern "C"
