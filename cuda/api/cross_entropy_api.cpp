// SPDX-License-Identifier: Apache-2.0
// The C ABI of cross-entropy: check, plan, run.
#include <algorithm>
#include <cmath>

#include "api/call.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/iteration_space.h"
#include "core/status.h"
#include "cross_entropy/cross_entropy.h"
#include "flowk/flowk.h"

namespace flowk::api {
using namespace cross_entropy;
namespace {

constexpr double min_softcap_per_scale = 0x1p-100;

// As mask_bytes_of_0_1 of softmax_api.cpp.
constexpr size_t options_bytes_of_0_1 = 64;
static_assert(sizeof(flowk_cross_entropy_options) == options_bytes_of_0_1);

Status check_targets_dtype(flowk_dtype dtype) {
  DtypeInfo info;
  FLOWK_RETURN_IF_ERROR(check_dtype("targets_dtype", dtype, &info));
  if (dtype != FLOWK_INT32 && dtype != FLOWK_INT64)
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "targets_dtype = %s, must be int32 or int64", info.name);
  return {};
}

flowk_dtype result_dtype(flowk_dtype dtype) { return dtype == FLOWK_FLOAT64 ? FLOWK_FLOAT64 : FLOWK_FLOAT32; }

Status check_number(const char* parameter, double value, bool is_right, const char* bound) {
  if (is_right) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %g, must be %s", parameter, value, bound);
}

Status check_vocab(const char* parameter, int64_t value) {
  constexpr int64_t max_vocab = int64_t{1} << 62;
  if (value >= 0 && value <= max_vocab) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %lld, must be in 0 ... 2^62", parameter,
                         static_cast<long long>(value));
}

// Checks the members that do not depend on the logits' columns.
Status check_options(const flowk_cross_entropy_options* given, flowk_dtype dtype,
                     flowk_cross_entropy_options* options) {
  if (given != nullptr) {
    FLOWK_RETURN_IF_ERROR(check_struct_bytes("options->struct_bytes", given->struct_bytes, {options_bytes_of_0_1}));
    *options = *given;
  }
  const auto& [bytes, scale, softcap, label_smoothing, z_loss, ignore_index, vocab_start, vocab_size] = *options;
  const bool is_double = dtype == FLOWK_FLOAT64;
  FLOWK_RETURN_IF_ERROR(check_number("options->scale", scale,
                                     std::isfinite(scale) && (is_double || std::fabs(scale) <= max_scale_of_float32),
                                     is_double ? "finite" : "finite and within +-2^126"));
  FLOWK_RETURN_IF_ERROR(check_number(
      "options->softcap", softcap,
      softcap == 0 || (std::isfinite(softcap) && softcap > 0 && softcap >= std::fabs(scale) * min_softcap_per_scale &&
                       (is_double || softcap <= max_scale_of_float32)),
      is_double ? "0, or finite and >= |scale| * 2^-100" : "0, or in |scale| * 2^-100 ... 2^126"));
  FLOWK_RETURN_IF_ERROR(check_number("options->label_smoothing", label_smoothing,
                                     label_smoothing >= 0 && label_smoothing <= 1, "in 0 ... 1"));
  FLOWK_RETURN_IF_ERROR(
      check_number("options->z_loss", z_loss, std::isfinite(z_loss) && z_loss >= 0, "finite and >= 0"));
  FLOWK_RETURN_IF_ERROR(check_vocab("options->vocab_start", vocab_start));
  return check_vocab("options->vocab_size", vocab_size);
}

// `options` are complete afterwards. `is_whole`: the logits must be the whole vocabulary.
Status check_vocabulary(int64_t columns, bool is_whole, flowk_cross_entropy_options* options) {
  const int64_t end = options->vocab_start + columns;
  if (is_whole && options->vocab_start != 0)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "options->vocab_start = %lld, must be 0 without partials",
                           static_cast<long long>(options->vocab_start));
  if (options->vocab_size == 0) options->vocab_size = end;
  if (options->vocab_size < end || (is_whole && options->vocab_size != end))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT,
                           "options->vocab_size = %lld, must be 0 or %s %lld, the end of the logits' columns",
                           static_cast<long long>(options->vocab_size),
                           is_whole ? "" : ">=", static_cast<long long>(end));
  return {};
}

Status check_row_layout(const char* parameter, int32_t rank, const int64_t* shape, const int64_t* strides,
                        Layout* layout) {
  *layout = layout_of(rank, shape, strides);
  if (layout->extents[rank - 1] == 1) layout->strides[rank - 1] = 1;
  if (layout->strides[rank - 1] == 1) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s_strides[%d] = %lld, must be 1: a row is contiguous",
                         parameter, rank - 1, static_cast<long long>(layout->strides[rank - 1]));
}

// Checks what all functions on logits have in common, and fills `request` with it. `per_row` receives the layout of
// targets and results.
Status check_logits(const int64_t* logits_strides, int32_t rank, const int64_t* shape,
                    const flowk_cross_entropy_options* options, bool is_whole, CrossEntropyRequest* request,
                    bool* is_empty, Tensors* tensors, Layout* per_row) {
  DtypeInfo info;
  FLOWK_RETURN_IF_ERROR(check_float_of_16_to_64_bits("dtype", request->dtype, &info));
  FLOWK_RETURN_IF_ERROR(check_targets_dtype(request->targets_dtype));
  FLOWK_RETURN_IF_ERROR(check_shape(1, rank, shape, is_empty));
  const int64_t columns = shape[rank - 1];
  if (columns > max_row_columns)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "shape[%d] = %lld, must be <= 2^30: it is a row", rank - 1,
                           static_cast<long long>(columns));
  FLOWK_RETURN_IF_ERROR(check_options(options, request->dtype, &request->options));
  if (*is_empty) return {};
  FLOWK_RETURN_IF_ERROR(check_vocabulary(columns, is_whole, &request->options));
  request->columns = columns;
  Layout logits;
  FLOWK_RETURN_IF_ERROR(check_row_layout("logits", rank, shape, logits_strides, &logits));
  *per_row = layout_of(rank - 1, shape, nullptr);
  FLOWK_RETURN_IF_ERROR(tensors->add({"logits", request->logits, nullptr, request->dtype}, logits, false));
  FLOWK_RETURN_IF_ERROR(tensors->add({"targets", request->targets, nullptr, request->targets_dtype}, *per_row, false));
  IterationSpace& rows = request->rows;
  rows.rank = rank - 1;
  request->num_rows = 1;
  for (int d = 0; d < rows.rank; ++d) {
    rows.extents[d] = shape[d];
    rows.strides[0][d] = per_row->strides[d];
    rows.strides[1][d] = rows.strides[2][d] = logits.strides[d];
    request->num_rows *= shape[d];
  }
  return {};
}

Layout with_last(const Layout& layout, int64_t extent) {
  Layout result = layout;
  result.extents[result.rank++] = extent;
  contiguous_strides(result.rank, result.extents, result.strides);
  return result;
}

Status add_results(const RowResults& results, flowk_dtype dtype, const Layout& per_row, Tensors* tensors) {
  const bool has_none = results.loss == nullptr && results.lse == nullptr && results.entropy == nullptr;
  const flowk_dtype type = result_dtype(dtype);
  if (results.partials != nullptr) {
    if (!has_none)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "partials = %p, must be NULL beside loss, lse or entropy",
                             results.partials);
    return tensors->add({"partials", results.partials, nullptr, type}, with_last(per_row, partial_values), true);
  }
  if (has_none) return Status::failure(FLOWK_STATUS_NULL_POINTER, "all outputs = NULL, one must not be");
  FLOWK_RETURN_IF_ERROR(tensors->add_optional({"loss", results.loss, nullptr, type}, per_row, true));
  FLOWK_RETURN_IF_ERROR(tensors->add_optional({"lse", results.lse, nullptr, type}, per_row, true));
  return tensors->add_optional({"entropy", results.entropy, nullptr, type}, per_row, true);
}

flowk_status forward(const CrossEntropyRequest& arguments, const int64_t* logits_strides, int32_t rank,
                     const int64_t* shape, const flowk_cross_entropy_options* options, size_t workspace_bytes,
                     const PlanUse& use) {
  const auto check = [&](CrossEntropyRequest* request, bool* is_empty) -> Status {
    *request = arguments;
    const bool is_shard = request->results.partials != nullptr;
    Tensors tensors;
    Layout per_row;
    FLOWK_RETURN_IF_ERROR(
        check_logits(logits_strides, rank, shape, options, !is_shard, request, is_empty, &tensors, &per_row));
    if (*is_empty) return {};
    FLOWK_RETURN_IF_ERROR(add_results(request->results, request->dtype, per_row, &tensors));
    if (!use.explains)
      FLOWK_RETURN_IF_ERROR(
          tensors.add_workspace(request->workspace, workspace_bytes,
                                cross_entropy_workspace_bytes(request->num_rows, request->columns, request->dtype)));
    simplify(&request->rows);
    return {};
  };
  return check_plan_run(use, check, "logits", plan_cross_entropy, run_cross_entropy, explain_cross_entropy);
}

Status workspace_bytes_of(int32_t rank, const int64_t* shape, flowk_dtype dtype, size_t* workspace_bytes) {
  DtypeInfo info;
  FLOWK_RETURN_IF_ERROR(check_float_of_16_to_64_bits("dtype", dtype, &info));
  bool is_empty = false;
  FLOWK_RETURN_IF_ERROR(check_shape(1, rank, shape, &is_empty));
  FLOWK_RETURN_IF_ERROR(check_not_null("workspace_bytes", workspace_bytes));
  FLOWK_RETURN_IF_ERROR(check_size("logits", layout_of(rank, shape, nullptr), info.element_bytes));
  int64_t num_rows = 1;
  for (int d = 0; d + 1 < rank; ++d) num_rows *= is_empty ? 0 : shape[d];
  *workspace_bytes = static_cast<size_t>(cross_entropy_workspace_bytes(num_rows, shape[rank - 1], dtype));
  return {};
}

flowk_status merge(const CrossEntropyMergeRequest& arguments, const flowk_cross_entropy_options* options,
                   const PlanUse& use) {
  const auto check = [&](CrossEntropyMergeRequest* request, bool* is_empty) -> Status {
    *request = arguments;
    DtypeInfo info;
    FLOWK_RETURN_IF_ERROR(check_dtype("dtype", request->dtype, &info));
    if (request->dtype != FLOWK_FLOAT32 && request->dtype != FLOWK_FLOAT64)
      return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "dtype = %s, must be float32 or float64", info.name);
    FLOWK_RETURN_IF_ERROR(check_targets_dtype(request->targets_dtype));
    FLOWK_RETURN_IF_ERROR(check_options(options, request->dtype, &request->options));
    FLOWK_RETURN_IF_ERROR(check_at_least("options->vocab_size", request->options.vocab_size, 1));
    FLOWK_RETURN_IF_ERROR(check_at_least("num_shards", request->num_shards, 1));
    FLOWK_RETURN_IF_ERROR(check_at_least("rows", request->num_rows, 0));
    *is_empty = request->num_rows == 0;
    if (*is_empty) return {};
    const int64_t shape[] = {request->num_shards, request->num_rows, partial_values};
    const Layout per_row = layout_of(1, &request->num_rows, nullptr);
    Tensors tensors;
    FLOWK_RETURN_IF_ERROR(
        tensors.add({"partials", request->partials, nullptr, request->dtype}, layout_of(3, shape, nullptr), false));
    FLOWK_RETURN_IF_ERROR(tensors.add({"targets", request->targets, nullptr, request->targets_dtype}, per_row, false));
    return add_results(request->results, request->dtype, per_row, &tensors);
  };
  const auto run = [&](const MergePartialsPlan& plan, flowk_stream stream) {
    return run_cross_entropy_merge(plan, arguments.dtype, stream);
  };
  return check_plan_run(use, check, "loss", plan_cross_entropy_merge, run, explain_cross_entropy_merge);
}

flowk_status backward(const CrossEntropyRequest& arguments, const int64_t* logits_strides,
                      const int64_t* dlogits_strides, int32_t rank, const int64_t* shape,
                      const flowk_cross_entropy_options* options, const PlanUse& use) {
  const auto check = [&](CrossEntropyRequest* request, bool* is_empty) -> Status {
    *request = arguments;
    Tensors tensors;
    Layout per_row, dlogits;
    FLOWK_RETURN_IF_ERROR(
        check_logits(logits_strides, rank, shape, options, false, request, is_empty, &tensors, &per_row));
    if (*is_empty) return {};
    if (request->dloss == nullptr && request->dlse == nullptr && request->dentropy == nullptr)
      return Status::failure(FLOWK_STATUS_NULL_POINTER,
                             "dloss = NULL, dlse = NULL and dentropy = NULL, one must not be");
    const flowk_dtype type = result_dtype(request->dtype);
    FLOWK_RETURN_IF_ERROR(tensors.add({"lse", request->lse, nullptr, type}, per_row, false));
    if (request->dentropy != nullptr)
      FLOWK_RETURN_IF_ERROR(tensors.add({"entropy", request->entropy, nullptr, type}, per_row, false));
    const Operand gradients[] = {{"dloss", request->dloss, nullptr, type},
                                 {"dlse", request->dlse, nullptr, type},
                                 {"dentropy", request->dentropy, nullptr, type}};
    for (const Operand& gradient : gradients) FLOWK_RETURN_IF_ERROR(tensors.add_optional(gradient, per_row, false));
    FLOWK_RETURN_IF_ERROR(check_row_layout("dlogits", rank, shape, dlogits_strides, &dlogits));
    FLOWK_RETURN_IF_ERROR(check_no_self_overlap("dlogits", dlogits));
    for (int d = 0; d < rank - 1; ++d) request->rows.strides[2][d] = dlogits.strides[d];
    FLOWK_RETURN_IF_ERROR(tensors.add({"dlogits", request->dlogits, nullptr, request->dtype}, dlogits, true, 1));
    simplify(&request->rows);
    return {};
  };
  return check_plan_run(use, check, "dlogits", plan_cross_entropy_backward, run_cross_entropy_backward,
                        explain_cross_entropy_backward);
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

flowk_status flowk_cross_entropy_workspace_bytes(int32_t rank, const int64_t* shape, flowk_dtype dtype,
                                                 size_t* workspace_bytes) {
  return without_exceptions([&] { return workspace_bytes_of(rank, shape, dtype, workspace_bytes); });
}

flowk_status flowk_cross_entropy(const void* logits, const int64_t* logits_strides, flowk_dtype dtype,
                                 const void* targets, flowk_dtype targets_dtype, void* loss, void* lse, void* entropy,
                                 void* partials, int32_t rank, const int64_t* shape,
                                 const flowk_cross_entropy_options* options, void* workspace, size_t workspace_bytes,
                                 flowk_stream stream) {
  return forward({logits, targets, dtype, targets_dtype, workspace, {loss, lse, entropy, partials}}, logits_strides,
                 rank, shape, options, workspace_bytes, stream);
}

flowk_status flowk_cross_entropy_explain(const void* logits, const int64_t* logits_strides, flowk_dtype dtype,
                                         const void* targets, flowk_dtype targets_dtype, void* loss, void* lse,
                                         void* entropy, void* partials, int32_t rank, const int64_t* shape,
                                         const flowk_cross_entropy_options* options, char* text, size_t text_bytes) {
  return forward({logits, targets, dtype, targets_dtype, nullptr, {loss, lse, entropy, partials}}, logits_strides, rank,
                 shape, options, 0, {text, text_bytes});
}

flowk_status flowk_cross_entropy_merge(const void* partials, int64_t num_shards, const void* targets,
                                       flowk_dtype targets_dtype, void* loss, void* lse, void* entropy, int64_t rows,
                                       flowk_dtype dtype, const flowk_cross_entropy_options* options,
                                       flowk_stream stream) {
  return merge({partials, num_shards, targets, dtype, targets_dtype, {loss, lse, entropy}, rows}, options, stream);
}

flowk_status flowk_cross_entropy_merge_explain(const void* partials, int64_t num_shards, const void* targets,
                                               flowk_dtype targets_dtype, void* loss, void* lse, void* entropy,
                                               int64_t rows, flowk_dtype dtype,
                                               const flowk_cross_entropy_options* options, char* text,
                                               size_t text_bytes) {
  return merge({partials, num_shards, targets, dtype, targets_dtype, {loss, lse, entropy}, rows}, options,
               {text, text_bytes});
}

flowk_status flowk_cross_entropy_backward(const void* logits, const int64_t* logits_strides, flowk_dtype dtype,
                                          const void* targets, flowk_dtype targets_dtype, const void* lse,
                                          const void* entropy, const void* dloss, const void* dlse,
                                          const void* dentropy, void* dlogits, const int64_t* dlogits_strides,
                                          int32_t rank, const int64_t* shape,
                                          const flowk_cross_entropy_options* options, flowk_stream stream) {
  return backward({logits, targets, dtype, targets_dtype, nullptr, {}, lse, entropy, dloss, dlse, dentropy, dlogits},
                  logits_strides, dlogits_strides, rank, shape, options, stream);
}

flowk_status flowk_cross_entropy_backward_explain(const void* logits, const int64_t* logits_strides, flowk_dtype dtype,
                                                  const void* targets, flowk_dtype targets_dtype, const void* lse,
                                                  const void* entropy, const void* dloss, const void* dlse,
                                                  const void* dentropy, void* dlogits, const int64_t* dlogits_strides,
                                                  int32_t rank, const int64_t* shape,
                                                  const flowk_cross_entropy_options* options, char* text,
                                                  size_t text_bytes) {
  return backward({logits, targets, dtype, targets_dtype, nullptr, {}, lse, entropy, dloss, dlse, dentropy, dlogits},
                  logits_strides, dlogits_strides, rank, shape, options, {text, text_bytes});
}

}  // extern "C"
