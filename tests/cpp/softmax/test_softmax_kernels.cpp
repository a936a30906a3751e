// SPDX-License-Identifier: Apache-2.0
// The softmax kernels against float64: the planner's choice and every config that holds a row, in memory that ends with
// the tensors, so that AddressSanitizer finds every access past an end. The executor has no clusters:
// bench/tune_softmax.py and the Python tests run those on a GPU.
#include <cstdio>
#include <set>
#include <utility>
#include <vector>

#include "check.h"
#include "core/device.h"
#include "softmax_case.h"

using namespace flowk::softmax;

namespace {

std::set<std::pair<bool, SoftmaxKernel>> reached;

void check_plan(const SoftmaxCase& row, CaseRun* run, const SoftmaxPlan& plan) {
  run->poison();
  const bool ran = run_softmax(plan, nullptr).ok();
  if (!ran) std::printf("%s\n", flowk::core::last_error_text());
  const bool right = ran && run->is_right();
  CHECK(right);
  if (!right)
    std::printf("  %s: %s, %d of type %d, %lld columns, lead %lld, %d lanes of %d\n", row.why,
                softmax_kernel_name(plan.config.kernel()), static_cast<int>(row.backward), static_cast<int>(row.dtype),
                static_cast<long long>(row.columns), static_cast<long long>(row.lead), plan.params.lanes_per_row,
                plan.launch.num_threads);
  reached.insert({row.backward, plan.config.kernel()});
}

// The planner's choice, and the configs that hold the row with at most 4 times the lanes it needs.
void check_case(const SoftmaxCase& row) {
  CaseRun run(row);
  const SoftmaxRequest request = run.request();
  Device device;
  CHECK(current_device(&device).ok());
  SoftmaxPlan plan;
  plan_softmax(request, device, &plan);
  check_plan(row, &run, plan);
  const auto try_config = [&](SoftmaxMechanism mechanism, int lanes, int threads) {
    SoftmaxPlan forced;
    if (plan_softmax_as(request, device, {mechanism, lanes, threads}, &forced)) check_plan(row, &run, forced);
  };
  const int64_t row_vectors = row.columns * dtype_info(row.dtype).element_bytes / 16 + 1;
  for (const int vectors : {1, 2, 4, 8, 16})
    for (const int lanes : {1, 4, 16, 32, 64, 96})
      if (int64_t{vectors} * lanes <= 4 * row_vectors + 64)
        try_config(RowInRegisters{vectors}, lanes, lanes < 32 ? 64 : lanes);
  for (const int vectors : {4, 8})
    for (const int lanes : {32, 96}) try_config(RowInShared{vectors}, lanes, lanes);
  for (const int lanes : {1, 2, 4, 8, 16})
    for (const int rows : {1, 3}) try_config(StagedRows{rows}, lanes, 64);
  for (const int lanes : {1, 2, 4, 8})
    for (const int rows : {2, 4}) try_config(RowsByVectors{rows}, lanes, 64);
  for (const int lanes : {1, 2, 4, 8, 16, 32})
    for (const int vectors : {1, 2, 3, 4}) try_config(RowsInLanes{vectors}, lanes, 64);
  for (const int lanes : {32, 64})
    for (const int slices : {1, 4}) try_config(SplitRow{slices, 5}, lanes, lanes);
  try_config(PersistentRows{3}, persistent_threads, persistent_threads);
  for (const int lanes : {2, 32, 64}) try_config(TwoPassRow{}, lanes, lanes < 32 ? 32 : lanes);
}

const flowk_dtype dtypes[] = {FLOWK_FLOAT16, FLOWK_BFLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64};

TEST(every_config_is_right_at_every_edge_of_a_row) {
  for (const flowk_dtype dtype : dtypes)
    for (const int64_t columns : {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,  16, 17,
                                  18, 19, 20, 21, 24, 29, 33, 39, 50, 64, 77, 100, 129, 255, 256, 500})
      for (const bool backward : {false, true})
        check_case({.why = "no mask", .dtype = dtype, .columns = columns, .heads = 1, .backward = backward});
}

TEST(masks_work_alone_and_together) {
  for (const flowk_dtype dtype : dtypes)
    for (const int64_t columns : {2, 5, 9, 19, 24, 33, 38, 77, 100, 256, 301}) {
      check_case({.why = "dense", .dtype = dtype, .columns = columns, .dense = true, .scale = 0.5});
      check_case({.why = "lengths", .dtype = dtype, .columns = columns, .lengths = 4, .scale = -1.5});
      check_case({.why = "right", .dtype = dtype, .columns = columns, .lengths = 8, .log_softmax = true});
      check_case({.why = "causal", .dtype = dtype, .columns = columns, .rows = 9, .causal = true});
      check_case({.why = "window", .dtype = dtype, .columns = columns, .rows = 9, .causal = true, .window = 4});
      check_case({.why = "bias", .dtype = dtype, .columns = columns, .bias = true, .scale = -2});
      check_case({.why = "all",
                  .dtype = dtype,
                  .columns = columns,
                  .dense = true,
                  .lengths = 4,
                  .causal = true,
                  .window = 20,
                  .bias = true,
                  .log_softmax = true});
      check_case({.why = "backward of lengths",
                  .dtype = dtype,
                  .columns = columns,
                  .lengths = 8,
                  .scale = 0.5,
                  .backward = true});
      check_case({.why = "backward of a log",
                  .dtype = dtype,
                  .columns = columns,
                  .causal = true,
                  .log_softmax = true,
                  .backward = true});
    }
}

TEST(misaligned_tensors_and_other_types_are_right) {
  for (const flowk_dtype dtype : dtypes)
    for (const int64_t lead : {1, 3, 4}) {
      check_case({.why = "lead", .dtype = dtype, .columns = 77, .dense = true, .lead = lead});
      check_case({.why = "lead", .dtype = dtype, .columns = 256, .lengths = 4, .lead = lead});
      check_case({.why = "lead", .dtype = dtype, .columns = 37, .lead = lead, .backward = true});
    }
  for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_BFLOAT16}) {
    check_case({.why = "float32 to 16 bits", .columns = 200, .dense = true, .out_dtype = dtype});
    check_case({.why = "float32 to 16 bits", .columns = 33, .out_dtype = dtype});
    check_case({.why = "float32 to 16 bits", .columns = 200, .bias = true, .out_dtype = dtype});
    check_case({.why = "float32 to 16 bits", .columns = 301, .lengths = 4, .out_dtype = dtype});
    check_case({.why = "16 bits to float32", .dtype = dtype, .columns = 72, .out_dtype = FLOWK_FLOAT32});
    check_case({.why = "gradient of 16-bit probabilities",
                .dtype = dtype,
                .columns = 72,
                .out_dtype = FLOWK_FLOAT32,
                .backward = true});
  }
}

TEST(long_rows_are_right) {
  for (const int64_t columns : {4099, 16384, 70000}) {
    check_case({.why = "long", .dtype = FLOWK_FLOAT16, .columns = columns, .batch = 1, .heads = 1, .rows = 1});
    check_case({.why = "long", .columns = columns, .batch = 1, .heads = 1, .rows = 1, .dense = true, .lead = 1});
    check_case({.why = "long", .columns = columns, .batch = 1, .heads = 1, .rows = 1, .backward = true});
  }
}

// persistent_rows reads a part of these rows twice.
TEST(rows_too_long_for_shared_memory_are_right) {
  for (const bool log : {false, true}) {
    check_case({.why = "too long", .columns = 60001, .batch = 1, .heads = 1, .rows = 5, .log_softmax = log, .lead = 3});
    check_case({.why = "too long", .dtype = FLOWK_BFLOAT16, .columns = 130000, .batch = 1, .heads = 1, .rows = 4});
    check_case(
        {.why = "too long", .columns = 37001, .batch = 1, .heads = 1, .rows = 7, .log_softmax = log, .backward = true});
  }
}

TEST(nan_and_infinities_reach_their_rows_alone) {
  for (const flowk_dtype dtype : dtypes)
    for (const int64_t columns : {9, 64, 77, 500})
      check_case({.why = "special", .dtype = dtype, .columns = columns, .special = true});
  // Some threads have only -infinity, others a NaN.
  for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32})
    for (const int64_t columns : {20000, 60001})
      check_case(
          {.why = "special", .dtype = dtype, .columns = columns, .batch = 1, .heads = 1, .rows = 5, .special = true});
}

// A mask that is broadcast over heads and larger than a band is read in bands, of which the last is partial.
TEST(bands_that_do_not_divide_the_rows_are_right) {
  check_case(
      {.why = "bands", .dtype = FLOWK_FLOAT16, .columns = 4096, .batch = 1, .heads = 2, .rows = 257, .dense = true});
}

TEST(every_kernel_is_reached) {
  reached.clear();
  for (const bool backward : {false, true})
    for (const int64_t columns : {5, 16, 24, 77, 256})
      for (const int lengths : {0, 4})
        check_case(
            {.why = "reach", .columns = columns, .heads = 1, .rows = 9, .lengths = lengths, .backward = backward});
  for (const SoftmaxKernel kernel :
       {SoftmaxKernel::row_in_registers, SoftmaxKernel::row_in_shared, SoftmaxKernel::staged_rows,
        SoftmaxKernel::rows_by_vectors, SoftmaxKernel::rows_in_lanes, SoftmaxKernel::two_pass_row,
        SoftmaxKernel::split_row, SoftmaxKernel::persistent_rows})
    for (const bool backward : {false, true})
      if (reached.contains({backward, kernel}) == (backward && kernel == SoftmaxKernel::rows_in_lanes)) {
        CHECK(!"reached");
        std::printf("  %s\n", softmax_kernel_name(kernel));
      }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
