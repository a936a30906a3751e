// SPDX-License-Identifier: Apache-2.0
// The plans of rows that a block or more take.
#include "check.h"
#include "softmax_plans.h"

namespace {

TEST(clusters_are_for_devices_that_have_them) {
  for (const int64_t columns : {16384, 65536, 131072, 1 << 20}) {
    CHECK(plan_of(request_of(FLOWK_FLOAT16, 1000, columns), a100).launch.cluster_blocks == 1);
    Device executor = h200;
    executor.capability = 0;
    CHECK(plan_of(request_of(FLOWK_FLOAT16, 1000, columns), executor).launch.cluster_blocks == 1);
  }
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1000, 65536), h200).launch.cluster_blocks > 1);
  Device sm120 = h200;
  sm120.capability = 120;
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1000, 262144), sm120).launch.cluster_blocks == 8);
}

// One row of 32768 columns is 64 KB: one block would leave 131 multiprocessors idle.
TEST(a_few_long_rows_have_more_blocks) {
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1, 32768), h200).launch.cluster_blocks == 16);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 100, 16384), h200).launch.cluster_blocks == 2);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 100000, 8192), h200).launch.cluster_blocks == 1);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1, 128), h200).launch.cluster_blocks == 1);
}

// Each block of a cluster has a part of the row that its threads can hold.
TEST(parts_of_rows_fit_their_blocks) {
  for (const int64_t columns : {1000, 2048, 3072, 12288, 40960, 41432, 98304, 151936})
    for (const bool dense : {false, true}) {
      const SoftmaxPlan plan = plan_of(request_of(FLOWK_FLOAT16, 1000, columns, dense), h200);
      CHECK(plan.config.kernel() == SoftmaxKernel::row_in_registers);
      const RowInRegisters& registers = plan.config.as<RowInRegisters>();
      const int held = plan.params.lanes_per_row * registers.vectors_per_thread;
      CHECK(registers.row_vectors == columns / 8 && registers.block_vectors <= held);
      CHECK(registers.block_vectors * plan.launch.cluster_blocks >= registers.row_vectors);
      CHECK((registers.form == SoftmaxForm::whole) == (held * plan.launch.cluster_blocks == columns / 8));
    }
}

// 16 vectors per thread where 128 or 160 threads then hold a block's part, and 8 would leave threads without one.
TEST(long_float32_rows_with_a_dense_mask_fill_the_registers) {
  for (const int64_t columns : {12672, 33280, 56000, 66000, 100000, 128256}) {
    const SoftmaxPlan plan = plan_of(request_of(FLOWK_FLOAT32, 300, columns, true), h200);
    CHECK(plan.config.as<RowInRegisters>().vectors_per_thread == 16);
    CHECK(plan.launch.num_threads == 128 || plan.launch.num_threads == 160);
  }
  for (const int64_t columns : {24576, 40960, 83456, 98304, 100001})
    CHECK(plan_of(request_of(FLOWK_FLOAT32, 300, columns, true), h200).config.as<RowInRegisters>().vectors_per_thread ==
          8);
}

// 5178 vectors: 8 blocks would have 3 warps each. 43 vectors: 16 lanes have up to 3 of them, 32 lanes up to 2.
TEST(rows_of_any_length_leave_few_lanes_without_a_vector) {
  const SoftmaxPlan long_row = plan_of(request_of(FLOWK_FLOAT16, 3000, 41429), h200);
  CHECK(long_row.launch.cluster_blocks == 4 && long_row.params.lanes_per_row == 192);
  const SoftmaxPlan gradient = plan_of(request_of(FLOWK_FLOAT16, 1 << 17, 344, false, true), h200);
  CHECK(gradient.params.lanes_per_row == 16 && gradient.config.as<RowInRegisters>().vectors_per_thread == 4);
}

// One row of 2 MB; many rows that are too long for a cluster: 16 MB of them per launch, or one; none where out is x.
TEST(long_rows_are_split_unless_they_are_written_over_x) {
  SoftmaxRequest request = request_of(FLOWK_FLOAT16, 1, 1 << 20);
  const SoftmaxPlan one = plan_of(request, h200);
  CHECK(one.config.kernel() == SoftmaxKernel::split_row && one.launch.num_blocks == 1 << one.params.row_blocks_shift);
  CHECK(one.launch.num_blocks >= h200.num_multiprocessors && one.launch.cluster_blocks == 1);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 100, 1 << 20, true), h200).config.kernel() == SoftmaxKernel::row_in_shared);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 100, 1 << 22), h200).config.as<SplitRow>().rows_per_launch == 2);
  CHECK(plan_of(request_of(FLOWK_FLOAT32, 100, 1 << 24), h200).config.as<SplitRow>().rows_per_launch == 1);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1, 32768), h200).config.kernel() != SoftmaxKernel::split_row);
  request.pointers[softmax_out] = request.pointers[softmax_x];
  CHECK(plan_of(request, h200).config.kernel() != SoftmaxKernel::split_row);
}

// More rows than clusters. Shared memory keeps most of a row that it cannot hold.
TEST(many_long_rows_have_persistent_clusters) {
  const SoftmaxPlan plan = plan_of(request_of(FLOWK_FLOAT32, 100, 1 << 18), h200);
  CHECK(plan.config.kernel() == SoftmaxKernel::persistent_rows && plan.launch.cluster_blocks == 8);
  CHECK(plan.launch.num_blocks == h200.num_multiprocessors / 8 * 8);
  const PersistentRows& ring = plan.config.as<PersistentRows>();
  CHECK(ring.held_batches == ring.row_batches && ring.ring_batches > ring.row_batches);
  const SoftmaxPlan longer = plan_of(request_of(FLOWK_FLOAT32, 100, 1 << 20), h200);
  CHECK(longer.config.kernel() == SoftmaxKernel::persistent_rows);
  const PersistentRows& longer_ring = longer.config.as<PersistentRows>();
  CHECK(longer_ring.held_batches < longer_ring.row_batches);
  CHECK(longer_ring.held_batches < longer_ring.ring_batches);
  for (const int rows : {15, 20})
    CHECK(plan_of(request_of(FLOWK_FLOAT32, rows, 1 << 18), h200).config.kernel() != SoftmaxKernel::persistent_rows);
  CHECK(plan_of(request_of(FLOWK_FLOAT32, 30, 1 << 18), h200).config.kernel() == SoftmaxKernel::persistent_rows);
  CHECK(plan_of(request_of(FLOWK_FLOAT32, 100, 1 << 18), a100).config.kernel() != SoftmaxKernel::persistent_rows);
  CHECK(plan_of(request_of(FLOWK_FLOAT32, 100, 1 << 18, true), h200).config.kernel() != SoftmaxKernel::persistent_rows);
}

TEST(blocks_beyond_the_limit_have_no_shared_memory) {
  const SoftmaxPlan plan = plan_of(request_of(FLOWK_FLOAT32, 100000, 8192), h200);
  CHECK(plan.config.resident_blocks == 3);
  constexpr int system_bytes = 1024;
  const int block_bytes = plan.launch.shared_bytes + system_bytes, all_bytes = h200.shared_bytes_per_multiprocessor;
  CHECK(3 * block_bytes <= all_bytes && 4 * block_bytes > all_bytes);
  // All blocks of few rows are resident anyway.
  CHECK(plan_of(request_of(FLOWK_FLOAT32, 100, 8192), h200).config.resident_blocks == 0);
}

TEST(rows_past_2_to_the_31_are_counted_in_64_bits) {
  const SoftmaxPlan plan = plan_of(request_of(FLOWK_FLOAT16, int64_t{5} << 30, 16), h200);
  CHECK(plan.params.rows.is_wide && plan.params.rows.num_rows == int64_t{5} << 30);
  CHECK(plan.launch.num_blocks <= max_grid_blocks);
  CHECK(!plan_of(request_of(FLOWK_FLOAT16, (int64_t{1} << 31) - 1, 16), h200).params.rows.is_wide);
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
