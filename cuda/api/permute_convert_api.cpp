// SPDX-License-Identifier: Apache-2.0
// The C ABI of permute with conversion: check, plan, run; or a plain permute where only bits are moved.
#include <cmath>

#include "api/call.h"
#include "api/permute_call.h"
#include "core/device.h"
#include "flowk/flowk.h"
#include "permute/permute.h"

namespace flowk::api {
using namespace permute;

Status check_permute_types(PermuteTypes* types) {
  FLOWK_RETURN_IF_ERROR(check_dtype("src_dtype", types->src, &types->src_info));
  FLOWK_RETURN_IF_ERROR(check_dtype("dst_dtype", types->dst, &types->dst_info));
  if (types->is_plain_move()) return {};
  const auto check_convertible = [](const char* parameter, flowk_dtype dtype, const DtypeInfo& info) -> Status {
    if (is_convertible(dtype)) return {};
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE,
                           "%s = %d (%s) is moved as it is only: to convert or scale it must be bool, an integer of 8 "
                           "to 32 bits or a real float",
                           parameter, dtype, info.name);
  };
  FLOWK_RETURN_IF_ERROR(check_convertible("src_dtype", types->src, types->src_info));
  FLOWK_RETURN_IF_ERROR(check_convertible("dst_dtype", types->dst, types->dst_info));
  const bool in_double = computes_in_double(types->src, types->dst);
  if (!std::isfinite(in_double ? types->scale : static_cast<double>(static_cast<float>(types->scale))))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "scale = %g, must be finite as a %s", types->scale,
                           in_double ? "float64" : "float32");
  return {};
}

namespace {

flowk_status convert(const PermuteArguments& arguments, PermuteTypes types, const PlanUse& use) {
  const Status checked = check_permute_types(&types);
  if (!checked.ok()) return checked.code();
  if (types.is_plain_move()) return call_permute(arguments, types.src, use);
  return check_plan_run<PermuteConvertRequest>(
      use,
      [&](PermuteConvertRequest* request, bool* is_empty) {
        request->src = arguments.src;
        request->dst = arguments.dst;
        request->src_dtype = types.src;
        request->dst_dtype = types.dst;
        request->scale = types.scale;
        return check_permute(arguments, types.src_info, types.dst_info, &request->shape, is_empty);
      },
      [&](const PermuteConvertRequest& request, const Device& device) -> Status {
        PermuteConvertPlan plan;
        FLOWK_RETURN_IF_ERROR(cached_plan(request, device, &plan));
        FLOWK_RETURN_IF_ERROR(check_grid("dst", plan.movement.launch));
        if (!use.explains) return run_permute_convert(plan, use.stream);
        explain_permute_convert(plan, request, use.text, use.text_bytes);
        return {};
      });
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

flowk_status flowk_permute_convert(const void* src, const int64_t* src_strides, flowk_dtype src_dtype, void* dst,
                                   const int64_t* dst_strides, flowk_dtype dst_dtype, int32_t rank,
                                   const int64_t* shape, const int32_t* axes, double scale, flowk_stream stream) {
  return convert({src, src_strides, dst, dst_strides, rank, shape, axes}, {src_dtype, dst_dtype, scale}, stream);
}

flowk_status flowk_permute_convert_explain(const void* src, const int64_t* src_strides, flowk_dtype src_dtype,
                                           void* dst, const int64_t* dst_strides, flowk_dtype dst_dtype, int32_t rank,
                                           const int64_t* shape, const int32_t* axes, double scale, char* text,
                                           size_t text_bytes) {
  return convert({src, src_strides, dst, dst_strides, rank, shape, axes}, {src_dtype, dst_dtype, scale},
                 {text, text_bytes});
}

}  // extern "C"
