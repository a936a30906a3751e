// SPDX-License-Identifier: Apache-2.0
// What the functions of the C ABI share: checks of their arguments, and the path check -> plan -> run.
#pragma once

#include <initializer_list>

#include "core/device.h"
#include "core/dtype.h"
#include "core/iteration_space.h"
#include "core/status.h"
#include "flowk/detail/launch_shape.h"

namespace flowk::api {

// Bounds of softmax and cross-entropy. Within the scale's, scale * log2(e) is a finite float32. float64 is computed in
// base e and needs no bound.
constexpr int64_t max_row_columns = int64_t{1} << 30;
constexpr double max_scale_of_float32 = 0x1p126;

// A tensor of a call, with its name in messages.
struct Operand {
  const char* name;
  const void* pointer;
  const int64_t* strides;  // NULL: C order
  flowk_dtype dtype;       // one of flowk.h
  bool is_number = false;  // the pointer is to one element in host memory
};

Status check_not_null(const char* parameter, const void* pointer);

// Fails if the pointer is NULL or misaligned for `dtype`.
Status check_pointer(const char* parameter, const void* pointer, const DtypeInfo& dtype);

// Fails with INVALID_ARGUMENT if `value` is less than `least`.
Status check_at_least(const char* parameter, int64_t value, int64_t least);

// Fails with UNSUPPORTED_DTYPE unless `dtype` is float16, bfloat16, float32 or float64. Fills `info`.
Status check_float_of_16_to_64_bits(const char* parameter, flowk_dtype dtype, DtypeInfo* info);

// Checks the rank and the extents; `is_empty` is whether an extent is 0.
Status check_shape(int32_t min_rank, int32_t rank, const int64_t* shape, bool* is_empty);

// The layout of a tensor; in C order if `strides` is NULL.
Layout layout_of(int32_t rank, const int64_t* extents, const int64_t* strides);

// Fails with OVERLAP if the input shares a byte with the output. check_same_or_apart() also takes an input with the
// output's pointer, strides and element size.
Status check_apart(const Operand& input, const Layout& input_layout, const Operand& out, const Layout& out_layout);
Status check_same_or_apart(const Operand& input, const Layout& input_layout, const Operand& out,
                           const Layout& out_layout);

// The tensors of a call, inputs first. Each is checked: its size, its pointer, and that no output overlaps another one.
class Tensors {
 public:
  // The output may be one of the first `num_in_place` tensors itself.
  Status add(const Operand& operand, const Layout& layout, bool is_output, int num_in_place = 0);
  // One that may be NULL.
  Status add_optional(const Operand& operand, const Layout& layout, bool is_output, int num_in_place = 0) {
    return operand.pointer == nullptr ? Status() : add(operand, layout, is_output, num_in_place);
  }
  // Also checks the workspace's own rules. Without effect if needed_bytes is 0.
  Status add_workspace(const void* workspace, size_t given_bytes, int64_t needed_bytes);

 private:
  static constexpr int max_tensors = 8;
  int num_tensors_ = 0;
  Operand operands_[max_tensors];
  Layout layouts_[max_tensors];
};

// `struct_bytes` is the size of the struct in one of the released headers.
Status check_struct_bytes(const char* parameter, size_t struct_bytes, std::initializer_list<size_t> released_bytes);

// Fails with SIZE_OVERFLOW if a grid that writes `parameter` is larger than a GPU takes. All launches of a plan are
// checked before the first.
Status check_grid(const char* parameter, const LaunchConfig& launch);

// Fails if the workspace, of `given_bytes`, is NULL, misaligned or smaller than `needed_bytes`, which is > 0.
Status check_workspace_memory(const void* workspace, size_t given_bytes, int64_t needed_bytes);

// What a function of the C ABI does with its plan: a launch function runs it on `stream`, an `_explain` function writes
// it in words to `text`.
struct PlanUse {
  PlanUse(flowk_stream stream) : stream(stream) {}
  PlanUse(char* text, size_t text_bytes) : explains(true), text(text), text_bytes(text_bytes) {}

  bool explains = false;
  flowk_stream stream = nullptr;
  char* text = nullptr;
  size_t text_bytes = 0;
};

// For a call without elements: an `_explain` function says so.
Status use_nothing(const PlanUse& use);

// `run()`, a function that returns a Status. An exception never leaves the C ABI.
template <class Run>
flowk_status without_exceptions(Run run) noexcept {
  try {
    return run().code();
  } catch (...) {
    return Status::failure(FLOWK_STATUS_INTERNAL_ERROR, "an exception in the library").code();
  }
}

// `check(&request, &is_empty)` checks the arguments and sets is_empty if there is nothing to do.
// `plan_and_use(request, device)` plans, then runs or explains.
template <class Request, class Check, class PlanAndUse>
flowk_status check_plan_run(const PlanUse& use, Check check, PlanAndUse plan_and_use) {
  return without_exceptions([&]() -> Status {
    Request request;
    bool is_empty = false;
    FLOWK_RETURN_IF_ERROR(check(&request, &is_empty));
    if (use.explains) FLOWK_RETURN_IF_ERROR(check_not_null("text", use.text));
    if (is_empty) return use_nothing(use);
    Device device;
    FLOWK_RETURN_IF_ERROR(current_device(&device));
    return plan_and_use(request, device);
  });
}

// The same for a function with one plan, by the operator's functions. `output` names the tensor in the message about a
// grid that is too large.
template <class Request, class Plan, class Check, class Run>
flowk_status check_plan_run(const PlanUse& use, Check check, const char* output,
                            void (*make_plan)(const Request&, const Device&, Plan*), Run run,
                            void (*explain)(const Plan&, char*, size_t)) {
  return check_plan_run<Request>(use, check, [&](const Request& request, const Device& device) -> Status {
    Plan plan;
    make_plan(request, device, &plan);
    FLOWK_RETURN_IF_ERROR(check_grid(output, plan.launch));
    if (!use.explains) return run(plan, use.stream);
    explain(plan, use.text, use.text_bytes);
    return {};
  });
}

}  // namespace flowk::api
