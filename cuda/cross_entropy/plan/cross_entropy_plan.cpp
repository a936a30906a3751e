// SPDX-License-Identifier: Apache-2.0
// The plans of cross-entropy: how a row is cut, and the parameters.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/divide.h"
#include "core/dtype.h"
#include "cross_entropy/cross_entropy.h"
#include "flowk/detail/sizes.h"

namespace flowk::cross_entropy {
namespace {

// More blocks than this per multiprocessor hide the latency of a target that is read before its row.
constexpr int64_t many_slices = 16;

// The fewest lanes, a power of 2, that hold a short row with up to `vectors` vectors each.
int32_t lanes_of_short_row(int64_t row_vectors, int64_t vectors) {
  int32_t lanes = 1;
  while (lanes * vectors < row_vectors) lanes *= 2;
  return lanes;
}

struct Cut {
  int64_t row_vectors, slices, slice_vectors;
  int32_t threads_per_row, vectors_per_thread;
};

Cut cut_row(int64_t columns, flowk_dtype dtype) {
  Cut cut;
  cut.row_vectors = ceil_div(columns * dtype_info(dtype).element_bytes, vector_bytes);
  cut.slices = ceil_div(cut.row_vectors, int64_t{max_slice_threads} * slice_batch);
  if (cut.row_vectors <= warp_lanes * short_batch) {
    cut.threads_per_row = std::min(lanes_of_short_row(cut.row_vectors, short_batch / 2), warp_lanes);
    cut.vectors_per_thread = static_cast<int32_t>(ceil_div(cut.row_vectors, cut.threads_per_row));
  } else {
    // Each thread has the same number of vectors, except at the row's end.
    const int64_t vectors = round_up(ceil_div(cut.row_vectors, cut.slices), slice_batch * warp_lanes);
    cut.threads_per_row = static_cast<int32_t>(vectors / slice_batch);
    cut.vectors_per_thread = slice_batch;
  }
  cut.slice_vectors = int64_t{cut.threads_per_row} * cut.vectors_per_thread;
  return cut;
}

int64_t value_bytes(flowk_dtype dtype) { return dtype == FLOWK_FLOAT64 ? 8 : 4; }

template <class A>
LogitScale<A> logit_scale(const flowk_cross_entropy_options& options) {
  LogitScale<A> result;
  const double scale = std::fabs(options.scale);
  result.scale = static_cast<A>(scale);
  result.softcap = static_cast<A>(options.softcap);
  result.exponent = static_cast<A>(sizeof(A) == 8 ? scale : scale * std::numbers::log2e);
  if (options.softcap > 0) {
    result.inverse_softcap = static_cast<A>(1 / options.softcap);
    result.capped_exponent = static_cast<A>(2 * scale / options.softcap * std::numbers::log2e);
  }
  return result;
}

Targets make_targets(const void* targets, flowk_dtype dtype, const flowk_cross_entropy_options& options) {
  return {targets, dtype == FLOWK_INT64, options.ignore_index, options.vocab_start, options.vocab_size};
}

RowResults make_results(const RowResults& pointers, const flowk_cross_entropy_options& options) {
  RowResults results = pointers;
  results.label_smoothing = options.label_smoothing;
  results.z_loss = options.z_loss;
  return results;
}

// `needs_all`: the call has more than the loss and lse, or than their gradients.
Logits make_logits(const CrossEntropyRequest& request, bool needs_all) {
  const flowk_cross_entropy_options& options = request.options;
  const int64_t element_bytes = dtype_info(request.dtype).element_bytes;
  Logits logits;
  logits.logits = static_cast<const unsigned char*>(request.logits);
  logits.columns = static_cast<int32_t>(request.columns);
  logits.negates = std::signbit(options.scale);
  logits.scale32 = logit_scale<float>(options);
  logits.scale64 = logit_scale<double>(options);
  logits.form = options.softcap > 0 ? LossForm::capped : needs_all ? LossForm::extended : LossForm::plain;
  const IterationSpace& rows = request.rows;
  logits.rows.rank = rows.rank;
  logits.is_packed = rows.rank == 1 && rows.strides[1][0] == request.columns;
  for (int d = 0; d < rows.rank; ++d) {
    const int from = rows.rank - 1 - d;
    logits.rows.dims[d] = {Divider(static_cast<uint32_t>(rows.extents[from])), rows.strides[1][from] * element_bytes,
                           rows.strides[2][from] * element_bytes};
  }
  return logits;
}

MergePartialsPlan make_merge(const MergePartialsParams& params, const Device& device) {
  MergePartialsPlan plan;
  plan.params = params;
  int32_t& lanes = plan.params.lanes_per_row;
  while (lanes < warp_lanes && lanes < params.num_parts) lanes *= 2;
  plan.launch.num_threads = merge_threads;
  plan.launch.num_blocks = ceil_div(params.num_rows, merge_threads / lanes);
  plan.launch.uses_pdl = device.runs_pdl();
  return plan;
}

}  // namespace

int64_t cross_entropy_workspace_bytes(int64_t num_rows, int64_t columns, flowk_dtype dtype) {
  if (num_rows == 0 || columns == 0) return 0;
  const Cut cut = cut_row(columns, dtype);
  return cut.slices == 1 ? 0 : num_rows * cut.slices * partial_values * value_bytes(dtype);
}

void plan_cross_entropy(const CrossEntropyRequest& request, const Device& device, CrossEntropyPlan* plan) {
  const Cut cut = cut_row(request.columns, request.dtype);
  plan->dtype = request.dtype;
  LossParams& params = plan->params;
  params.targets = make_targets(request.targets, request.targets_dtype, request.options);
  params.slices = Divider(static_cast<uint32_t>(cut.slices));
  params.slice_vectors = static_cast<int32_t>(cut.slice_vectors);
  params.row_vectors = static_cast<int32_t>(cut.row_vectors);
  params.partials = request.workspace;
  params.results = make_results(request.results, request.options);
  const bool needs_weighted = request.results.partials != nullptr || request.results.entropy != nullptr;
  const bool needs_total = request.results.partials != nullptr || request.options.label_smoothing > 0;
  params.logits = make_logits(request, needs_weighted || needs_total);
  params.logits.needs_weighted = needs_weighted;
  params.logits.needs_total = needs_total;
  LaunchConfig& launch = plan->launch;
  params.num_rows = request.num_rows;
  params.threads_per_row = Divider(static_cast<uint32_t>(cut.threads_per_row));
  params.vectors_per_thread = cut.vectors_per_thread;
  const bool is_short = cut.threads_per_row <= warp_lanes;
  params.rows_per_block = is_short ? short_row_threads / cut.threads_per_row : 1;
  launch.num_threads = cut.threads_per_row * params.rows_per_block;
  launch.num_blocks = ceil_div(request.num_rows, params.rows_per_block) * cut.slices;
  if (!is_short) {
    const int32_t num_warps = launch.num_threads / warp_lanes;
    params.skips_ignored = launch.num_blocks > many_slices * device.num_multiprocessors;
    launch.shared_bytes = slice_bytes(params.slice_vectors) +
                          num_warps * (partial_values - 1) * static_cast<int32_t>(value_bytes(request.dtype));
  }
  launch.uses_pdl = device.runs_pdl();
  plan->merge = {};
  if (cut.slices == 1) return;
  plan->merge = make_merge({params.targets, request.workspace, cut.slices * partial_values, partial_values, cut.slices,
                            request.num_rows, 1, params.results},
                           device);
}

void plan_cross_entropy_merge(const CrossEntropyMergeRequest& request, const Device& device, MergePartialsPlan* plan) {
  *plan = make_merge({make_targets(request.targets, request.targets_dtype, request.options), request.partials,
                      partial_values, request.num_rows * partial_values, request.num_shards, request.num_rows, 1,
                      make_results(request.results, request.options)},
                     device);
}

void plan_cross_entropy_backward(const CrossEntropyRequest& request, const Device& device,
                                 CrossEntropyBackwardPlan* plan) {
  plan->dtype = request.dtype;
  LogitsGradientParams& params = plan->params;
  params.targets = make_targets(request.targets, request.targets_dtype, request.options);
  params.lse = request.lse;
  params.entropy = request.entropy;
  params.dloss = request.dloss;
  params.dlse = request.dlse;
  params.dentropy = request.dentropy;
  params.dlogits = static_cast<unsigned char*>(request.dlogits);
  params.scale = request.options.scale;
  params.label_smoothing = request.options.label_smoothing;
  params.z_loss = request.options.z_loss;
  params.logits = make_logits(request, request.dentropy != nullptr);
  // A row may start in the middle of a vector of dlogits, or of a line.
  const int64_t element_bytes = dtype_info(request.dtype).element_bytes;
  const auto vectors_from = [&](int64_t first_bytes) {
    return ceil_div(request.columns * element_bytes + first_bytes - element_bytes, vector_bytes);
  };
  int64_t row_vectors = vectors_from(vector_bytes);
  int32_t row_threads = lanes_of_short_row(row_vectors, gradient_batch);
  if (row_threads >= warp_lanes) {  // lines of dlogits are not divided
    row_vectors = vectors_from(line_bytes);
    row_threads = row_vectors <= warp_lanes * gradient_batch ? warp_lanes : gradient_threads;
  }
  const int64_t chunks = ceil_div(row_vectors, int64_t{row_threads} * gradient_batch);
  params.num_rows = request.num_rows;
  params.threads_per_row = Divider(static_cast<uint32_t>(row_threads));
  params.rows_per_block = row_threads <= warp_lanes ? short_row_threads / row_threads : 1;
  params.chunks = Divider(static_cast<uint32_t>(chunks));
  plan->launch.num_threads = row_threads * params.rows_per_block;
  plan->launch.num_blocks = ceil_div(request.num_rows, params.rows_per_block) * chunks;
  plan->launch.uses_pdl = device.runs_pdl();
}

}  // namespace flowk::cross_entropy
