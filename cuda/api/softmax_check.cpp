// SPDX-License-Identifier: Apache-2.0
#include "api/softmax_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "core/dtype.h"
#include "core/iteration_space.h"
#include "core/status.h"

namespace flowk::api {
using namespace softmax;
namespace {

constexpr int64_t max_diagonal = int64_t{1} << 62;

// The sizes of flowk_softmax_mask: up to the bias, to dlse, to x, and whole. Members past a caller's size are zero.
constexpr size_t mask_bytes_to_bias = 96, mask_bytes_to_dlse = 112, mask_bytes_to_x = 176, mask_bytes = 184;
static_assert(sizeof(flowk_softmax_mask) == mask_bytes && offsetof(flowk_softmax_mask, lse) == mask_bytes_to_bias &&
              offsetof(flowk_softmax_mask, sinks) == mask_bytes_to_dlse &&
              offsetof(flowk_softmax_mask, batch_invariant) == mask_bytes_to_x);

bool is_softmax_dtype(flowk_dtype dtype) {
  return dtype == FLOWK_FLOAT16 || dtype == FLOWK_BFLOAT16 || dtype == FLOWK_FLOAT32 || dtype == FLOWK_FLOAT64;
}

Status check_flag(const char* parameter, int32_t value) {
  if (value != 0 && value != 1)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %d, must be 0 or 1", parameter, value);
  return {};
}

// The columns of x, out and y may lie apart.
void put_columns(SoftmaxRequest* request, SoftmaxOperand operand, const Layout& layout, int64_t element_bytes) {
  const int64_t stride = request->columns == 1 ? 1 : layout.strides[request->rank];
  request->has_strided_columns |= stride != 1;
  request->column_strides[operand] = stride * element_bytes;
}

Status read_mask(SoftmaxArguments* arguments) {
  const flowk_softmax_mask* const given = arguments->given_mask;
  if (given == nullptr) return {};
  FLOWK_RETURN_IF_ERROR(check_struct_bytes("mask->struct_bytes", given->struct_bytes,
                                           {mask_bytes_to_bias, mask_bytes_to_dlse, mask_bytes_to_x, mask_bytes}));
  std::memcpy(&arguments->mask, given, given->struct_bytes);
  return {};
}

// The members of the mask that need no pointer: an empty tensor has them too.
Status check_mask_values(const SoftmaxArguments& arguments) {
  const flowk_softmax_mask& mask = arguments.mask;
  FLOWK_RETURN_IF_ERROR(check_flag("mask->causal", mask.causal));
  FLOWK_RETURN_IF_ERROR(check_flag("mask->lengths_from_right", mask.lengths_from_right));
  FLOWK_RETURN_IF_ERROR(check_flag("mask->batch_invariant", mask.batch_invariant));
  if (mask.causal_offset < -max_diagonal || mask.causal_offset > max_diagonal)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "mask->causal_offset = %lld, must be within +-2^62",
                           static_cast<long long>(mask.causal_offset));
  if (mask.window < 0 || mask.window > max_diagonal)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "mask->window = %lld, must be in 0 ... 2^62",
                           static_cast<long long>(mask.window));
  if (mask.lengths != nullptr && mask.lengths_dtype != FLOWK_INT32 && mask.lengths_dtype != FLOWK_INT64)
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "mask->lengths_dtype = %d, must be int32 or int64",
                           mask.lengths_dtype);
  // Its inverse is a number of the type, and so is its product with 2.
  const double max_softcap = arguments.x.dtype == FLOWK_FLOAT64 ? 0x1p1022 : max_scale_of_float32;
  if (!(mask.softcap == 0 || (mask.softcap >= 1 / max_softcap && mask.softcap <= max_softcap)))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "mask->softcap = %g, must be 0 or in 2^-%d ... 2^%d",
                           mask.softcap, std::ilogb(max_softcap), std::ilogb(max_softcap));
  if (mask.bias == nullptr || arguments.backward) return {};
  const flowk_dtype x_dtype = arguments.x.dtype;
  FLOWK_RETURN_IF_ERROR(check_softmax_dtype("mask->bias_dtype", mask.bias_dtype));
  if (mask.bias_dtype != x_dtype && (mask.bias_dtype != FLOWK_FLOAT32 || x_dtype == FLOWK_FLOAT64))
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE,
                           "mask->bias_dtype = %d (%s), must be x_dtype (%s), or float32 with a 16-bit x",
                           mask.bias_dtype, dtype_info(mask.bias_dtype).name, dtype_info(x_dtype).name);
  return {};
}

// The gradient of a bias does not depend on what made z of x.
Status drop_score_terms(SoftmaxArguments* arguments) {
  flowk_softmax_mask& mask = arguments->mask;
  if (arguments->out.pointer != nullptr && (mask.softcap != 0 || mask.row_scale != nullptr))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT,
                           "dx is given, must be NULL with mask->%s: dx is that of flowk_masked_softmax_backward()",
                           mask.softcap != 0 ? "softcap" : "row_scale");
  mask.softcap = 0;
  mask.row_scale = nullptr;
  return {};
}

// lengths, causal and window.
Status check_interval(const SoftmaxArguments& arguments, const Layout& out_layout, SoftmaxRequest* request) {
  const flowk_softmax_mask& mask = arguments.mask;
  const int32_t leading = arguments.rank - 1;
  if (mask.causal != 0 || mask.window > 0) {
    // Ends past 2^61 are past every column of every row.
    __extension__ typedef __int128 int128;
    const auto clamp = [](int128 end) {
      constexpr int128 limit = int128{1} << 61;
      return static_cast<int64_t>(std::clamp(end, -limit, limit));
    };
    const int64_t q = leading > 0 ? arguments.shape[leading - 1] : 1;
    const int128 diagonal = int128{arguments.shape[leading]} - q + mask.causal_offset;
    request->has_diagonal = true;
    request->diagonal_begin = clamp(mask.window > 0 ? diagonal - mask.window + 1 : -(int128{1} << 61));
    request->diagonal_end = clamp(diagonal + (mask.causal != 0 ? 1 : mask.window));
    if (leading > 0) request->strides[softmax_row][leading - 1] = 1;
  }
  if (mask.lengths == nullptr) return {};
  const Operand lengths = {"mask->lengths", mask.lengths, mask.lengths_strides, mask.lengths_dtype};
  Layout layout;
  FLOWK_RETURN_IF_ERROR(make_layout(lengths, leading, arguments.shape, false, &layout));
  FLOWK_RETURN_IF_ERROR(check_apart(lengths, layout, arguments.out, out_layout));
  request->lengths_bytes = dtype_info(mask.lengths_dtype).element_bytes;
  request->lengths_from_right = mask.lengths_from_right != 0;
  put_operand(request, softmax_lengths, mask.lengths, layout, request->lengths_bytes);
  return {};
}

// Does the call read or write a number per row, or is x given to the gradient of a softcap? Members of the other
// direction are ignored.
bool has_row_values(const SoftmaxArguments& arguments) {
  const flowk_softmax_mask& mask = arguments.mask;
  if (mask.row_scale != nullptr || mask.softcap != 0) return true;
  return arguments.backward ? mask.dlse != nullptr || mask.dsinks != nullptr
                            : mask.lse != nullptr || mask.sinks != nullptr;
}

// lse, dlse, dsinks, sinks, row_scale and the x of a softcap's gradient.
Status check_row_values(const SoftmaxArguments& arguments, const Layout& out_layout, SoftmaxRequest* request) {
  const flowk_softmax_mask& mask = arguments.mask;
  const bool backward = arguments.backward;
  if (!has_row_values(arguments)) return {};
  const flowk_dtype dtype = arguments.x.dtype == FLOWK_FLOAT64 ? FLOWK_FLOAT64 : FLOWK_FLOAT32;
  const int32_t rank = request->rank;
  int64_t num_rows = 1;
  for (int d = 0; d < rank; ++d) num_rows *= request->extents[d];
  const bool has_dsinks = backward && mask.dsinks != nullptr;
  if (has_dsinks && (mask.sinks == nullptr || mask.lse == nullptr))
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "mask->%s is NULL, must be given with mask->dsinks",
                           mask.sinks == nullptr ? "sinks" : "lse");
  const Operand x = {"mask->x", backward && mask.softcap > 0 ? mask.x : nullptr, mask.x_strides, arguments.x.dtype};
  if (backward && mask.softcap > 0 && mask.x == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "mask->x is NULL, must be given with mask->softcap");
  const Operand saved_lse = {"mask->lse", has_dsinks ? mask.lse : nullptr, nullptr, dtype};
  const Operand dlse = {"mask->dlse", backward ? mask.dlse : nullptr, nullptr, dtype};
  const Operand written = {backward ? "mask->dsinks" : "mask->lse", backward ? mask.dsinks : mask.lse, nullptr, dtype};
  const Operand numbers[num_row_numbers] = {
      {"mask->sinks", backward && !has_dsinks ? nullptr : mask.sinks, mask.sinks_strides, dtype},
      {"mask->row_scale", mask.row_scale, mask.row_scale_strides, dtype}};
  const char* const name = written.pointer != nullptr ? written.name
                           : dlse.pointer != nullptr  ? dlse.name
                                                      : "the call's tensor of rows";
  if (num_rows > INT32_MAX)
    return Status::failure(FLOWK_STATUS_SIZE_OVERFLOW, "%s has %lld elements, must have < 2^31", name,
                           static_cast<long long>(num_rows));
  // What is read does not overlap the outputs, and these not each other.
  Layout written_layout;
  if (written.pointer != nullptr) {
    FLOWK_RETURN_IF_ERROR(make_layout(written, rank, arguments.shape, false, &written_layout));
    FLOWK_RETURN_IF_ERROR(check_apart(arguments.out, out_layout, written, written_layout));
  }
  const auto check = [&](const Operand& read, int32_t read_rank, Layout* layout, bool is_new = true) -> Status {
    if (read.pointer == nullptr) return {};
    if (is_new) {
      FLOWK_RETURN_IF_ERROR(make_layout(read, read_rank, arguments.shape, read_rank > rank, layout));
      FLOWK_RETURN_IF_ERROR(check_apart(read, *layout, arguments.out, out_layout));
    } else {
      *layout = layout_of(read_rank, arguments.shape, read.strides);
    }
    return written.pointer == nullptr ? Status() : check_apart(read, *layout, written, written_layout);
  };
  Layout layout;
  for (int i = 0; i < num_row_numbers; ++i) {
    FLOWK_RETURN_IF_ERROR(check(numbers[i], rank, &layout));
    request->numbers[i] = numbers[i].pointer;
    for (int d = 0; d < rank && numbers[i].pointer != nullptr; ++d) {
      if (layout.extents[d] == 1) continue;
      if (std::abs(static_cast<double>(layout.strides[d])) * static_cast<double>(layout.extents[d]) > INT32_MAX)
        return Status::failure(FLOWK_STATUS_SIZE_OVERFLOW, "%s_strides[%d] = %lld, must be < 2^31 times shape[%d]",
                               numbers[i].name, d, static_cast<long long>(layout.strides[d]), d);
      request->number_strides[i][d] = static_cast<int32_t>(layout.strides[d]);
    }
  }
  FLOWK_RETURN_IF_ERROR(check(saved_lse, rank, &layout));
  FLOWK_RETURN_IF_ERROR(check(dlse, rank, &layout));
  FLOWK_RETURN_IF_ERROR(check(x, rank + 1, &layout));
  if (x.pointer != nullptr) put_operand(request, softmax_dense, x.pointer, layout, dtype_info(x.dtype).element_bytes);
  FLOWK_RETURN_IF_ERROR(check(arguments.x, rank + 1, &layout, false));
  if (backward)
    FLOWK_RETURN_IF_ERROR(check(arguments.y, rank + 1, &layout, false));
  else {
    FLOWK_RETURN_IF_ERROR(check({"mask->dense", mask.dense, mask.dense_strides, FLOWK_BOOL}, rank + 1, &layout, false));
    FLOWK_RETURN_IF_ERROR(
        check({"mask->bias", mask.bias, mask.bias_strides, mask.bias_dtype}, rank + 1, &layout, false));
  }
  FLOWK_RETURN_IF_ERROR(
      check({"mask->lengths", mask.lengths, mask.lengths_strides, mask.lengths_dtype}, rank, &layout, false));
  // lse, dlse, dsinks and the saved lse have one layout.
  put_operand(request, softmax_lse, backward ? dlse.pointer : written.pointer,
              layout_of(rank, arguments.shape, nullptr), dtype_info(dtype).element_bytes);
  request->dsinks = has_dsinks ? mask.dsinks : nullptr;
  request->saved_lse = saved_lse.pointer;
  request->softcap = mask.softcap;
  return {};
}

// The parts that only the forward call looks at.
Status check_dense_and_bias(const SoftmaxArguments& arguments, const Layout& out_layout, SoftmaxRequest* request) {
  const flowk_softmax_mask& mask = arguments.mask;
  Layout layout;
  if (mask.dense != nullptr) {
    const Operand dense = {"mask->dense", mask.dense, mask.dense_strides, FLOWK_BOOL};
    FLOWK_RETURN_IF_ERROR(make_layout(dense, arguments.rank, arguments.shape, true, &layout));
    FLOWK_RETURN_IF_ERROR(check_apart(dense, layout, arguments.out, out_layout));
    put_operand(request, softmax_dense, mask.dense, layout, 1);
  }
  if (mask.bias != nullptr) {
    const Operand bias = {"mask->bias", mask.bias, mask.bias_strides, mask.bias_dtype};
    FLOWK_RETURN_IF_ERROR(make_layout(bias, arguments.rank, arguments.shape, true, &layout));
    FLOWK_RETURN_IF_ERROR(check_apart(bias, layout, arguments.out, out_layout));
    request->bias_dtype = mask.bias_dtype;
    put_operand(request, softmax_bias_or_y, mask.bias, layout, dtype_info(mask.bias_dtype).element_bytes);
  }
  return {};
}

}  // namespace

Status check_softmax_dtype(const char* parameter, flowk_dtype dtype) {
  DtypeInfo info;
  FLOWK_RETURN_IF_ERROR(check_dtype(parameter, dtype, &info));
  if (!is_softmax_dtype(dtype))
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE,
                           "%s = %d (%s), must be float16, bfloat16, float32 or float64", parameter, dtype, info.name);
  return {};
}

Status check_other_dtype(const char* parameter, flowk_dtype other, const char* name, flowk_dtype dtype) {
  FLOWK_RETURN_IF_ERROR(check_softmax_dtype(parameter, other));
  const bool agrees = other == dtype || (other == FLOWK_FLOAT32 && dtype != FLOWK_FLOAT64) ||
                      (dtype == FLOWK_FLOAT32 && other != FLOWK_FLOAT64);
  if (!agrees)
    return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE,
                           "%s = %d (%s), must be %s (%s), or one of the two float32 and the other 16-bit", parameter,
                           other, dtype_info(other).name, name, dtype_info(dtype).name);
  return {};
}

Status make_layout(const Operand& operand, int32_t rank, const int64_t* shape, bool has_rows, Layout* layout) {
  *layout = layout_of(rank, shape, operand.strides);
  if (has_rows && layout->extents[rank - 1] == 1) layout->strides[rank - 1] = 1;
  if (has_rows && layout->strides[rank - 1] != 1)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT,
                           "%s_strides[%d] = %lld, must be 1 beside a mask: a row is contiguous", operand.name,
                           rank - 1, static_cast<long long>(layout->strides[rank - 1]));
  const DtypeInfo dtype = dtype_info(operand.dtype);
  FLOWK_RETURN_IF_ERROR(check_size(operand.name, *layout, dtype.element_bytes));
  return check_pointer(operand.name, operand.pointer, dtype);
}

void put_operand(SoftmaxRequest* request, SoftmaxOperand operand, const void* pointer, const Layout& layout,
                 int64_t element_bytes) {
  request->pointers[operand] = pointer;
  for (int d = 0; d < request->rank; ++d)
    request->strides[operand][d] = layout.extents[d] == 1 ? 0 : layout.strides[d] * element_bytes;
}

Status check_row_columns(int32_t rank, const int64_t* shape) {
  if (shape[rank - 1] <= max_row_columns) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "shape[%d] = %lld, must be <= 2^30: it is a row", rank - 1,
                         static_cast<long long>(shape[rank - 1]));
}

Status check_softmax(SoftmaxArguments* given, SoftmaxRequest* request, bool* is_empty) {
  const SoftmaxArguments& arguments = *given;
  *is_empty = false;
  FLOWK_RETURN_IF_ERROR(check_softmax_dtype(arguments.in_dtype_name, arguments.x.dtype));
  FLOWK_RETURN_IF_ERROR(
      check_other_dtype(arguments.out_dtype_name, arguments.out.dtype, arguments.in_dtype_name, arguments.x.dtype));
  FLOWK_RETURN_IF_ERROR(check_shape(1, arguments.rank, arguments.shape, is_empty));
  const int32_t rank = arguments.rank;
  FLOWK_RETURN_IF_ERROR(check_row_columns(rank, arguments.shape));
  FLOWK_RETURN_IF_ERROR(check_flag("log_softmax", arguments.log_softmax));
  const bool is_double = arguments.x.dtype == FLOWK_FLOAT64;
  if (!std::isfinite(arguments.scale) || (!is_double && std::fabs(arguments.scale) > max_scale_of_float32))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "scale = %g, must be finite%s", arguments.scale,
                           is_double ? "" : " and within +-2^126");
  FLOWK_RETURN_IF_ERROR(read_mask(given));
  FLOWK_RETURN_IF_ERROR(check_mask_values(arguments));
  if (arguments.is_dbias) FLOWK_RETURN_IF_ERROR(drop_score_terms(given));
  const void* const per_row = arguments.backward ? arguments.mask.dsinks : arguments.mask.lse;
  if (per_row != nullptr && arguments.shape[rank - 1] == 0)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "shape[%d] = 0, must be >= 1 with mask->%s", rank - 1,
                           arguments.backward ? "dsinks" : "lse");
  if (*is_empty) return {};

  Layout x, y, out;
  const bool has_rows = arguments.given_mask != nullptr || arguments.is_dbias;
  const bool has_out = arguments.out.pointer != nullptr || !arguments.is_dbias;
  FLOWK_RETURN_IF_ERROR(make_layout(arguments.x, rank, arguments.shape, has_rows, &x));
  if (arguments.backward) FLOWK_RETURN_IF_ERROR(make_layout(arguments.y, rank, arguments.shape, has_rows, &y));
  if (has_out) {
    FLOWK_RETURN_IF_ERROR(make_layout(arguments.out, rank, arguments.shape, has_rows, &out));
    FLOWK_RETURN_IF_ERROR(check_no_self_overlap(arguments.out.name, out));
    FLOWK_RETURN_IF_ERROR(check_same_or_apart(arguments.x, x, arguments.out, out));
    if (arguments.backward) FLOWK_RETURN_IF_ERROR(check_same_or_apart(arguments.y, y, arguments.out, out));
  } else {  // one element at NULL, which no tensor overlaps
    constexpr int64_t no_strides[max_rank] = {};
    out = layout_of(rank, arguments.shape, no_strides);
  }

  request->backward = arguments.backward;
  request->log_softmax = arguments.log_softmax != 0;
  request->batch_invariant = arguments.mask.batch_invariant != 0;
  request->in_dtype = arguments.x.dtype;
  request->out_dtype = arguments.out.dtype;
  request->bias_dtype = arguments.x.dtype;
  request->rank = rank - 1;
  request->columns = arguments.shape[rank - 1];
  request->scale = arguments.scale;
  std::copy(arguments.shape, arguments.shape + request->rank, request->extents);
  for (int i = 0; i < num_softmax_operands; ++i) std::fill_n(request->strides[i], request->rank, int64_t{0});
  const int64_t in_bytes = dtype_info(arguments.x.dtype).element_bytes;
  put_operand(request, softmax_x, arguments.x.pointer, x, in_bytes);
  put_operand(request, softmax_out, arguments.out.pointer, out, dtype_info(arguments.out.dtype).element_bytes);
  put_columns(request, softmax_x, x, in_bytes);
  if (has_out) put_columns(request, softmax_out, out, dtype_info(arguments.out.dtype).element_bytes);
  if (arguments.backward) {
    put_operand(request, softmax_bias_or_y, arguments.y.pointer, y, in_bytes);
    put_columns(request, softmax_bias_or_y, y, in_bytes);
  }
  FLOWK_RETURN_IF_ERROR(check_interval(arguments, out, request));
  if (!arguments.backward) FLOWK_RETURN_IF_ERROR(check_dense_and_bias(arguments, out, request));
  return check_row_values(arguments, out, request);  // last: it compares with layouts that have been checked
}

}  // namespace flowk::api
