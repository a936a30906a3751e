// SPDX-License-Identifier: Apache-2.0
// The plans of cross-entropy in words.
#include "core/text_writer.h"
#include "cross_entropy/cross_entropy.h"
#include "flowk/detail/sizes.h"

namespace flowk::cross_entropy {
namespace {

using Long = long long;

// In the order of the enumerators.
constexpr const char* forms[] = {"", ", extended form (label smoothing, partials or entropy)", ", with a softcap"};

void add_launch(const LaunchConfig& launch, TextWriter* out) {
  out->add_launch(launch.num_blocks, launch.num_threads, launch.shared_bytes);
  out->add("%s\n", launch.uses_pdl ? ", PDL" : "");
}

void add_merge(const MergePartialsPlan& plan, TextWriter* out) {
  out->add("merge_partials: %d lanes merge the %lld partial results of a row\n", plan.params.lanes_per_row,
           static_cast<Long>(plan.params.num_parts));
  add_launch(plan.launch, out);
}

}  // namespace

void explain_cross_entropy(const CrossEntropyPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  const LossParams& params = plan.params;
  const char* const form = text_of(params.logits.form, forms);
  const int row_threads = static_cast<int>(params.threads_per_row.divisor);
  if (params.rows_per_block > 1)
    out.add("loss_rows: %d row%s per warp, of %d vectors of 16 bytes%s\n", warp_lanes / row_threads,
            plural(warp_lanes / row_threads), params.row_vectors, form);
  else
    out.add("loss_slices: %u slice%s per row, of %d of its %d vectors of 16 bytes%s\n", params.slices.divisor,
            plural(params.slices.divisor), params.slice_vectors, params.row_vectors, form);
  add_launch(plan.launch, &out);
  if (plan.merge.launch.num_blocks > 0) add_merge(plan.merge, &out);
}

void explain_cross_entropy_merge(const MergePartialsPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  add_merge(plan, &out);
}

void explain_cross_entropy_backward(const CrossEntropyBackwardPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  const LogitsGradientParams& params = plan.params;
  if (params.rows_per_block > 1)
    out.add("logits_gradient: %d rows per block", params.rows_per_block);
  else
    out.add("logits_gradient: %u block%s per row", params.chunks.divisor, plural(params.chunks.divisor));
  out.add(", up to %d vectors of 16 bytes per thread%s\n", gradient_batch, text_of(params.logits.form, forms));
  add_launch(plan.launch, &out);
}

}  // namespace flowk::cross_entropy
