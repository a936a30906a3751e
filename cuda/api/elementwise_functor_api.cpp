// SPDX-License-Identifier: Apache-2.0
// The C ABI of functors compiled at run time: check, plan, and copy the parameters.
#include <cstddef>
#include <cstring>

#include "api/elementwise_check.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/status.h"
#include "elementwise/elementwise.h"
#include "flowk/flowk.h"

namespace flowk::api {
using namespace elementwise;
namespace {

static_assert(sizeof(StridedElementwiseParams<max_operands>) <= FLOWK_FUNCTOR_PARAMS_BYTES);

// The size of flowk_functor_launch since version 0.1, as mask_bytes_of_0_1 of softmax_api.cpp.
constexpr size_t launch_bytes_of_0_1 = 2096;
static_assert(sizeof(flowk_functor_launch) == launch_bytes_of_0_1);

// The layout of version 4. If one of these assertions fails, raise the version and write the new layout here.
static_assert(FLOWK_FUNCTOR_PARAMS_VERSION == elementwise_params_version && elementwise_params_version == 4);
template <int kOperands, size_t contiguous_bytes, size_t broadcast_bytes, size_t strided_bytes>
constexpr bool has_layout = sizeof(ContiguousElementwiseParams<kOperands>) == contiguous_bytes &&
                            sizeof(BroadcastElementwiseParams<kOperands>) == broadcast_bytes &&
                            sizeof(StridedElementwiseParams<kOperands>) == strided_bytes;
static_assert(has_layout<2, 136, 272, 1144>);
static_assert(has_layout<3, 192, 384, 1488>);
static_assert(has_layout<4, 248, 496, 1832>);
static_assert(sizeof(ElementwiseRows) == 420 && sizeof(ElementwiseTile) == 32);
static_assert(num_elementwise_accesses == 11 && elementwise_threads == 256);

// Writes part `part` of a request to `*found`, and returns the number of parts.
int32_t find_part(const ElementwiseRequest& request, int32_t part, ElementwiseRequest* found) {
  if (!needs_split(request)) {
    if (part == 0) *found = request;
    return 1;
  }
  ElementwiseRequest first, second;
  split_request(request, &first, &second);
  const int32_t num_first = find_part(first, part, found);
  return num_first + find_part(second, part - num_first, found);
}

template <int kOperands>
void write_params(const ElementwisePlan& plan, flowk_functor_launch* launch) {
  std::visit(
      [&](const auto& chosen) {
        launch->params_bytes = sizeof(params_for<kOperands>(chosen.params));
        std::memcpy(launch->params, &chosen.params, launch->params_bytes);
      },
      plan.mechanism);
}

Status check_part(int32_t part, int32_t num_parts) {
  if (part >= 0 && part < num_parts) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "part = %d, must be in 0 ... %d", part, num_parts - 1);
}

Status plan_functor(const Operand* operands, int32_t num_operands, int32_t rank, const int64_t* shape, int32_t part,
                    flowk_functor_launch* launch) {
  ElementwiseRequest request;
  bool is_empty = false;
  FLOWK_RETURN_IF_ERROR(check_operands(operands, num_operands, rank, shape, &request, &is_empty));
  if (is_empty) {
    FLOWK_RETURN_IF_ERROR(check_part(part, 1));
    launch->num_parts = 0;
    return {};
  }
  Device device;
  FLOWK_RETURN_IF_ERROR(current_device(&device));
  simplify(&request.shape);
  ElementwiseRequest found;
  const int32_t num_parts = find_part(request, part, &found);
  FLOWK_RETURN_IF_ERROR(check_part(part, num_parts));
  ElementwisePlan plan;
  plan_elementwise(found, device, 0, &plan);
  FLOWK_RETURN_IF_ERROR(check_grid("out", plan.launch));
  launch->num_parts = num_parts;
  launch->kernel = static_cast<int32_t>(plan.kernel());
  launch->pack_elements = plan.pack_elements;
  launch->num_threads = plan.launch.num_threads;
  launch->num_blocks = plan.launch.num_blocks;
  launch->shared_bytes = plan.launch.shared_bytes;
  switch (num_operands) {
    case 2: write_params<2>(plan, launch); break;
    case 3: write_params<3>(plan, launch); break;
    default: write_params<4>(plan, launch); break;
  }
  return {};
}

Status run_functor_plan(const void* const* pointers, const int64_t* const* strides, const flowk_dtype* dtypes,
                        int32_t num_operands, int32_t rank, const int64_t* shape, int32_t part,
                        flowk_functor_launch* launch) {
  FLOWK_RETURN_IF_ERROR(check_not_null("pointers", pointers));
  FLOWK_RETURN_IF_ERROR(check_not_null("strides", strides));
  FLOWK_RETURN_IF_ERROR(check_not_null("dtypes", dtypes));
  FLOWK_RETURN_IF_ERROR(check_not_null("launch", launch));
  FLOWK_RETURN_IF_ERROR(check_struct_bytes("launch->struct_bytes", launch->struct_bytes, {launch_bytes_of_0_1}));
  if (launch->params_version != elementwise_params_version)
    return Status::failure(
        FLOWK_STATUS_INVALID_ARGUMENT,
        "launch->params_version = %d, must be %d: the kernel is compiled with the headers of another "
        "libflowk",
        launch->params_version, elementwise_params_version);
  if (num_operands < 2 || num_operands > max_operands)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "num_operands = %d, must be in 2 ... %d", num_operands,
                           max_operands);
  constexpr const char* names[max_operands] = {"out", "x", "y", "z"};
  constexpr const char* dtype_names[max_operands] = {"dtypes[0]", "dtypes[1]", "dtypes[2]", "dtypes[3]"};
  Operand operands[max_operands] = {};
  for (int32_t k = 0; k < num_operands; ++k) {
    DtypeInfo info;
    FLOWK_RETURN_IF_ERROR(check_dtype(dtype_names[k], dtypes[k], &info));
    if (dtypes[k] == FLOWK_COMPLEX64 || dtypes[k] == FLOWK_COMPLEX128)
      return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "%s = %s, must not be complex", dtype_names[k], info.name);
    operands[k] = {names[k], pointers[k], strides[k], dtypes[k]};
  }
  return plan_functor(operands, num_operands, rank, shape, part, launch);
}

}  // namespace
}  // namespace flowk::api

extern "C" flowk_status flowk_functor_plan(const void* const* pointers, const int64_t* const* strides,
                                           const flowk_dtype* dtypes, int32_t num_operands, int32_t rank,
                                           const int64_t* shape, int32_t part, flowk_functor_launch* launch) {
  return flowk::api::without_exceptions(
      [&] { return flowk::api::run_functor_plan(pointers, strides, dtypes, num_operands, rank, shape, part, launch); });
}
