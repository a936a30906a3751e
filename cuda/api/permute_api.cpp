// SPDX-License-Identifier: Apache-2.0
// The C ABI of permute and batch transpose: check, plan, run.
#include "api/call.h"
#include "api/permute_call.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/iteration_space.h"
#include "core/status.h"
#include "flowk/flowk.h"
#include "permute/permute.h"

namespace flowk::api {
using namespace permute;
namespace {

Status check_axes(int32_t rank, const int32_t* axes) {
  uint64_t seen = 0;
  for (int i = 0; i < rank; ++i) {
    if (axes[i] < 0 || axes[i] >= rank)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "axes[%d] = %d, must be in 0 ... %d", i, axes[i], rank - 1);
    if ((seen >> axes[i] & 1) != 0)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT,
                             "axes[%d] = %d is there twice, must be a permutation of 0 ... %d", i, axes[i], rank - 1);
    seen |= uint64_t{1} << axes[i];
  }
  return {};
}

}  // namespace

Status check_permute(const PermuteArguments& arguments, const DtypeInfo& src_dtype, const DtypeInfo& dst_dtype,
                     IterationSpace* shape, bool* is_empty) {
  const int32_t rank = arguments.rank;
  FLOWK_RETURN_IF_ERROR(check_shape(0, rank, arguments.shape, is_empty));
  if (rank > 0 && arguments.axes == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "axes = NULL, must not be with rank = %d", rank);
  FLOWK_RETURN_IF_ERROR(check_axes(rank, arguments.axes));
  if (*is_empty) return {};
  int64_t dst_extents[max_rank];
  for (int d = 0; d < rank; ++d) dst_extents[d] = arguments.shape[arguments.axes[d]];
  const Layout src = layout_of(rank, arguments.shape, arguments.src_strides);
  const Layout dst = layout_of(rank, dst_extents, arguments.dst_strides);
  FLOWK_RETURN_IF_ERROR(check_size(arguments.src_name, src, src_dtype.element_bytes));
  FLOWK_RETURN_IF_ERROR(check_size(arguments.dst_name, dst, dst_dtype.element_bytes));
  FLOWK_RETURN_IF_ERROR(check_pointer(arguments.src_name, arguments.src, src_dtype));
  FLOWK_RETURN_IF_ERROR(check_pointer(arguments.dst_name, arguments.dst, dst_dtype));
  FLOWK_RETURN_IF_ERROR(check_no_self_overlap(arguments.dst_name, dst));
  FLOWK_RETURN_IF_ERROR(check_no_overlap(arguments.src_name, arguments.src, src, src_dtype.element_bytes,
                                         arguments.dst_name, arguments.dst, dst, dst_dtype.element_bytes));
  shape->rank = rank;
  for (int d = 0; d < rank; ++d) {
    shape->extents[d] = dst.extents[d];
    shape->strides[src_operand][d] = src.strides[arguments.axes[d]];
    shape->strides[dst_operand][d] = dst.strides[d];
  }
  return {};
}

flowk_status call_permute(const PermuteArguments& arguments, flowk_dtype dtype, const PlanUse& use) {
  return check_plan_run<PermuteRequest>(
      use,
      [&](PermuteRequest* request, bool* is_empty) -> Status {
        DtypeInfo info;
        FLOWK_RETURN_IF_ERROR(check_dtype("dtype", dtype, &info));
        request->src = arguments.src;
        request->dst = arguments.dst;
        request->element_bytes = info.element_bytes;
        return check_permute(arguments, info, info, &request->shape, is_empty);
      },
      [&](const PermuteRequest& request, const Device& device) -> Status {
        const PermutePlan* plan = nullptr;
        FLOWK_RETURN_IF_ERROR(cached_plan(request, device, &plan));
        FLOWK_RETURN_IF_ERROR(check_grid("dst", plan->launch));
        if (!use.explains) return run_permute(*plan, use.stream);
        explain_permute(*plan, request, use.text, use.text_bytes);
        return {};
      });
}

namespace {

// A batch transpose is the permute (0, 2, 1); its extents have names of their own in a caller's error.
constexpr int32_t batch_transpose_axes[3] = {0, 2, 1};

flowk_status batch_transpose(const void* src, void* dst, const int64_t (&shape)[3], flowk_dtype dtype,
                             const PlanUse& use) {
  constexpr const char* names[3] = {"batch", "rows", "cols"};
  for (int d = 0; d < 3; ++d)
    if (shape[d] < 0)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %lld, must be >= 0", names[d],
                             static_cast<long long>(shape[d]))
          .code();
  return call_permute({src, nullptr, dst, nullptr, 3, shape, batch_transpose_axes}, dtype, use);
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

flowk_status flowk_batch_transpose(const void* src, void* dst, int64_t batch, int64_t rows, int64_t cols,
                                   flowk_dtype dtype, flowk_stream stream) {
  return batch_transpose(src, dst, {batch, rows, cols}, dtype, stream);
}

flowk_status flowk_batch_transpose_explain(const void* src, void* dst, int64_t batch, int64_t rows, int64_t cols,
                                           flowk_dtype dtype, char* text, size_t text_bytes) {
  return batch_transpose(src, dst, {batch, rows, cols}, dtype, {text, text_bytes});
}

flowk_status flowk_permute(const void* src, const int64_t* src_strides, void* dst, const int64_t* dst_strides,
                           int32_t rank, const int64_t* shape, const int32_t* axes, flowk_dtype dtype,
                           flowk_stream stream) {
  return call_permute({src, src_strides, dst, dst_strides, rank, shape, axes}, dtype, stream);
}

flowk_status flowk_permute_explain(const void* src, const int64_t* src_strides, void* dst, const int64_t* dst_strides,
                                   int32_t rank, const int64_t* shape, const int32_t* axes, flowk_dtype dtype,
                                   char* text, size_t text_bytes) {
  return call_permute({src, src_strides, dst, dst_strides, rank, shape, axes}, dtype, {text, text_bytes});
}

}  // extern "C"
