// SPDX-License-Identifier: Apache-2.0
// The C ABI of permute, with and without conversion, and of batch transpose: check, plan, run.
#include <cmath>

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

Status check_permute_types(const PermuteTypes& types, PermuteRequest* request) {
  DtypeInfo src_info, dst_info;
  FLOWK_RETURN_IF_ERROR(check_dtype(types.src_name, types.src, &src_info));
  FLOWK_RETURN_IF_ERROR(check_dtype(types.dst_name, types.dst, &dst_info));
  request->element_bytes = src_info.element_bytes;
  if (is_plain_move(types.src, types.dst, types.scale)) return {};
  const auto check_convertible = [](const char* parameter, flowk_dtype dtype, const DtypeInfo& info) -> Status {
    if (is_convertible(dtype)) return {};
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE,
                           "%s = %d (%s) is moved as it is only: to convert or scale it must be bool, an integer of 8 "
                           "to 32 bits or a real float",
                           parameter, dtype, info.name);
  };
  FLOWK_RETURN_IF_ERROR(check_convertible(types.src_name, types.src, src_info));
  FLOWK_RETURN_IF_ERROR(check_convertible(types.dst_name, types.dst, dst_info));
  const Conversion conversion = conversion_of(types.src, types.dst, types.scale);
  if (!std::isfinite(conversion.in_double ? conversion.double_scale : static_cast<double>(conversion.float_scale)))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "scale = %g, must be finite as a %s", types.scale,
                           conversion.in_double ? "float64" : "float32");
  request->conversion = conversion;
  return {};
}

Status check_permute(const PermuteArguments& arguments, const PermuteTypes& types, PermuteRequest* request,
                     bool* is_empty) {
  const DtypeInfo src_dtype = dtype_info(types.src), dst_dtype = dtype_info(types.dst);
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
  request->src = arguments.src;
  request->dst = arguments.dst;
  IterationSpace& shape = request->shape;
  shape.rank = rank;
  for (int d = 0; d < rank; ++d) {
    shape.extents[d] = dst.extents[d];
    shape.strides[src_operand][d] = src.strides[arguments.axes[d]];
    shape.strides[dst_operand][d] = dst.strides[d];
  }
  return {};
}

flowk_status call_permute(const PermuteArguments& arguments, const PermuteTypes& types, const PlanUse& use) {
  return check_plan_run<PermuteRequest>(
      use,
      [&](PermuteRequest* request, bool* is_empty) -> Status {
        FLOWK_RETURN_IF_ERROR(check_permute_types(types, request));
        return check_permute(arguments, types, request, is_empty);
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

// One type, under its name in the C ABI.
PermuteTypes one_type(flowk_dtype dtype) { return {dtype, dtype, 1, "dtype", "dtype"}; }

// A batch transpose is the permute (0, 2, 1); its extents have names of their own in a caller's error.
constexpr int32_t batch_transpose_axes[3] = {0, 2, 1};

flowk_status batch_transpose(const void* src, void* dst, const int64_t (&shape)[3], flowk_dtype dtype,
                             const PlanUse& use) {
  constexpr const char* names[3] = {"batch", "rows", "cols"};
  for (int d = 0; d < 3; ++d)
    if (const Status status = check_at_least(names[d], shape[d], 0); !status.ok()) return status.code();
  return call_permute({src, nullptr, dst, nullptr, 3, shape, batch_transpose_axes}, one_type(dtype), use);
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
  return call_permute({src, src_strides, dst, dst_strides, rank, shape, axes}, one_type(dtype), stream);
}

flowk_status flowk_permute_explain(const void* src, const int64_t* src_strides, void* dst, const int64_t* dst_strides,
                                   int32_t rank, const int64_t* shape, const int32_t* axes, flowk_dtype dtype,
                                   char* text, size_t text_bytes) {
  return call_permute({src, src_strides, dst, dst_strides, rank, shape, axes}, one_type(dtype), {text, text_bytes});
}

flowk_status flowk_permute_convert(const void* src, const int64_t* src_strides, flowk_dtype src_dtype, void* dst,
                                   const int64_t* dst_strides, flowk_dtype dst_dtype, int32_t rank,
                                   const int64_t* shape, const int32_t* axes, double scale, flowk_stream stream) {
  return call_permute({src, src_strides, dst, dst_strides, rank, shape, axes}, {src_dtype, dst_dtype, scale}, stream);
}

flowk_status flowk_permute_convert_explain(const void* src, const int64_t* src_strides, flowk_dtype src_dtype,
                                           void* dst, const int64_t* dst_strides, flowk_dtype dst_dtype, int32_t rank,
                                           const int64_t* shape, const int32_t* axes, double scale, char* text,
                                           size_t text_bytes) {
  return call_permute({src, src_strides, dst, dst_strides, rank, shape, axes}, {src_dtype, dst_dtype, scale},
                      {text, text_bytes});
}

}  // extern "C"
