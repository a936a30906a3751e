// SPDX-License-Identifier: Apache-2.0
// The plans of cross-entropy in words.
#include "core/text_writer.h"
#include "cross_entropy/cross_entropy.h"

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
  out.add("loss_slices: %u slice%s per row, of %d of its %d vectors of 16 bytes%s\n", plan.params.slices.divisor,
          plural(plan.params.slices.divisor), plan.params.slice_vectors, plan.params.row_vectors,
          text_of(plan.params.logits.form, forms));
  add_launch(plan.launch, &out);
  if (plan.merge.launch.num_blocks > 0) add_merge(plan.merge, &out);
}

void explain_cross_entropy_merge(const MergePartialsPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  add_merge(plan, &out);
}

void explain_cross_entropy_backward(const CrossEntropyBackwardPlan& plan, char* text, size_t text_bytes) {
  TextWriter out = {text, text_bytes};
  out.add("logits_gradient: %u block%s per row, up to %d vectors of 16 bytes per thread%s\n",
          plan.params.chunks.divisor, plural(plan.params.chunks.divisor), gradient_batch,
          text_of(plan.params.logits.form, forms));
  add_launch(plan.launch, &out);
}

}  // namespace flowk::cross_entropy
