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
  FLOWK_RETURN_IF_ERROR(check_float_of_16_to_64_bits("dtype", dtype, info));
  FLOWK_RETURN_IF_ERROR(check_dtype("alpha_dtype", alpha_dtype, alpha_info));
  const bool is_16_bit = info->element_bytes == 2;
  if (alpha_dtype != dtype && !(is_16_bit && alpha_dtype == FLOWK_FLOAT32))
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "alpha_dtype = %s, must be %s%s with dtype = %s",
                           alpha_info->name, info->name, is_16_bit ? " or float32" : "", info->name);
  return {};
}

// `num_elements` is outer * channels * inner.
Status check_sizes(int64_t outer, int64_t channels, int64_t inner, const DtypeInfo& dtype, int64_t* num_elements) {
  FLOWK_RETURN_IF_ERROR(check_at_least("outer", outer, 0));
  FLOWK_RETURN_IF_ERROR(check_at_least("channels", channels, 0));
  FLOWK_RETURN_IF_ERROR(check_at_least("inner", inner, 0));
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

// Bounds the number of alphas, which check_sizes() does not if there are no elements.
Status check_num_alphas(int64_t channels, const DtypeInfo& alpha_dtype) {
  int64_t num_bytes = 0;
  if (!__builtin_mul_overflow(channels, int64_t{alpha_dtype.element_bytes} * 2, &num_bytes)) return {};
  return Status::failure(FLOWK_STATUS_SIZE_OVERFLOW, "channels = %lld of %d bytes each, must be < 2^62 bytes in all",
                         static_cast<long long>(channels), alpha_dtype.element_bytes);
}

Status check_prelu(const PreluRequest& request, bool* is_empty) {
  DtypeInfo dtype, alpha_dtype;
  int64_t num_elements = 0;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_sizes(request.outer, request.channels, request.inner, dtype, &num_elements));
  *is_empty = num_elements == 0;
  if (*is_empty) return {};
  const Layout elements = layout_of(1, &num_elements, nullptr), alphas = layout_of(1, &request.channels, nullptr);
  Tensors tensors;
  FLOWK_RETURN_IF_ERROR(tensors.add({"x", request.x, nullptr, request.dtype}, elements, false));
  FLOWK_RETURN_IF_ERROR(tensors.add({"alpha", request.alpha, nullptr, request.alpha_dtype}, alphas, false));
  return tensors.add({"y", request.y, nullptr, request.dtype}, elements, true, 1);
}

flowk_status prelu(const PreluRequest& arguments, const PlanUse& use) {
  const auto check = [&](PreluRequest* request, bool* is_empty) { return check_prelu(*request = arguments, is_empty); };
  return check_plan_run(use, check, "y", plan_prelu, run_prelu, explain_prelu);
}

// The workspace is checked later, when the device is known.
Status check_prelu_backward(const PreluBackwardRequest& request, Tensors* tensors, bool* is_empty) {
  DtypeInfo dtype, alpha_dtype;
  int64_t num_elements = 0;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_sizes(request.outer, request.channels, request.inner, dtype, &num_elements));
  if (request.dalpha != nullptr) FLOWK_RETURN_IF_ERROR(check_num_alphas(request.channels, alpha_dtype));
  *is_empty = request.channels == 0 || (num_elements == 0 && request.dalpha == nullptr);
  if (*is_empty) return {};
  if (request.dx == nullptr && request.dalpha == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "dx = NULL and dalpha = NULL, one must not be");
  const flowk_dtype type = request.dtype, alpha_type = request.alpha_dtype;
  const Layout elements = layout_of(1, &num_elements, nullptr), alphas = layout_of(1, &request.channels, nullptr);
  if (num_elements > 0) {
    FLOWK_RETURN_IF_ERROR(tensors->add({"dy", request.dy, nullptr, type}, elements, false));
    FLOWK_RETURN_IF_ERROR(tensors->add({"x", request.x, nullptr, type}, elements, false));
    FLOWK_RETURN_IF_ERROR(tensors->add({"alpha", request.alpha, nullptr, alpha_type}, alphas, false));
    FLOWK_RETURN_IF_ERROR(tensors->add_optional({"dx", request.dx, nullptr, type}, elements, true, 2));
  }
  return tensors->add_optional({"dalpha", request.dalpha, nullptr, alpha_type}, alphas, true);
}

// The result of flowk_prelu_backward_workspace_bytes(). It takes a plan for each alignment, so each thread keeps its
// last answers.
int64_t needed_workspace_bytes(const PreluBackwardRequest& request, const Device& device) {
  struct Query {
    int64_t outer = 0, channels = 0, inner = 0;  // 0: no query
    flowk_dtype dtype = 0, alpha_dtype = 0;
    Device device;
    bool operator==(const Query&) const = default;
  };
  struct Answer {
    Query query;
    int64_t num_bytes = 0;
  };
  constexpr uint64_t num_answers = 16;
  thread_local Answer answers[num_answers];
  const Query query = {request.outer, request.channels, request.inner, request.dtype, request.alpha_dtype, device};
  if (query.outer == 0 || query.channels == 0 || query.inner == 0) return 0;
  uint64_t hash = 0;
  for (const int64_t part : {query.outer, query.channels, query.inner, int64_t{query.dtype}})
    hash = (hash ^ static_cast<uint64_t>(part)) * 0x9e3779b97f4a7c15;
  Answer& answer = answers[hash >> 60];
  if (!(answer.query == query)) answer = {query, prelu_backward_workspace_bytes(request, device)};
  return answer.num_bytes;
}

flowk_status prelu_backward(const PreluBackwardRequest& arguments, size_t workspace_bytes, const PlanUse& use) {
  Tensors tensors;
  const auto check = [&](PreluBackwardRequest* request, bool* is_empty) {
    return check_prelu_backward(*request = arguments, &tensors, is_empty);
  };
  return check_plan_run<PreluBackwardRequest>(
      use, check, [&](const PreluBackwardRequest& request, const Device& device) -> Status {
        if (!use.explains) {
          const int64_t needed_bytes = request.dalpha == nullptr ? 0 : needed_workspace_bytes(request, device);
          FLOWK_RETURN_IF_ERROR(tensors.add_workspace(request.workspace, workspace_bytes, needed_bytes));
        }
        PreluBackwardPlan plan;
        plan_prelu_backward(request, device, {}, &plan);
        FLOWK_RETURN_IF_ERROR(check_grid(request.dx != nullptr ? "dx" : "dalpha", plan.launch));
        for (int i = 0; i < plan.num_reductions; ++i)
          FLOWK_RETURN_IF_ERROR(check_grid("dalpha", plan.reductions[i].launch));
        if (!use.explains) return run_prelu_backward(plan, use.stream);
        explain_prelu_backward(plan, use.text, use.text_bytes);
        return {};
      });
}

Status workspace_bytes_of(const PreluBackwardRequest& request, size_t* workspace_bytes) {
  DtypeInfo dtype, alpha_dtype;
  int64_t num_elements = 0;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_sizes(request.outer, request.channels, request.inner, dtype, &num_elements));
  FLOWK_RETURN_IF_ERROR(check_num_alphas(request.channels, alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_not_null("workspace_bytes", workspace_bytes));
  Device device;
  if (num_elements > 0) FLOWK_RETURN_IF_ERROR(current_device(&device));
  *workspace_bytes = static_cast<size_t>(needed_workspace_bytes(request, device));
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
  return without_exceptions([&] {
    return workspace_bytes_of(
        {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, outer, channels, inner, dtype, alpha_dtype},
        workspace_bytes);
  });
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
