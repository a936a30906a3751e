// SPDX-License-Identifier: Apache-2.0
// The plans of cross-entropy: every column is in one slice and one chunk, and the cut knows nothing of the rows.
#include <algorithm>
#include <cstring>

#include "check.h"
#include "cross_entropy_case.h"

namespace {

using namespace flowk::cross_entropy;

const Device h200 = {90, 132, 233472, 232448};

TEST(slices_and_chunks_have_all_columns) {
  for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64})
    for (int64_t columns = 1; columns < 600000; columns += 1 + columns / 7) {
      CrossEntropyRequest request = request_of({"", dtype, 3, columns});
      CrossEntropyPlan plan;
      plan_cross_entropy(request, h200, &plan);
      const LossParams& params = plan.params;
      const int64_t slices = params.slices.divisor, vectors = params.slice_vectors,
                    width = dtype == FLOWK_FLOAT16   ? 8
                            : dtype == FLOWK_FLOAT32 ? 4
                                                     : 2;
      CHECK(params.row_vectors == (columns + width - 1) / width);
      CHECK(slices * vectors >= params.row_vectors && (slices - 1) * vectors < params.row_vectors);
      CHECK(plan.launch.num_threads / params.rows_per_block == static_cast<int32_t>(params.threads_per_row.divisor));
      CHECK(int64_t{params.threads_per_row.divisor} * params.vectors_per_thread == vectors);
      CHECK(params.vectors_per_thread <= short_batch || params.vectors_per_thread == slice_batch);
      CHECK(32 % params.threads_per_row.divisor == 0 || params.threads_per_row.divisor % 32 == 0);
      CHECK(plan.launch.num_threads <= max_slice_threads);
      CHECK(params.rows_per_block == 1 || slices == 1);
      CHECK((slices > 1) == (plan.merge.launch.num_blocks > 0));
      CHECK((slices > 1) == (cross_entropy_workspace_bytes(3, columns, dtype) > 0));
      CrossEntropyBackwardPlan backward;
      plan_cross_entropy_backward(request, h200, &backward);
      const int64_t row_threads = backward.launch.num_threads / backward.params.rows_per_block;
      const int64_t first_bytes = row_threads < 32 ? 16 : 128;
      CHECK(row_threads == backward.params.threads_per_row.divisor && backward.launch.num_threads <= short_row_threads);
      CHECK(backward.params.chunks.divisor * row_threads * gradient_batch * width >=
            columns + first_bytes / (16 / width) - 1);
      CHECK(backward.params.rows_per_block == 1 || backward.params.chunks.divisor == 1);
    }
}

TEST(the_cut_depends_on_columns_and_type_alone) {
  for (const CrossEntropyCase& one : cases) {
    CrossEntropyPlan plan, other;
    plan_cross_entropy(request_of(one), h200, &plan);
    CrossEntropyCase many = one;
    many.rows = 100000;
    many.padding = 5;
    plan_cross_entropy(request_of(many), {}, &other);
    CHECK(plan.params.slices == other.params.slices && plan.params.slice_vectors == other.params.slice_vectors);
    CHECK(plan.launch.num_threads == other.launch.num_threads);
    CHECK(plan.merge.params.lanes_per_row == other.merge.params.lanes_per_row);
  }
}

TEST(a_workspace_is_small) {
  for (const int64_t columns : {32000, 50257, 128256, 256001})
    for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64}) {
      const int64_t element_bytes = dtype == FLOWK_FLOAT16 ? 2 : dtype == FLOWK_FLOAT32 ? 4 : 8;
      CHECK(cross_entropy_workspace_bytes(1000, columns, dtype) <= 1000 * columns * element_bytes / 200);
    }
  CHECK(cross_entropy_workspace_bytes(0, 50257, FLOWK_FLOAT16) == 0);
}

TEST(forms) {
  CrossEntropyRequest request = request_of({"", FLOWK_FLOAT16, 3, 50257});
  CrossEntropyPlan plan;
  const auto form = [&] {
    plan_cross_entropy(request, h200, &plan);
    return plan.params.logits.form;
  };
  request.options.scale = -0.5;
  request.options.z_loss = 1;
  CHECK(form() == LossForm::plain && plan.params.logits.negates);
  float entropy[3];
  request.results.entropy = entropy;
  CHECK(form() == LossForm::extended && plan.params.logits.needs_weighted && !plan.params.logits.needs_total);
  request.options.label_smoothing = 0.1;
  CHECK(form() == LossForm::extended && plan.params.logits.needs_weighted && plan.params.logits.needs_total);
  request.results.entropy = nullptr;
  CHECK(form() == LossForm::extended && !plan.params.logits.needs_weighted && plan.params.logits.needs_total);
  request.options.softcap = 30;
  CHECK(form() == LossForm::capped);
  char text[512];
  explain_cross_entropy(plan, text, sizeof text);
  CHECK(std::strstr(text, "loss_slices: 7 slices per row") != nullptr && std::strstr(text, "softcap") != nullptr);
  plan_cross_entropy(request_of({"", FLOWK_FLOAT32, 3, 1000}), h200, &plan);
  explain_cross_entropy(plan, text, sizeof text);
  CHECK(std::strstr(text, "loss_rows: 1 row per warp, of 250 vectors") != nullptr);
}

TEST(only_many_rows_wait_for_their_targets) {
  CrossEntropyPlan plan;
  plan_cross_entropy(request_of({"", FLOWK_FLOAT16, 16, 50257}), h200, &plan);
  CHECK(!plan.params.skips_ignored);
  plan_cross_entropy(request_of({"", FLOWK_FLOAT16, 4096, 50257}), h200, &plan);
  CHECK(plan.params.skips_ignored);
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
