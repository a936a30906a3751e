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

// The tensors of a backward call.
struct GradientMemory {
  Memory dy, x, dx, alpha, dalpha;
};
GradientMemory memory_of(const PreluBackwardRequest& request) {
  const int64_t num_elements = request.outer * request.channels * request.inner;
  const int64_t num_bytes = num_elements * dtype_info(request.dtype).element_bytes;
  const int64_t alpha_bytes = request.channels * dtype_info(request.alpha_dtype).element_bytes;
  return {{"dy", request.dy, num_bytes},
          {"x", request.x, num_bytes},
          {"dx", request.dx, num_bytes},
          {"alpha", request.alpha, alpha_bytes},
          {"dalpha", request.dalpha, alpha_bytes}};
}

Status check_prelu(const PreluRequest& request, bool* is_empty) {
  DtypeInfo dtype, alpha_dtype;
  int64_t num_elements = 0;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_sizes(request.outer, request.channels, request.inner, dtype, &num_elements));
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
  const auto check = [&](PreluRequest* request, bool* is_empty) { return check_prelu(*request = arguments, is_empty); };
  return check_plan_run(use, check, "y", plan_prelu, run_prelu, explain_prelu);
}

// The workspace is checked later, when the device is known.
Status check_prelu_backward(const PreluBackwardRequest& request, bool* is_empty) {
  DtypeInfo dtype, alpha_dtype;
  int64_t num_elements = 0;
  FLOWK_RETURN_IF_ERROR(check_types(request.dtype, request.alpha_dtype, &dtype, &alpha_dtype));
  FLOWK_RETURN_IF_ERROR(check_sizes(request.outer, request.channels, request.inner, dtype, &num_elements));
  if (request.dalpha != nullptr) FLOWK_RETURN_IF_ERROR(check_num_alphas(request.channels, alpha_dtype));
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
  const auto [dy, x, dx, alpha, dalpha] = memory_of(request);
  FLOWK_RETURN_IF_ERROR(check_apart_or_same(dx, dy));
  FLOWK_RETURN_IF_ERROR(check_apart_or_same(dx, x));
  FLOWK_RETURN_IF_ERROR(check_apart(dx, alpha));
  for (const Memory& other : {dy, x, dx, alpha}) FLOWK_RETURN_IF_ERROR(check_apart(dalpha, other));
  return {};
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

Status check_workspace(const PreluBackwardRequest& request, const Device& device, size_t workspace_bytes) {
  if (request.dalpha == nullptr) return {};
  const int64_t needed_bytes = needed_workspace_bytes(request, device);
  if (needed_bytes == 0) return {};
  FLOWK_RETURN_IF_ERROR(check_workspace_memory(request.workspace, workspace_bytes, needed_bytes));
  const Memory workspace = {"workspace", request.workspace, needed_bytes};
  const auto [dy, x, dx, alpha, dalpha] = memory_of(request);
  for (const Memory& other : {dy, x, dx, alpha, dalpha}) FLOWK_RETURN_IF_ERROR(check_apart(workspace, other));
  return {};
}

flowk_status prelu_backward(const PreluBackwardRequest& arguments, size_t workspace_bytes, const PlanUse& use) {
  const auto check = [&](PreluBackwardRequest* request, bool* is_empty) {
    return check_prelu_backward(*request = arguments, is_empty);
  };
  return check_plan_run<PreluBackwardRequest>(
      use, check, [&](const PreluBackwardRequest& request, const Device& device) -> Status {
        if (!use.explains) FLOWK_RETURN_IF_ERROR(check_workspace(request, device, workspace_bytes));
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
