// SPDX-License-Identifier: Apache-2.0
// The C ABI of PReLU: check, plan, run.
#include "api/call.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/status.h"
#include "flowk/flowk.h"
#include "prelu/prelu.h"

namespace flowk::api {
using namespace prelu;
namespace {

Status check_types(flowk_dtype dtype, flowk_dtype alpha_dtype, DtypeInfo* info, DtypeInfo* alpha_info) {
  FLOWK_RETURN_IF_ERROR(check_dtype("dtype", dtype, info));
  FLOWK_RETURN_IF_ERROR(check_dtype("alpha_dtype", alpha_dtype, alpha_info));
  const bool is_16_bit = dtype == FLOWK_FLOAT16 || dtype == FLOWK_BFLOAT16;
  if (!is_16_bit && dtype != FLOWK_FLOAT32 && dtype != FLOWK_FLOAT64)
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "dtype = %s, must be float16, bfloat16, float32 or float64",
                           info->name);
  if (alpha_dtype != dtype && !(is_16_bit && alpha_dtype == FLOWK_FLOAT32))
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "alpha_dtype = %s, must be %s%s beside dtype = %s",
                           alpha_info->name, info->name, is_16_bit ? " or float32" : "", info->name);
  return {};
}

// `num_elements` is outer * channels * inner.
Status check_shape(int64_t outer, int64_t channels, int64_t inner, const DtypeInfo& dtype, int64_t* num_elements) {
  const struct {
    const char* name;
    int64_t extent;
  } extents[] = {{"outer", outer}, {"channels", channels}, {"inner", inner}};
  for (const auto& [name, extent] : extents)
    if (extent < 0)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %lld, must be >= 0", name,
                             static_cast<long long>(extent));
  *num_elements = 0;
  if (outer == 0 || channels == 0 || inner == 0) return {};
  int64_t num_bytes = 0;
  if (__builtin_mul_overflow(outer, channels, num_elements) ||
      __builtin_mul_overflow(*num_elements, inner, num_elements) ||
      __builtin_mul_overflow(*num_elements, int64_t{dtype.element_bytes} * 2, &num_bytes))
    return Status::failure(
        FLOWK_STATUS_SIZE_OVERFLOW,
        "(outer, channels, inner) = (%lld, %lld, %lld) of %d bytes each, must be < 2^62 bytes in all",
        static_cast<long long>(outer), static_cast<long long>(channels), static_cast<long long>(inner),
        dtype.element_bytes);
  return {};
}

// A tensor's memory.
struct Memory {
  const char* name;
  const void* pointer;
  int64_t num_bytes;
};

Status check_apart(const Memory& a, const Memory& b) {
  if (a.pointer == nullptr || b.pointer == nullptr) return {};
  const uintptr_t a_begin = reinterpret_cast<uintptr_t>(a.pointer), b_begin = reinterpret_cast<uintptr_t>(b.pointer);
  if (a_begin + static_cast<uintptr_t>(a.num_bytes) <= b_begin ||
      b_begin + static_cast<uintptr_t>(b.num_bytes) <= a_begin)
    return {};
  return Status::failure(FLOWK_STATUS_OVERLAP, "%s = %p overlaps %s = %p of %lld bytes", a.name, a.pointer, b.name,
                         b.pointer, static_cast<long long>(b.num_bytes));
}

Status check_apart_or_same(const Memory& a, const Memory& b) {
  return a.pointer == b.pointer ? Status() : check_apart(a, b);
}

Status check_prelu(const PreluRequest& request, bool* is_empty) {
  DtypeInfo dtype, alpha_dtype;
  int64_t num_elements = 0;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_shape(request.outer, request.channels, request.inner, dtype, &num_elements));
  *is_empty = num_elements == 0;
  if (*is_empty) return {};
  FLOWK_RETURN_IF_ERROR(check_pointer("x", request.x, dtype));
  FLOWK_RETURN_IF_ERROR(check_pointer("alpha", request.alpha, alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_pointer("y", request.y, dtype));
  const Memory y = {"y", request.y, num_elements * dtype.element_bytes};
  FLOWK_RETURN_IF_ERROR(check_apart_or_same(y, {"x", request.x, y.num_bytes}));
  return check_apart(y, {"alpha", request.alpha, request.channels * alpha_dtype.element_bytes});
}

flowk_status prelu(const PreluRequest& arguments, const PlanUse& use) {
  return check_plan_run<PreluRequest>(
      use,
      [&](PreluRequest* request, bool* is_empty) {
        *request = arguments;
        return check_prelu(arguments, is_empty);
      },
      [&](const PreluRequest& request, const Device& device) {
        PreluPlan plan;
        plan_prelu(request, device, &plan);
        if (!use.explains) return run_prelu(plan, use.stream);
        explain_prelu(plan, use.text, use.text_bytes);
        return Status();
      });
}

constexpr int64_t workspace_alignment_bytes = 16;

// The workspace is checked against the plan.
Status check_prelu_backward(const PreluBackwardRequest& request, bool* is_empty) {
  DtypeInfo dtype, alpha_dtype;
  int64_t num_elements = 0;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_shape(request.outer, request.channels, request.inner, dtype, &num_elements));
  *is_empty = request.channels == 0 || (num_elements == 0 && request.dalpha == nullptr);
  if (*is_empty) return {};
  if (request.dx == nullptr && request.dalpha == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "dx = NULL and dalpha = NULL, one must not be");
  if (request.dalpha != nullptr) FLOWK_RETURN_IF_ERROR(check_pointer("dalpha", request.dalpha, alpha_dtype));
  if (num_elements == 0) return {};
  FLOWK_RETURN_IF_ERROR(check_pointer("dy", request.dy, dtype));
  FLOWK_RETURN_IF_ERROR(check_pointer("x", request.x, dtype));
  FLOWK_RETURN_IF_ERROR(check_pointer("alpha", request.alpha, alpha_dtype));
  if (request.dx != nullptr) FLOWK_RETURN_IF_ERROR(check_pointer("dx", request.dx, dtype));
  const int64_t num_bytes = num_elements * dtype.element_bytes;
  const Memory dy = {"dy", request.dy, num_bytes}, x = {"x", request.x, num_bytes}, dx = {"dx", request.dx, num_bytes};
  const int64_t alpha_bytes = request.channels * alpha_dtype.element_bytes;
  const Memory alpha = {"alpha", request.alpha, alpha_bytes}, dalpha = {"dalpha", request.dalpha, alpha_bytes};
  FLOWK_RETURN_IF_ERROR(check_apart_or_same(dx, dy));
  FLOWK_RETURN_IF_ERROR(check_apart_or_same(dx, x));
  FLOWK_RETURN_IF_ERROR(check_apart(dx, alpha));
  const Memory others[] = {dy, x, dx, alpha};
  for (const Memory& other : others) FLOWK_RETURN_IF_ERROR(check_apart(dalpha, other));
  return {};
}

Status check_workspace(const PreluBackwardRequest& request, const PreluBackwardPlan& plan, size_t workspace_bytes) {
  if (plan.workspace_bytes == 0) return {};
  if (request.workspace == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "workspace = NULL, must hold %lld bytes",
                           static_cast<long long>(plan.workspace_bytes));
  if (workspace_bytes < static_cast<size_t>(plan.workspace_bytes))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "workspace_bytes = %zu, must be >= %lld", workspace_bytes,
                           static_cast<long long>(plan.workspace_bytes));
  if (reinterpret_cast<uintptr_t>(request.workspace) % workspace_alignment_bytes != 0)
    return Status::failure(FLOWK_STATUS_MISALIGNED_POINTER, "workspace = %p, must be a multiple of %lld",
                           request.workspace, static_cast<long long>(workspace_alignment_bytes));
  DtypeInfo dtype, alpha_dtype;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  const int64_t num_bytes = request.outer * request.channels * request.inner * dtype.element_bytes;
  const int64_t alpha_bytes = request.channels * alpha_dtype.element_bytes;
  const Memory workspace = {"workspace", request.workspace, plan.workspace_bytes};
  const Memory others[] = {{"dy", request.dy, num_bytes},
                           {"x", request.x, num_bytes},
                           {"dx", request.dx, num_bytes},
                           {"alpha", request.alpha, alpha_bytes},
                           {"dalpha", request.dalpha, alpha_bytes}};
  for (const Memory& other : others) FLOWK_RETURN_IF_ERROR(check_apart(workspace, other));
  return {};
}

flowk_status prelu_backward(const PreluBackwardRequest& arguments, size_t workspace_bytes, const PlanUse& use) {
  return check_plan_run<PreluBackwardRequest>(
      use,
      [&](PreluBackwardRequest* request, bool* is_empty) {
        *request = arguments;
        return check_prelu_backward(arguments, is_empty);
      },
      [&](const PreluBackwardRequest& request, const Device& device) -> Status {
        PreluBackwardPlan plan;
        plan_prelu_backward(request, device, {}, &plan);
        if (use.explains) return explain_prelu_backward(plan, use.text, use.text_bytes), Status();
        FLOWK_RETURN_IF_ERROR(check_workspace(request, plan, workspace_bytes));
        return run_prelu_backward(plan, use.stream);
      });
}

Status workspace_bytes_of(const PreluBackwardRequest& request, size_t* workspace_bytes) {
  DtypeInfo dtype, alpha_dtype;
  int64_t num_elements = 0;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_shape(request.outer, request.channels, request.inner, dtype, &num_elements));
  FLOWK_RETURN_IF_ERROR(check_not_null("workspace_bytes", workspace_bytes));
  *workspace_bytes = 0;
  if (num_elements == 0) return {};
  Device device;
  FLOWK_RETURN_IF_ERROR(current_device(&device));
  *workspace_bytes = static_cast<size_t>(prelu_backward_workspace_bytes(request, device));
  return {};
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

flowk_status flowk_prelu(const void* x, const void* alpha, void* y, int64_t outer, int64_t channels, int64_t inner,
                         flowk_dtype dtype, flowk_dtype alpha_dtype, flowk_stream stream) {
  return prelu({x, alpha, y, outer, channels, inner, dtype, alpha_dtype}, stream);
}

flowk_status flowk_prelu_explain(const void* x, const void* alpha, void* y, int64_t outer, int64_t channels,
                                 int64_t inner, flowk_dtype dtype, flowk_dtype alpha_dtype, char* text,
                                 size_t text_bytes) {
  return prelu({x, alpha, y, outer, channels, inner, dtype, alpha_dtype}, {text, text_bytes});
}

flowk_status flowk_prelu_backward_workspace_bytes(int64_t outer, int64_t channels, int64_t inner, flowk_dtype dtype,
                                                  flowk_dtype alpha_dtype, size_t* workspace_bytes) {
  return workspace_bytes_of(
             {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, outer, channels, inner, dtype, alpha_dtype},
             workspace_bytes)
      .code();
}

flowk_status flowk_prelu_backward(const void* dy, const void* x, const void* alpha, void* dx, void* dalpha,
                                  int64_t outer, int64_t channels, int64_t inner, flowk_dtype dtype,
                                  flowk_dtype alpha_dtype, void* workspace, size_t workspace_bytes,
                                  flowk_stream stream) {
  return prelu_backward({dy, x, alpha, dx, dalpha, workspace, outer, channels, inner, dtype, alpha_dtype},
                        workspace_bytes, stream);
}

flowk_status flowk_prelu_backward_explain(const void* dy, const void* x, const void* alpha, void* dx, void* dalpha,
                                          int64_t outer, int64_t channels, int64_t inner, flowk_dtype dtype,
                                          flowk_dtype alpha_dtype, char* text, size_t text_bytes) {
  return prelu_backward({dy, x, alpha, dx, dalpha, nullptr, outer, channels, inner, dtype, alpha_dtype}, 0,
                        {text, text_bytes});
}

}  // extern "C"
