// SPDX-License-Identifier: Apache-2.0
// The softmax kernels against float64: the planner's choice and every config that holds a row, in memory that ends with
// the tensors, so that AddressSanitizer finds every access past an end. The executor's device has clusters and bulk
// copies, or has not. bench/tune_softmax.py and the Python tests run longer rows on a GPU.
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "check.h"
#include "core/device.h"
#include "softmax_case.h"
#include "thread_order.h"

using namespace flowk::softmax;

namespace {

std::set<std::pair<bool, SoftmaxKernel>> reached, reached_by_clusters;

Device executor_device(const char* capability) {
  setenv("FLOWK_SIMT_CAPABILITY", capability, 1);
  Device device;
  CHECK(current_device(&device).ok());
  return device;
}

void check_plan(const SoftmaxCase& row, CaseRun* run, const SoftmaxPlan& plan) {
  run->poison();
  draw_thread_order();
  const bool ran = run_softmax(plan, nullptr).ok();
  if (!ran) std::printf("%s\n", flowk::core::last_error_text());
  const bool right = ran && run->is_right();
  CHECK(right);
  if (!right)
    std::printf("  %s: %s, %d of type %d, %lld columns, lead %lld, %d lanes of %d, %d blocks\n", row.why,
                softmax_kernel_name(plan.config.kernel()), static_cast<int>(row.backward), static_cast<int>(row.dtype),
                static_cast<long long>(row.columns), static_cast<long long>(row.lead), plan.params.lanes_per_row,
                plan.launch.num_threads, plan.launch.cluster_blocks);
  (plan.launch.cluster_blocks > 1 ? reached_by_clusters : reached).insert({row.backward, plan.config.kernel()});
}

// With the features of sm_90: the planner's choice if it uses them, and for every_config each mechanism in clusters.
void check_on_sm_90(const SoftmaxCase& row, CaseRun* run) {
  const SoftmaxRequest request = run->request();
  const Device device = executor_device("90");
  SoftmaxPlan plan;
  plan_softmax(request, device, &plan);
  const SoftmaxKernel kernel = plan.config.kernel();
  if (plan.launch.cluster_blocks > 1 || kernel == SoftmaxKernel::staged_rows || kernel == SoftmaxKernel::framed_rows)
    check_plan(row, run, plan);
  if (!row.every_config) return;
  const auto try_config = [&](SoftmaxMechanism mechanism, int threads, int blocks) {
    if (plan_softmax_as(request, device, {mechanism, threads, threads, blocks}, &plan)) check_plan(row, run, plan);
  };
  const int blocks = row.columns < 1000 ? 2 : 8;
  for (const int vectors : {2, 8}) try_config(RowInRegisters{vectors}, 32, blocks);
  try_config(RowInShared{}, 32, blocks);
  try_config(TwoPassRow{}, 32, blocks);
  try_config(StagedRows{.rows_per_thread = 3}, 64, 1);
  if (row.columns >= 1000) try_config(PersistentRows{3}, persistent_threads, row.columns < 20000 ? 2 : 8);
  const auto try_strided = [&](StridedRows mechanism, int lanes, int threads, int cluster_blocks) {
    mechanism.row_width = dtype_info(row.dtype).element_bytes == 2 ? 2 : 1;
    if (plan_softmax_as(request, device, {mechanism, lanes, threads, cluster_blocks}, &plan))
      check_plan(row, run, plan);
  };
  for (const int cluster_blocks : {1, 2, 4, 8})
    for (const int lanes : {1, 2}) {
      try_strided({}, lanes, 32, cluster_blocks);
      for (const int threads : {32, 256}) try_strided({.images = 1}, lanes, threads, cluster_blocks);
    }
}

// The planner's choice, and for every_config the configs that hold the row with at most 4 times the lanes it needs.
void check_case(const SoftmaxCase& row) {
  CaseRun run(row);
  const SoftmaxRequest request = run.request();
  check_on_sm_90(row, &run);
  const Device device = executor_device("0");
  SoftmaxPlan plan;
  plan_softmax(request, device, &plan);
  check_plan(row, &run, plan);
  if (!row.every_config) return;
  const auto try_config = [&](SoftmaxMechanism mechanism, int lanes, int threads) {
    SoftmaxPlan forced;
    if (plan_softmax_as(request, device, {mechanism, lanes, threads}, &forced)) check_plan(row, &run, forced);
  };
  const int64_t row_vectors = row.columns * dtype_info(row.dtype).element_bytes / 16 + 1;
  for (const int vectors : {1, 2, 4, 8, 16})
    for (const int lanes : {1, 4, 16, 32, 64, 96})
      if (int64_t{vectors} * lanes <= 4 * row_vectors + 64)
        try_config(RowInRegisters{vectors}, lanes, lanes < 32 ? 64 : lanes);
  for (const int lanes : {32, 96}) try_config(RowInShared{}, lanes, lanes);
  for (const int lanes : {1, 2, 4, 8, 16, 32})
    for (const int rows : {1, 3}) try_config(StagedRows{.rows_per_thread = rows}, lanes, 64);
  for (const int lanes : {64, 96, 128, 256}) try_config(StagedRows{}, lanes, lanes);
  for (const int lanes : {1, 2, 4, 8, 16, 32, 64, 96}) try_config(FramedRows{}, lanes, lanes < 32 ? 64 : lanes);
  for (const int lanes : {1, 2, 4, 8})
    for (const int rows : {2, 4}) try_config(RowsByVectors{rows}, lanes, 64);
  for (const int lanes : {1, 2, 4, 8, 16, 32})
    for (const int vectors : {1, 2, 3, 4}) try_config(RowsInLanes{vectors}, lanes, 64);
  for (const int lanes : {32, 64})
    for (const int slices : {1, 4}) try_config(SplitRow{slices, 5}, lanes, lanes);
  try_config(PersistentRows{3}, persistent_threads, persistent_threads);
  for (const int lanes : {1, 2, 8, 32, 128})
    for (const int width : {1, 2, 4, 8}) try_config(StridedRows{.row_width = width}, lanes, std::max(4 * lanes, 32));
  for (const int images : {1, 2})
    for (const int lanes : {1, 3, 8})
      for (const int threads : {32, 256})
        try_config(StridedRows{.row_width = dtype_info(row.dtype).element_bytes == 2 ? 2 : 1, .images = images}, lanes,
                   threads);
  for (const int lanes : {2, 32, 64}) try_config(TwoPassRow{}, lanes, lanes < 32 ? 32 : lanes);
}

void check_rows(flowk_dtype dtype) {
  for (const SoftmaxRow& row : softmax_rows)
    for (const SoftmaxCase& of_row : cases_of(row))
      if (of_row.dtype == dtype && !row.gpu) check_case(of_row);
}

TEST(float16_is_right_and_reaches_rows_by_vectors) {
  reached.clear();
  check_rows(FLOWK_FLOAT16);
  for (const bool backward : {false, true}) CHECK(reached.contains({backward, SoftmaxKernel::rows_by_vectors}));
}

TEST(bfloat16_is_right) { check_rows(FLOWK_BFLOAT16); }

TEST(float64_is_right) { check_rows(FLOWK_FLOAT64); }

TEST(float32_is_right_and_reaches_every_kernel) {
  reached.clear();
  reached_by_clusters.clear();
  check_rows(FLOWK_FLOAT32);
  for (const SoftmaxKernel kernel :
       {SoftmaxKernel::row_in_registers, SoftmaxKernel::row_in_shared, SoftmaxKernel::staged_rows,
        SoftmaxKernel::rows_by_vectors, SoftmaxKernel::rows_in_lanes, SoftmaxKernel::two_pass_row,
        SoftmaxKernel::split_row, SoftmaxKernel::persistent_rows, SoftmaxKernel::framed_rows,
        SoftmaxKernel::strided_rows})
    for (const bool backward : {false, true})
      if (reached.contains({backward, kernel}) ==
          (kernel == (backward ? SoftmaxKernel::rows_in_lanes : SoftmaxKernel::rows_by_vectors))) {
        CHECK(!"reached");
        std::printf("  %s\n", softmax_kernel_name(kernel));
      }
  for (const SoftmaxKernel kernel :
       {SoftmaxKernel::row_in_registers, SoftmaxKernel::row_in_shared, SoftmaxKernel::two_pass_row,
        SoftmaxKernel::persistent_rows, SoftmaxKernel::strided_rows})
    for (const bool backward : {false, true}) CHECK(reached_by_clusters.contains({backward, kernel}));
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
