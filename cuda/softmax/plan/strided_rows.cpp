// SPDX-License-Identifier: Apache-2.0
// strided_rows takes every call with strided columns: chooses neighbouring rows and threads.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/divide.h"
#include "core/dtype.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {
namespace {

SoftmaxKernelQuery query_of_width(const SoftmaxCall& call, int32_t row_width) {
  SoftmaxKernelQuery query = query_of(call, SoftmaxKernel::strided_rows, 1);
  query.unit_columns = row_width;
  return query;
}

// Are all columns of strided_row_width neighbouring rows aligned packs of elements, in every operand?
bool has_row_packs(const SoftmaxCall& call) {
  if (call.request.batch_invariant) return false;  // a pack depends on addresses
  if (!call.is_one_type || call.rows.rank == 0 || call.rows.dims[0].extent % strided_row_width != 0) return false;
  const int64_t pack_bytes = int64_t{strided_row_width} * call.in_bytes;
  const auto has_packs = [&](SoftmaxOperand operand) {
    if (call.rows.dims[0].strides[operand] != call.in_bytes) return false;
    if (call.request.column_strides[operand] % pack_bytes != 0) return false;
    if (reinterpret_cast<uintptr_t>(call.request.pointers[operand]) % static_cast<uintptr_t>(pack_bytes) != 0)
      return false;
    return std::all_of(call.rows.dims + 1, call.rows.dims + call.rows.rank,
                       [&](const SoftmaxRowDim& dim) { return dim.strides[operand] % pack_bytes == 0; });
  };
  return has_packs(softmax_x) && has_packs(softmax_out) && (!call.request.backward || has_packs(softmax_bias_or_y));
}

}  // namespace

// Enough threads share a row to hold it, if the block's rows then still are 32 bytes of memory.
SoftmaxConfig choose_strided_rows(const SoftmaxCall& call) {
  constexpr int32_t min_row_bytes = 32, good_threads = 256;
  SoftmaxConfig config;
  const StridedRows mechanism = {.row_width = has_row_packs(call) ? strided_row_width : 1};
  const SoftmaxKernelRow& kernel = softmax_kernels[kernel_of(call, config, mechanism)];
  const int32_t rows_of_min_bytes = std::max(min_row_bytes / (mechanism.row_width * call.in_bytes), 1);
  const int32_t most = std::min(warp_lanes * mechanism.row_width, kernel.max_threads / rows_of_min_bytes);
  config.mechanism = mechanism;
  config.lanes_per_row = std::min(power_of_2_from(ceil_div(call.request.columns, int64_t{kernel.max_vectors})), most);
  config.block_threads = std::max(good_threads, config.lanes_per_row * rows_of_min_bytes);
  return config;
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config, const StridedRows& mechanism) {
  const int32_t threads = config.block_threads, lanes = config.lanes_per_row;
  const int32_t kernel = kernel_of(call, config, mechanism);
  return kernel >= 0 && (mechanism.row_width == 1 || has_row_packs(call)) && lanes >= 1 && threads >= lanes &&
         threads % warp_lanes == 0 && threads <= softmax_kernels[kernel].max_threads && config.cluster_blocks == 1 &&
         std::has_single_bit(static_cast<uint32_t>(lanes)) && std::has_single_bit(static_cast<uint32_t>(threads)) &&
         lanes <= warp_lanes * mechanism.row_width;
}

int32_t kernel_of(const SoftmaxCall& call, const SoftmaxConfig&, const StridedRows& mechanism) {
  return find_kernel(query_of_width(call, mechanism.row_width));
}

void fill(const SoftmaxCall& call, StridedRows& mechanism, SoftmaxPlan* plan) {
  SoftmaxRows& rows = plan->params.rows;
  const int32_t slices = plan->config.lanes_per_row, width = mechanism.row_width;
  const int32_t lanes = plan->params.rows_per_block;
  if (width > 1) {
    SoftmaxRowDim& inner = rows.dims[0];
    rows.num_rows /= width;
    inner.extent /= width;
    for (int64_t& stride : inner.strides) stride *= width;
    set_dividers(&rows);
  }
  const int64_t* const strides = call.request.column_strides;
  mechanism.column_strides[0] = strides[softmax_x];
  mechanism.column_strides[1] = strides[softmax_bias_or_y];
  mechanism.out_column_stride = strides[softmax_out];
  mechanism.lanes_shift = std::countr_zero(static_cast<uint32_t>(lanes));
  mechanism.merge_shift = std::countr_zero(static_cast<uint32_t>(std::max(slices / width, 1)));
  const bool is_16_bit = call.in_bytes == 2 && call.is_one_type;  // results of 16 bits from inputs of 16
  const int32_t partial = call.request.backward ? std::max(call.in_bytes, 4) : partial_result_bytes(is_16_bit ? 2 : 8);
  plan->launch.num_blocks = ceil_div(rows.num_rows, int64_t{lanes});
  plan->launch.shared_bytes = strided_bytes(partial, lanes * width, slices);
}

}  // namespace flowk::softmax
