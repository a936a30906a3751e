// SPDX-License-Identifier: Apache-2.0
#include "api/call.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace flowk::api {

Status check_not_null(const char* parameter, const void* pointer) {
  if (pointer != nullptr) return {};
  return Status::failure(FLOWK_STATUS_NULL_POINTER, "%s = NULL, must not be", parameter);
}

Status check_pointer(const char* parameter, const void* pointer, const DtypeInfo& dtype) {
  FLOWK_RETURN_IF_ERROR(check_not_null(parameter, pointer));
  if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(dtype.alignment_bytes) != 0)
    return Status::failure(FLOWK_STATUS_MISALIGNED_POINTER, "%s = %p, must be a multiple of %d for %s", parameter,
                           pointer, dtype.alignment_bytes, dtype.name);
  return {};
}

Status check_at_least(const char* parameter, int64_t value, int64_t least) {
  if (value >= least) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %lld, must be >= %lld", parameter,
                         static_cast<long long>(value), static_cast<long long>(least));
}

Status check_float_of_16_to_64_bits(const char* parameter, flowk_dtype dtype, DtypeInfo* info) {
  FLOWK_RETURN_IF_ERROR(check_dtype(parameter, dtype, info));
  if (dtype == FLOWK_FLOAT16 || dtype == FLOWK_BFLOAT16 || dtype == FLOWK_FLOAT32 || dtype == FLOWK_FLOAT64) return {};
  return Status::failure(FLOWK_STATUS_UNSUPPORTED_DTYPE, "%s = %s, must be float16, bfloat16, float32 or float64",
                         parameter, info->name);
}

Status check_struct_bytes(const char* parameter, size_t struct_bytes, std::initializer_list<size_t> released_bytes) {
  for (const size_t bytes : released_bytes)
    if (struct_bytes == bytes) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "%s = %zu, must be %zu", parameter, struct_bytes,
                         released_bytes.end()[-1]);
}

Status check_shape(int32_t min_rank, int32_t rank, const int64_t* shape, bool* is_empty) {
  if (rank < min_rank || rank > FLOWK_MAX_RANK)
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "rank = %d, must be in %d ... %d", rank, min_rank,
                           FLOWK_MAX_RANK);
  if (rank > 0 && shape == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "shape = NULL, must not be with rank = %d", rank);
  *is_empty = false;
  for (int d = 0; d < rank; ++d) {
    if (shape[d] < 0)
      return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "shape[%d] = %lld, must be >= 0", d,
                             static_cast<long long>(shape[d]));
    if (shape[d] == 0) *is_empty = true;
  }
  return {};
}

Layout layout_of(int32_t rank, const int64_t* extents, const int64_t* strides) {
  Layout layout;
  layout.rank = rank;
  std::copy_n(extents, rank, layout.extents);
  if (strides != nullptr)
    std::copy_n(strides, rank, layout.strides);
  else
    contiguous_strides(rank, extents, layout.strides);
  return layout;
}

Status check_apart(const Operand& input, const Layout& input_layout, const Operand& out, const Layout& out_layout) {
  return check_no_overlap(input.name, input.pointer, input_layout, dtype_info(input.dtype).element_bytes, out.name,
                          out.pointer, out_layout, dtype_info(out.dtype).element_bytes);
}

Status check_same_or_apart(const Operand& input, const Layout& input_layout, const Operand& out,
                           const Layout& out_layout) {
  bool is_same =
      input.pointer == out.pointer && dtype_info(input.dtype).element_bytes == dtype_info(out.dtype).element_bytes;
  for (int d = 0; is_same && d < out_layout.rank; ++d)
    is_same = out_layout.extents[d] == 1 || input_layout.strides[d] == out_layout.strides[d];
  return is_same ? Status() : check_apart(input, input_layout, out, out_layout);
}

Status Tensors::add(const Operand& operand, const Layout& layout, bool is_output, int num_in_place) {
  const DtypeInfo dtype = dtype_info(operand.dtype);
  FLOWK_RETURN_IF_ERROR(check_size(operand.name, layout, dtype.element_bytes));
  FLOWK_RETURN_IF_ERROR(check_pointer(operand.name, operand.pointer, dtype));
  for (int i = 0; is_output && i < num_tensors_; ++i)
    FLOWK_RETURN_IF_ERROR(
        (i < num_in_place ? check_same_or_apart : check_apart)(operands_[i], layouts_[i], operand, layout));
  operands_[num_tensors_] = operand;
  layouts_[num_tensors_++] = layout;
  return {};
}

Status Tensors::add_workspace(const void* workspace, size_t given_bytes, int64_t needed_bytes) {
  if (needed_bytes == 0) return {};
  FLOWK_RETURN_IF_ERROR(check_workspace_memory(workspace, given_bytes, needed_bytes));
  return add({"workspace", workspace, nullptr, FLOWK_UINT8}, layout_of(1, &needed_bytes, nullptr), true);
}

Status check_grid(const char* parameter, const LaunchConfig& launch) {
  if (launch.num_blocks <= max_grid_blocks) return {};
  return Status::failure(FLOWK_STATUS_SIZE_OVERFLOW, "%s has too many elements: they need %lld blocks, must be <= %lld",
                         parameter, static_cast<long long>(launch.num_blocks), static_cast<long long>(max_grid_blocks));
}

Status check_workspace_memory(const void* workspace, size_t given_bytes, int64_t needed_bytes) {
  constexpr int64_t alignment_bytes = 16;
  if (workspace == nullptr)
    return Status::failure(FLOWK_STATUS_NULL_POINTER, "workspace = NULL, must hold %lld bytes",
                           static_cast<long long>(needed_bytes));
  if (given_bytes < static_cast<size_t>(needed_bytes))
    return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "workspace_bytes = %zu, must be >= %lld", given_bytes,
                           static_cast<long long>(needed_bytes));
  if (reinterpret_cast<uintptr_t>(workspace) % alignment_bytes != 0)
    return Status::failure(FLOWK_STATUS_MISALIGNED_POINTER, "workspace = %p, must be a multiple of %lld", workspace,
                           static_cast<long long>(alignment_bytes));
  return {};
}

Status use_nothing(const PlanUse& use) {
  constexpr char nothing[] = "nothing to do: there are no elements\n";
  if (use.text_bytes > 0) std::strncpy(use.text, nothing, use.text_bytes - 1)[use.text_bytes - 1] = '\0';
  return {};
}

}  // namespace flowk::api
