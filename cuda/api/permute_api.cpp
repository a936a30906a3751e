// SPDX-License-Identifier: Apache-2.0
// The C ABI of permute and batch transpose: check, plan, run.
#include <cstring>
#include <utility>

#include "api/check.h"
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
                     PairShape* shape, bool* is_empty) {
  const int32_t rank = arguments.rank;
  if (rank < 0 || rank > FLOWK_MAX_RANK)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "rank = %d, must be in 0 ... %d", rank, FLOWK_MAX_RANK);
  if (rank > 0 && arguments.shape == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "shape = NULL, must not be with rank = %d", rank);
  if (rank > 0 && arguments.axes == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "axes = NULL, must not be with rank = %d", rank);
  FLOWK_RETURN_IF_ERROR(check_axes(rank, arguments.axes));
  Layout src, dst;
  src.rank = dst.rank = rank;
  *is_empty = false;
  for (int d = 0; d < rank; ++d) {
    if (arguments.shape[d] < 0)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "shape[%d] = %lld, must be >= 0", d,
                             static_cast<long long>(arguments.shape[d]));
    if (arguments.shape[d] == 0) *is_empty = true;
    src.extents[d] = arguments.shape[d];
    dst.extents[d] = arguments.shape[arguments.axes[d]];
  }
  if (*is_empty) return {};
  for (auto [layout, strides] : {std::pair{&src, arguments.src_strides}, std::pair{&dst, arguments.dst_strides}}) {
    if (strides != nullptr)
      std::memcpy(layout->strides, strides, sizeof(int64_t) * static_cast<size_t>(rank));
    else
      contiguous_strides(rank, layout->extents, layout->strides);
  }
  FLOWK_RETURN_IF_ERROR(check_size("src", src, src_dtype.element_bytes));
  FLOWK_RETURN_IF_ERROR(check_size("dst", dst, dst_dtype.element_bytes));
  FLOWK_RETURN_IF_ERROR(check_pointer("src", arguments.src, src_dtype));
  FLOWK_RETURN_IF_ERROR(check_pointer("dst", arguments.dst, dst_dtype));
  FLOWK_RETURN_IF_ERROR(check_no_self_overlap("dst", dst));
  FLOWK_RETURN_IF_ERROR(check_no_overlap("src", arguments.src, src, src_dtype.element_bytes, "dst", arguments.dst, dst,
                                         dst_dtype.element_bytes));
  shape->rank = rank;
  for (int d = 0; d < rank; ++d) {
    shape->extents[d] = dst.extents[d];
    shape->src_strides[d] = src.strides[arguments.axes[d]];
    shape->dst_strides[d] = dst.strides[d];
  }
  return {};
}

namespace {

Status make_request(const PermuteArguments& arguments, const DtypeInfo& dtype, PermuteRequest* request,
                    bool* is_empty) {
  request->src = arguments.src;
  request->dst = arguments.dst;
  request->element_bytes = dtype.element_bytes;
  return check_permute(arguments, dtype, dtype, &request->shape, is_empty);
}

}  // namespace

Status call_permute(const PermuteArguments& arguments, const DtypeInfo& dtype, flowk_stream stream) {
  PermuteRequest request;
  bool is_empty = false;
  FLOWK_RETURN_IF_ERROR(make_request(arguments, dtype, &request, &is_empty));
  if (is_empty) return {};
  Device device;
  FLOWK_RETURN_IF_ERROR(current_device(&device));
  return run_permute(cached_plan(request, device), stream);
}

Status call_permute_explain(const PermuteArguments& arguments, const DtypeInfo& dtype, char* text, size_t text_bytes) {
  PermuteRequest request;
  bool is_empty = false;
  FLOWK_RETURN_IF_ERROR(make_request(arguments, dtype, &request, &is_empty));
  return explain_on_current_device(text, text_bytes, is_empty, [&](const Device& device) {
    PermutePlan plan;
    plan_permute(request, device, &plan);
    explain_permute(plan, request, text, text_bytes);
  });
}

namespace {

Status permute(const PermuteArguments& arguments, flowk_dtype dtype, flowk_stream stream) {
  DtypeInfo info;
  FLOWK_RETURN_IF_ERROR(check_dtype("dtype", dtype, &info));
  return call_permute(arguments, info, stream);
}

Status permute_explain(const PermuteArguments& arguments, flowk_dtype dtype, char* text, size_t text_bytes) {
  DtypeInfo info;
  FLOWK_RETURN_IF_ERROR(check_dtype("dtype", dtype, &info));
  return call_permute_explain(arguments, info, text, text_bytes);
}

// A batch transpose is the permute (0, 2, 1); its extents have names of their own in a caller's error.
constexpr int32_t batch_transpose_axes[3] = {0, 2, 1};

Status check_batch_transpose(const int64_t (&shape)[3]) {
  constexpr const char* names[3] = {"batch", "rows", "cols"};
  for (int d = 0; d < 3; ++d)
    if (shape[d] < 0)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %lld, must be >= 0", names[d],
                             static_cast<long long>(shape[d]));
  return {};
}

}  // namespace
}  // namespace flowk::api

extern "C" {

flowk_status flowk_batch_transpose(const void* src, void* dst, int64_t batch, int64_t rows, int64_t cols,
                                   flowk_dtype dtype, flowk_stream stream) {
  const int64_t shape[3] = {batch, rows, cols};
  const flowk::api::Status status = flowk::api::check_batch_transpose(shape);
  if (!status.ok()) return status.code();
  return flowk::api::permute({src, nullptr, dst, nullptr, 3, shape, flowk::api::batch_transpose_axes}, dtype, stream)
      .code();
}

flowk_status flowk_batch_transpose_explain(const void* src, void* dst, int64_t batch, int64_t rows, int64_t cols,
                                           flowk_dtype dtype, char* text, size_t text_bytes) {
  const int64_t shape[3] = {batch, rows, cols};
  const flowk::api::Status status = flowk::api::check_batch_transpose(shape);
  if (!status.ok()) return status.code();
  return flowk::api::permute_explain({src, nullptr, dst, nullptr, 3, shape, flowk::api::batch_transpose_axes}, dtype,
                                     text, text_bytes)
      .code();
}

flowk_status flowk_permute(const void* src, const int64_t* src_strides, void* dst, const int64_t* dst_strides,
                           int32_t rank, const int64_t* shape, const int32_t* axes, flowk_dtype dtype,
                           flowk_stream stream) {
  return flowk::api::permute({src, src_strides, dst, dst_strides, rank, shape, axes}, dtype, stream).code();
}

flowk_status flowk_permute_explain(const void* src, const int64_t* src_strides, void* dst, const int64_t* dst_strides,
                                   int32_t rank, const int64_t* shape, const int32_t* axes, flowk_dtype dtype,
                                   char* text, size_t text_bytes) {
  return flowk::api::permute_explain({src, src_strides, dst, dst_strides, rank, shape, axes}, dtype, text, text_bytes)
      .code();
}

}  // extern "C"
