// SPDX-License-Identifier: Apache-2.0
// plan_softmax() selects a config and fills the parameters of its kernel.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numbers>
#include <utility>

#include "core/divide.h"
#include "softmax/plan/softmax_mechanisms.h"
#include "softmax/plan/softmax_threads.h"

namespace flowk::softmax {
namespace {

void fill_operands(const SoftmaxCall& call, SoftmaxParams* params) {
  const SoftmaxRequest& request = call.request;
  params->x = static_cast<const unsigned char*>(request.pointers[softmax_x]);
  params->out = static_cast<unsigned char*>(const_cast<void*>(request.pointers[softmax_out]));
  params->bias_or_y = static_cast<const unsigned char*>(request.pointers[softmax_bias_or_y]);
  params->dense = static_cast<const unsigned char*>(request.pointers[softmax_dense]);
  params->has_row_values = call.has_row_values;
  params->lse = static_cast<unsigned char*>(const_cast<void*>(request.pointers[softmax_lse]));
  SoftmaxExtras& extras = params->extras;
  for (int i = 0; i < num_row_numbers; ++i) extras.numbers[i] = static_cast<const unsigned char*>(request.numbers[i]);
  extras.dsinks = static_cast<unsigned char*>(request.dsinks);
  extras.saved_lse = static_cast<const unsigned char*>(request.saved_lse);
  extras.softcap = request.softcap;
  extras.softcap32 = static_cast<float>(request.softcap);
  if (request.softcap > 0)
    extras.slope32 = static_cast<float>((call.in_bytes == 2 ? 2 * std::numbers::log2e : 1) / request.softcap);
  if (request.backward) {
    extras.x = std::exchange(params->dense, nullptr);
    return;
  }
  if (params->dense == nullptr) return;
  const OperandMemory memory = memory_of(call, softmax_dense, request.columns);
  params->dense_first = memory.first;
  params->dense_end = memory.end;
}

// The bytes from each row to the next, from their number in each dimension.
template <class StrideOf>
uint32_t row_step_of(const SoftmaxRows& rows, StrideOf stride_of) {
  if (rows.rank == 0) return 0;
  if (rows.l2_tile_dim > 0) return no_row_step;
  for (int d = 1; d < rows.rank; ++d)
    if (stride_of(d) != stride_of(d - 1) * rows.dims[d - 1].extent) return no_row_step;
  return stride_of(0) >= 0 && stride_of(0) < int64_t{no_row_step} ? static_cast<uint32_t>(stride_of(0)) : no_row_step;
}

void fill_rows(const SoftmaxCall& call, const SoftmaxRows& rows, SoftmaxParams* params) {
  params->rows = rows;
  set_dividers(&params->rows);
  params->row_steps.lse = row_step_of(rows, [&](int d) { return rows.dims[d].strides[softmax_lse]; });
  const int64_t number_bytes = call.in_bytes == 8 ? 8 : 4;
  for (int i = 0; i < num_row_numbers; ++i)
    params->row_steps.numbers[i] = row_step_of(rows, [&](int d) { return rows.numbers[d].of[i] * number_bytes; });
  params->columns = static_cast<int32_t>(call.request.columns);
}

void fill_masks(const SoftmaxCall& call, SoftmaxParams* params) {
  const SoftmaxRequest& request = call.request;
  params->interval = {.exists = call.has_interval,
                      .lengths = static_cast<const unsigned char*>(request.pointers[softmax_lengths]),
                      .lengths_bytes = request.lengths_bytes,
                      .lengths_from_right = request.lengths_from_right,
                      .has_diagonal = request.has_diagonal,
                      .diagonal_begin = request.diagonal_begin,
                      .diagonal_end = request.diagonal_end};
  params->bias_is_float32 = request.bias_dtype == FLOWK_FLOAT32;
  params->bias_is_aligned = call.bias_vectors_agree;
  params->seeks_dense_alone = call.mask == SoftmaxMask::dense && !call.has_interval && !params->rows.is_wide &&
                              call.rows.l2_tile_dim == 0 && has_one_stride(call.rows, softmax_x) &&
                              has_one_stride(call.rows, softmax_out);
}

void fill_scale(const SoftmaxCall& call, SoftmaxParams* params) {
  const SoftmaxRequest& request = call.request;
  params->log_softmax = request.log_softmax;
  params->scale = request.scale;
  if (!request.backward && !has_scaled_scores(call.mask) && request.numbers[row_scale] == nullptr) {
    // A masked-out score is -infinity before it is scaled and must stay so: the scale is positive.
    params->negates_x = request.scale < 0;
    params->scale = std::fabs(request.scale);
  }
  params->scale32 = static_cast<float>(params->scale);
  params->scale32_base_2 = static_cast<float>(params->scale * std::numbers::log2e);
}

// Bytes of shared memory per block that leave a multiprocessor room for `blocks` blocks.
int32_t shared_bytes_for(const Device& device, int32_t blocks) {
  constexpr int32_t system_bytes = 1024;  // per block
  const int32_t bytes = device.shared_bytes_per_multiprocessor / (blocks + 1) + 1 - system_bytes;
  return std::clamp(bytes, 0, device.shared_bytes_per_block);
}

}  // namespace

void fill_params(const SoftmaxCall& call, const SoftmaxRows& rows, int32_t lanes_per_row, int32_t rows_per_block,
                 SoftmaxParams* params) {
  fill_operands(call, params);
  fill_rows(call, rows, params);
  fill_masks(call, params);
  fill_scale(call, params);
  params->out_dtype = call.request.out_dtype;
  params->out_is_x_type = call.request.out_dtype == call.request.in_dtype;
  params->has_tails = call.has_tails;
  params->lanes_per_row = lanes_per_row;
  params->rows_per_block = rows_per_block;
  if (lanes_per_row <= warp_lanes) params->rows_shift = std::countr_zero(static_cast<uint32_t>(lanes_per_row));
}

namespace {

void fill_plan(const SoftmaxCall& call, const SoftmaxConfig& config, SoftmaxPlan* plan) {
  plan->config = config;
  plan->backward = call.request.backward;
  plan->in_dtype = call.request.in_dtype;
  plan->out_dtype = call.request.out_dtype;
  SoftmaxParams& params = plan->params;
  fill_params(call, config.kernel() == SoftmaxKernel::staged_rows ? call.output_rows : call.rows, config.lanes_per_row,
              rows_per_block(config), &params);
  params.row_blocks_shift = std::countr_zero(static_cast<uint32_t>(config.cluster_blocks));
  plan->launch = {.num_blocks = ceil_div(params.rows.num_rows, params.rows_per_block) * config.cluster_blocks,
                  .num_threads = config.block_threads,
                  .shared_bytes = exchange_bytes(call, config),
                  .cluster_blocks = config.cluster_blocks,
                  .uses_pdl = call.device.runs_pdl()};
  std::visit(
      [&](auto& mechanism) {
        if constexpr (requires { fill(call, mechanism, plan); }) fill(call, mechanism, plan);
        plan->kernel_row = kernel_of(call, plan->config, mechanism);
        plan->mask = kernel_mask(softmax_kernels[plan->kernel_row], call.mask);
      },
      plan->config.mechanism);
  if (config.resident_blocks > 0)
    plan->launch.shared_bytes =
        std::max(plan->launch.shared_bytes, shared_bytes_for(call.device, config.resident_blocks));
}

}  // namespace

const char* softmax_kernel_name(SoftmaxKernel kernel) {
  constexpr const char* names[] = {"row_in_registers", "row_in_shared", "staged_rows", "two_pass_row",
                                   "rows_by_vectors",  "rows_in_lanes", "split_row",   "persistent_rows",
                                   "framed_rows",      "strided_rows"};
  static_assert(std::size(names) == std::variant_size_v<SoftmaxMechanism>);
  return names[static_cast<int>(kernel)];
}

bool fits(const SoftmaxCall& call, const SoftmaxConfig& config) {
  const auto* const strided = std::get_if<StridedRows>(&config.mechanism);
  if (strided != nullptr || call.request.has_strided_columns)
    return strided != nullptr && call.request.has_strided_columns && fits(call, config, *strided);
  if (!call.any_mechanism_is_right && config.kernel() != SoftmaxKernel::two_pass_row) return false;
  const int32_t lanes = config.lanes_per_row, threads = config.block_threads, blocks = config.cluster_blocks;
  // A row has 2^n lanes of one warp, or whole warps. Rows of more than a warp, or of a cluster, share no block.
  if (lanes < 1 || threads < 1 || threads % warp_lanes != 0) return false;
  if (lanes < warp_lanes ? !std::has_single_bit(static_cast<uint32_t>(lanes)) : lanes % warp_lanes != 0) return false;
  if (threads != lanes && (lanes > warp_lanes || threads % lanes != 0 || blocks > 1)) return false;
  if (blocks < 1 || blocks > device_cluster_blocks(call.device) || !std::has_single_bit(static_cast<uint32_t>(blocks)))
    return false;
  return std::visit(
      [&](const auto& mechanism) {
        const int32_t kernel = kernel_of(call, config, mechanism);
        return kernel >= 0 && threads <= softmax_kernels[kernel].max_threads && fits(call, config, mechanism);
      },
      config.mechanism);
}

void plan_softmax(const SoftmaxRequest& request, const Device& device, SoftmaxPlan* plan) {
  const SoftmaxCall call(request, device);
  SoftmaxConfig config = select_mechanism(call);
  if (!request.has_strided_columns) balance_blocks(call, &config);
  fill_plan(call, config, plan);
}

bool plan_softmax_as(const SoftmaxRequest& request, const Device& device, const SoftmaxConfig& config,
                     SoftmaxPlan* plan) {
  const SoftmaxCall call(request, device);
  if (!fits(call, config)) return false;
  fill_plan(call, config, plan);
  return true;
}

}  // namespace flowk::softmax
