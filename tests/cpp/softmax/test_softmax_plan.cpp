// SPDX-License-Identifier: Apache-2.0
// What plans of softmax promise.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "check.h"
#include "softmax_plans.h"

namespace {

// Asking for the config of a plan gives the same plan.
TEST(every_plan_has_a_config_that_fits) {
  for (const Device& device : {h200, a100})
    for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64})
      for (const int64_t columns : {1,    7,     8,     31,    32,    77,     128,    344,    1000,   1001,   3072,
                                    4096, 14852, 16384, 41429, 50257, 131072, 151936, 176064, 262144, 1 << 20})
        for (const int64_t rows : {1, 100, 100000})
          for (const bool dense : {false, true})
            for (const bool backward : {false, true}) {
              if (dense && backward) continue;
              const SoftmaxRequest request = request_of(dtype, rows, columns, dense, backward);
              const SoftmaxPlan plan = plan_of(request, device);
              SoftmaxPlan again;
              CHECK(plan_softmax_as(request, device, plan.config, &again));
              CHECK(plan == again);
              const SoftmaxKernel kernel = plan.config.kernel();
              if (kernel != SoftmaxKernel::split_row && kernel != SoftmaxKernel::persistent_rows)
                CHECK(plan.launch.num_blocks * plan.params.rows_per_block >= rows * plan.launch.cluster_blocks);
              CHECK(plan.launch.shared_bytes <= device.shared_bytes_per_block);
              CHECK(plan.launch.num_threads % 32 == 0 && plan.launch.num_threads <= 1024);
            }
}

// Each row of the table of kernels is the first that takes its own types, masks and numbers of vectors.
TEST(no_kernel_of_the_table_hides_another) {
  for (int i = 0; i < num_softmax_kernels; ++i) {
    const SoftmaxKernelRow& row = softmax_kernels[i];
    for (const int element_bytes : {2, 4, 8})
      for (const SoftmaxMask mask : {SoftmaxMask::none, SoftmaxMask::dense, SoftmaxMask::bias})
        if (takes(row, element_bytes, mask))
          CHECK(find_kernel({.mechanism = row.mechanism,
                             .backward = row.backward,
                             .element_bytes = element_bytes,
                             .mask = mask,
                             .vectors = row.max_vectors,
                             .form = row.form,
                             .converts = row.converts,
                             .unit_columns = row.unit_columns,
                             .row_values = row.row_values,
                             .row_scale = row.row_scale,
                             .score_terms = row.score_terms,
                             .bias_alone = row.bias_alone,
                             .unaligned = row.unaligned,
                             .whole_block = row.whole_block}) == i);
  }
}

// The threads of a row, what each of them takes, and the order of their sums.
TEST(a_batch_invariant_plan_depends_on_columns_types_and_masks_alone) {
  const auto order_of = [](const SoftmaxPlan& plan) {
    const SoftmaxConfig& config = plan.config;
    const auto* const in_registers = std::get_if<RowInRegisters>(&config.mechanism);
    return std::vector<int64_t>{static_cast<int64_t>(config.kernel()),
                                config.lanes_per_row,
                                config.cluster_blocks,
                                in_registers == nullptr ? 0 : in_registers->vectors_per_thread,
                                plan.params.starts_on_lines,
                                plan.params.has_tails};
  };
  for (const Device& device : {h200, a100})
    for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_BFLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64})
      for (const int64_t columns : {1,    2,    7,    8,     16,    31,    32,    64,     77,     128,    344,    1000,
                                    1001, 3072, 4096, 14852, 16384, 20000, 41429, 131072, 151937, 200000, 1 << 20})
        for (const bool dense : {false, true})
          for (const auto [backward, scales_rows] :
               {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
            if (dense && backward) continue;
            const auto plan_with = [&, scales_rows](int64_t rows, int64_t lead, int64_t gap) {
              SoftmaxRequest request = request_of(dtype, rows, columns, dense, backward);
              request.batch_invariant = true;
              if (scales_rows) request.numbers[row_scale] = reinterpret_cast<const void*>(uintptr_t{64});
              request.number_strides[row_scale][0] = scales_rows ? 1 : 0;
              const int64_t bytes = dtype_info(dtype).element_bytes;
              request.pointers[softmax_x] = static_cast<const char*>(request.pointers[softmax_x]) + lead * bytes;
              request.pointers[softmax_out] = static_cast<const char*>(request.pointers[softmax_out]) + gap * bytes;
              request.strides[softmax_x][0] += gap * bytes;
              return plan_of(request, device);
            };
            const SoftmaxPlan expected = plan_with(100000, 0, 0);
            for (const int64_t rows : {1, 2, 9, 1000})
              for (const int64_t lead : {0, 1, 8, 13})
                for (const int64_t gap : {0, 1, 8}) CHECK(order_of(plan_with(rows, lead, gap)) == order_of(expected));
          }
}

// Some number of threads holds each short row with a dense mask.
TEST(every_short_row_with_a_dense_mask_is_staged) {
  for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32})
    for (int64_t columns = 1; columns <= 256; ++columns) {
      if (columns * dtype_info(dtype).element_bytes % 16 == 0) continue;
      CHECK(plan_of(request_of(dtype, 1 << 20, columns, true), h200).config.kernel() == SoftmaxKernel::staged_rows);
    }
}

TEST(rows_of_the_table_have_the_mechanism_that_they_name) {
  for (const SoftmaxRow& row : softmax_rows)
    for (const SoftmaxCase& of_row : cases_of(row)) {
      if (row.mechanism[0] == '\0') continue;
      const CaseRun run(of_row);
      const char* mechanism = softmax_kernel_name(plan_of(run.request(), h200).config.kernel());
      const bool is_as_said = std::strcmp(mechanism, row.mechanism) == 0;
      CHECK(is_as_said);
      if (!is_as_said) std::printf("  %s: %s\n", row.why, mechanism);
    }
}

TEST(short_rows_share_warps_and_long_ones_take_blocks) {
  const SoftmaxPlan rows_of_128 = plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 128), h200);
  CHECK(rows_of_128.config.kernel() == SoftmaxKernel::row_in_registers && rows_of_128.params.lanes_per_row == 4);
  CHECK(rows_of_128.params.rows_per_block == 16);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 77), h200).config.kernel() == SoftmaxKernel::staged_rows);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 577), h200).config.kernel() == SoftmaxKernel::staged_rows);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1 << 18, 4099), h200).config.kernel() == SoftmaxKernel::row_in_registers);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1 << 16, 4096), h200).params.rows_per_block == 1);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 100, 1 << 20, true), h200).config.kernel() == SoftmaxKernel::row_in_shared);
  CHECK(plan_of(request_of(FLOWK_FLOAT64, 100, 1 << 20), a100).config.kernel() == SoftmaxKernel::two_pass_row);
}

TEST(a_thread_has_several_rows_of_few_vectors) {
  for (const int64_t columns : {8, 16}) {
    const SoftmaxPlan plan = plan_of(request_of(FLOWK_FLOAT16, 1 << 20, columns), h200);
    CHECK(plan.config.kernel() == SoftmaxKernel::rows_by_vectors && plan.params.lanes_per_row == columns / 8);
    CHECK(plan.launch.num_blocks * plan.launch.num_threads * 4 * 8 == columns << 20);
  }
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 8, true), h200).config.kernel() != SoftmaxKernel::rows_by_vectors);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 24), h200).config.kernel() != SoftmaxKernel::rows_by_vectors);
}

TEST(long_float32_rows_with_a_scale_have_8_vectors_per_thread) {
  const auto vectors_of = [](flowk_dtype dtype, int64_t columns, bool backward = false) {
    SoftmaxRequest request = request_of(dtype, 1 << 14, columns, false, backward);
    request.numbers[row_scale] = reinterpret_cast<const void*>(uintptr_t{64});
    request.number_strides[row_scale][0] = 1;
    return plan_of(request, h200).config.as<RowInRegisters>().vectors_per_thread;
  };
  CHECK(vectors_of(FLOWK_FLOAT32, 4096) == 4 && vectors_of(FLOWK_FLOAT32, 8192) == 8);
  CHECK(vectors_of(FLOWK_FLOAT32, 4099) == 8 && vectors_of(FLOWK_FLOAT32, 100001) == 8);
  CHECK(vectors_of(FLOWK_FLOAT32, 3072, true) == 4 && vectors_of(FLOWK_FLOAT32, 4096, true) == 4);  // gradients
}

// A block of short rows reads at least 2.5 KB of x.
TEST(blocks_of_short_rows_are_not_too_small) {
  for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32})
    for (const int64_t columns : {3, 7, 8, 16, 24, 32, 48, 64, 77, 128, 256, 512}) {
      const SoftmaxPlan plan = plan_of(request_of(dtype, 1 << 20, columns), h200);
      CHECK(plan.params.rows_per_block * columns * dtype_info(dtype).element_bytes >= 4096 * 5 / 8);
      CHECK(plan.launch.num_threads <= 256);
    }
}

// A row of 77 float16 starts at any column of a unit of 4, and lies in 20 units in each case.
TEST(staged_rows_lie_in_units) {
  const SoftmaxPlan odd = plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 77), h200);
  const StagedRows staged = odd.config.as<StagedRows>();
  CHECK(staged.unit_columns == 4 && staged.units_per_thread * odd.config.lanes_per_row == 20);
  CHECK(staged.has_unit_edges);
  const SoftmaxPlan even = plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 100), h200);
  CHECK(even.config.kernel() == SoftmaxKernel::staged_rows && !even.config.as<StagedRows>().has_unit_edges);
  const SoftmaxPlan tiny = plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 7), h200);
  CHECK(tiny.config.as<StagedRows>().unit_columns == 1 && tiny.config.as<StagedRows>().units_per_thread == 7);
  CHECK(tiny.config.lanes_per_row == 1);
  for (int64_t columns = 1; columns <= 256; ++columns)
    for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32}) {
      const SoftmaxPlan plan = plan_of(request_of(dtype, 1 << 20, columns), h200);
      CHECK(columns * dtype_info(dtype).element_bytes % 16 == 0 || plan.config.kernel() == SoftmaxKernel::staged_rows);
    }
}

// Rows of 65 float16 are 2 bytes longer than the 128 bytes of all banks: neighbouring ones start in the same banks. The
// 8 rows of two threads that are read at the same time are therefore 8 rows apart.
TEST(rows_that_are_read_at_the_same_time_lie_in_different_banks) {
  const SoftmaxPlan plan = plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 65), h200);
  const StagedRowOrder order = plan.config.as<StagedRows>().row_order;
  CHECK(plan.config.lanes_per_row == 2 && plan.params.rows_per_block == 64);
  for (int group = 0; group < 8; ++group) CHECK(order.row_of(group) == 8 * group);
  for (const int64_t columns : {63, 65, 77, 96, 127, 129, 160, 193, 257})
    for (const bool dense : {false, true}) {
      const SoftmaxPlan other = plan_of(request_of(FLOWK_FLOAT16, 1 << 20, columns, dense), h200);
      const StagedRowOrder& of_other = other.config.as<StagedRows>().row_order;
      std::vector<bool> has_row(static_cast<size_t>(other.params.rows_per_block));
      for (int group = 0; group < other.params.rows_per_block; ++group)
        has_row.at(static_cast<size_t>(of_other.row_of(group))) = true;
      CHECK(std::find(has_row.begin(), has_row.end(), false) == has_row.end());
    }
}

// Two threads could hold a row of 96 float16. Four do, because every second row of 192 bytes starts in the same bank.
TEST(rows_in_the_same_banks_have_more_threads) {
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 96, true), h200).config.lanes_per_row == 4);
  CHECK(plan_of(request_of(FLOWK_FLOAT16, 1 << 20, 88, true), h200).config.lanes_per_row == 2);
}

// Of causal rows, with the diagonal at their first column.
SoftmaxPlan causal_plan_of(flowk_dtype dtype, int64_t columns, bool backward, int64_t rows = 1 << 16) {
  SoftmaxRequest request = request_of(dtype, rows, columns, false, backward);
  request.has_diagonal = true;
  request.diagonal_begin = -(int64_t{1} << 61);
  request.diagonal_end = 1;
  return plan_of(request, h200);
}

// 257 float16 start anywhere in a vector: at most 33 vectors contain them, which 8 threads do not hold in registers.
TEST(gradients_under_an_interval_lie_in_frames) {
  const auto plan_of_columns = [](flowk_dtype dtype, int64_t columns) { return causal_plan_of(dtype, columns, true); };
  const SoftmaxPlan plan = plan_of_columns(FLOWK_FLOAT16, 257);
  CHECK(plan.config.kernel() == SoftmaxKernel::framed_rows && plan.config.lanes_per_row == 8);
  const FramedRows& framed = plan.config.as<FramedRows>();
  CHECK(framed.second_offset_bytes == 16 * 257 * 2 + sector_bytes);
  CHECK(framed.rows_offset_bytes == 2 * framed.second_offset_bytes);
  const SoftmaxPlan held = plan_of_columns(FLOWK_FLOAT16, 77);
  CHECK(held.config.kernel() == SoftmaxKernel::framed_rows && held.config.lanes_per_row == 4);
  CHECK(held.config.as<FramedRows>().rows_offset_bytes == held.config.as<FramedRows>().second_offset_bytes);
  for (const int64_t columns : {48, 64, 116, 257, 333, 577, 959, 1152})
    CHECK(plan_of_columns(FLOWK_FLOAT32, columns).config.kernel() == SoftmaxKernel::framed_rows);
  for (const int64_t columns : {48, 64, 128, 200, 1023, 1152, 1500, 2145})
    CHECK(plan_of_columns(FLOWK_FLOAT16, columns).config.kernel() == SoftmaxKernel::framed_rows);
  for (const int64_t columns : {512, 1024, 4099})
    CHECK(plan_of_columns(FLOWK_FLOAT16, columns).config.kernel() == SoftmaxKernel::row_in_registers);
  for (const int64_t columns : {512, 1024, 1501})
    CHECK(plan_of_columns(FLOWK_FLOAT32, columns).config.kernel() == SoftmaxKernel::row_in_registers);
}

// 333 float16 are in at most 43 vectors. Short rows of whole vectors that fill their lanes are rows_in_lanes.
TEST(rows_under_an_interval_lie_in_frames) {
  const auto plan_of_columns = [](flowk_dtype dtype, int64_t columns) { return causal_plan_of(dtype, columns, false); };
  const SoftmaxPlan plan = plan_of_columns(FLOWK_FLOAT16, 333);
  CHECK(plan.config.kernel() == SoftmaxKernel::framed_rows && plan.config.lanes_per_row == 8);
  const FramedRows& framed = plan.config.as<FramedRows>();
  CHECK(framed.through_l1 && framed.rows_offset_bytes == 16 * 333 * 2 + sector_bytes);
  CHECK(plan.launch.shared_bytes == framed.rows_offset_bytes + 16 * segment_row_bytes);
  for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32})
    for (const int64_t columns : {56, 72, 78, 100, 160, 197, 257, 577, 1152, 1501, 2048, 2145, 4096})
      CHECK(plan_of_columns(dtype, columns).config.kernel() == SoftmaxKernel::framed_rows);
  CHECK(plan_of_columns(FLOWK_FLOAT16, 77).config.kernel() == SoftmaxKernel::staged_rows);
  for (const int64_t columns : {70, 77, 128, 512})
    CHECK(plan_of_columns(FLOWK_FLOAT32, columns).config.kernel() == SoftmaxKernel::framed_rows);
  CHECK(plan_of_columns(FLOWK_FLOAT16, 8193).config.kernel() == SoftmaxKernel::row_in_registers);
  // Rows that are too few to give every multiprocessor 32 warps.
  CHECK(causal_plan_of(FLOWK_FLOAT16, 1500, false, 3200).config.kernel() == SoftmaxKernel::row_in_registers);
  CHECK(causal_plan_of(FLOWK_FLOAT32, 1500, false, 3200).config.kernel() == SoftmaxKernel::framed_rows);
  CHECK(causal_plan_of(FLOWK_FLOAT16, 333, false, 1024).config.kernel() == SoftmaxKernel::framed_rows);
  CHECK(causal_plan_of(FLOWK_FLOAT32, 128, false, 8192).config.kernel() == SoftmaxKernel::framed_rows);
  CHECK(causal_plan_of(FLOWK_FLOAT32, 128, false, 4096).config.kernel() == SoftmaxKernel::rows_in_lanes);
  for (const int64_t columns : {48, 128, 512})
    CHECK(plan_of_columns(FLOWK_FLOAT16, columns).config.kernel() == SoftmaxKernel::rows_in_lanes);
  for (const int64_t columns : {48, 64})
    CHECK(plan_of_columns(FLOWK_FLOAT32, columns).config.kernel() == SoftmaxKernel::rows_in_lanes);
}

// A form leaves out nothing that the request asks for.
TEST(forms_leave_out_what_is_not_there) {
  const auto form_of = [](const SoftmaxRequest& of) { return plan_of(of, h200).config.as<RowInRegisters>().form; };
  SoftmaxRequest request = request_of(FLOWK_FLOAT16, 1000, 2048);
  CHECK(form_of(request) == SoftmaxForm::whole);
  request = request_of(FLOWK_FLOAT16, 1000, 16384);
  request.has_diagonal = true;
  CHECK(form_of(request) == SoftmaxForm::aligned);
  CHECK(form_of(request_of(FLOWK_FLOAT16, 1000, 1000)) == SoftmaxForm::unfilled);
  CHECK(form_of(request_of(FLOWK_FLOAT16, 1000, 4099)) == SoftmaxForm::any);
  request = request_of(FLOWK_FLOAT16, 1000, 1024, true);
  CHECK(form_of(request) == SoftmaxForm::whole);
  request.pointers[softmax_dense] = static_cast<const unsigned char*>(request.pointers[softmax_dense]) + 4;
  CHECK(form_of(request) == SoftmaxForm::aligned);
  request = request_of(FLOWK_FLOAT16, 1000, 1024);
  request.strides[softmax_x][0] = -2048;
  CHECK(form_of(request) == SoftmaxForm::aligned);
}

// (batch, heads, rows) and a mask that heads share. Order, outermost first: L2 tiles of 1 MB, heads, rows of a tile.
TEST(masks_that_heads_share_are_read_in_l2_tiles) {
  const auto tiled = [](int64_t rows, int64_t columns) {
    SoftmaxRequest request = request_of(FLOWK_FLOAT16, 1, columns, true);
    request.rank = 3;
    const int64_t extents[3] = {2, 16, rows};
    int64_t stride = 2 * columns;
    for (int d = 2; d >= 0; --d) {
      request.extents[d] = extents[d];
      for (auto& strides : request.strides) strides[d] = 0;
      request.strides[softmax_x][d] = request.strides[softmax_out][d] = stride;
      stride *= extents[d];
    }
    request.strides[softmax_dense][0] = rows * columns;
    request.strides[softmax_dense][2] = columns;
    return plan_of(request, h200).params.rows;
  };
  const SoftmaxRows whole = tiled(1024, 1024);
  CHECK(whole.l2_tile_dim == 0 && whole.rank == 3 && whole.num_rows == 2 * 16 * 1024);
  const SoftmaxRows cut = tiled(4096, 4096);
  CHECK(cut.l2_tile_rows == 256 && cut.l2_tile_dim == 2 && cut.rank == 4 && cut.num_rows == 2 * 16 * 4096);
  CHECK(cut.dims[0].extent == 256 && cut.dims[1].extent == 16 && cut.dims[2].extent == 16 && cut.dims[3].extent == 2);
  CHECK(cut.dims[2].strides[softmax_x] == 256 * 2 * 4096 && cut.dims[1].strides[softmax_dense] == 0);
  const SoftmaxRows partial = tiled(1000, 4096);
  CHECK(partial.l2_tile_rows == 250 && partial.num_rows == 2 * 16 * 1000);
  const SoftmaxRows odd = tiled(1009, 4096);
  CHECK(odd.l2_tile_rows * 4 >= 1009 && odd.l2_tile_extent == 1009 && odd.num_rows == 2 * 16 * 4 * odd.l2_tile_rows);
}

// Softmax over the channels of NCHW images, whose planes have `rows` elements.
SoftmaxRequest channels_of(flowk_dtype dtype, int64_t images, int64_t channels, int64_t rows, bool backward) {
  SoftmaxRequest request = request_of(dtype, images, channels, false, backward);
  const int64_t bytes = dtype_info(dtype).element_bytes;
  request.rank = 2;
  request.extents[1] = rows;
  request.has_strided_columns = true;
  for (const SoftmaxOperand operand : {softmax_x, softmax_out, softmax_bias_or_y}) {
    if (request.pointers[operand] == nullptr) continue;
    request.strides[operand][0] = channels * rows * bytes;
    request.strides[operand][1] = bytes;
    request.column_strides[operand] = rows * bytes;
  }
  for (auto& strides : request.strides)
    if (strides[0] == 0) strides[1] = 0;
  return request;
}

// Asking for the config of a plan gives the same plan. The blocks of a cluster have all columns of its rows, and each
// has some.
TEST(clusters_share_the_columns_of_images_and_of_long_rows) {
  for (const Device& device : {h200, a100})
    for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64})
      for (const bool backward : {false, true})
        for (const int64_t channels : {2, 3, 10, 81, 512, 1000, 1024, 2048, 40000})
          for (const int64_t rows : {9, 25, 49, 64, 169, 196, 256, 4097, 65536}) {
            const SoftmaxRequest request = channels_of(dtype, 300, channels, rows, backward);
            const SoftmaxPlan plan = plan_of(request, device);
            SoftmaxPlan again;
            CHECK(plan_softmax_as(request, device, plan.config, &again));
            CHECK(plan == again);
            CHECK(plan.launch.shared_bytes <= device.shared_bytes_per_block);
            const int32_t blocks = plan.launch.cluster_blocks;
            CHECK(blocks == 1 || device == h200);
            const auto& strided = plan.config.as<StridedRows>();
            if (strided.images > 0) {
              const StridedPlanes& planes = strided.planes;
              CHECK(planes.block_columns * (blocks - 1) < planes.image_columns);
              CHECK(planes.block_columns * blocks >= planes.image_columns);
            } else if (!strided.is_general) {
              CHECK(int64_t{strided.columns} * plan.config.lanes_per_row * blocks == channels + strided.missing);
            }
          }
}

TEST(configs_that_cannot_hold_a_row_are_refused) {
  const SoftmaxRequest request = request_of(FLOWK_FLOAT16, 100, 1024);
  SoftmaxPlan plan;
  const auto fits = [&](SoftmaxMechanism mechanism, int lanes, int threads, int cluster, const Device& device) {
    return plan_softmax_as(request, device, {mechanism, lanes, threads, cluster}, &plan);
  };
  CHECK(fits(RowInRegisters{4}, 32, 64, 1, h200));
  CHECK(!fits(RowInRegisters{2}, 32, 64, 1, h200));   // holds 512
  CHECK(!fits(RowInRegisters{3}, 64, 64, 1, h200));   // no such kernel
  CHECK(!fits(RowInRegisters{4}, 48, 48, 1, h200));   // not whole warps
  CHECK(!fits(RowInRegisters{4}, 64, 128, 1, h200));  // two rows of two warps
  CHECK(!fits(RowInRegisters{1}, 1024, 1024, 1, h200));
  CHECK(fits(RowInRegisters{1}, 32, 32, 4, h200));
  CHECK(!fits(RowInRegisters{1}, 32, 32, 4, a100));
  CHECK(!fits(RowInRegisters{1}, 32, 32, 3, h200));
  CHECK(fits(StagedRows{}, 32, 128, 1, h200));
  CHECK(!fits(StagedRows{}, 16, 128, 1, h200));  // no kernel with 16 units per thread
  CHECK(fits(RowInShared{}, 128, 128, 1, h200));
  CHECK(fits(TwoPassRow{}, 128, 128, 1, h200));
}

TEST(explain_says_which_kernel_and_cuts_its_text) {
  const SoftmaxRequest request = request_of(FLOWK_FLOAT16, 1000, 131072, true);
  char text[1024], cut[16];
  explain_softmax(plan_of(request, h200), request, text, sizeof text);
  CHECK(std::strstr(text, "row_in_registers") != nullptr && std::strstr(text, "16 blocks") != nullptr);
  CHECK(std::strstr(text, "dense mask") != nullptr);
  explain_softmax(plan_of(request, h200), request, cut, sizeof cut);
  CHECK(std::strlen(cut) == sizeof cut - 1 && std::strncmp(cut, text, sizeof cut - 1) == 0);
}

// Scales that make exponents of float16 round too much, or that are no normal number: two_pass_row takes those.
TEST(scales_out_of_the_usual_read_a_row_twice) {
  const auto kernel_of = [](flowk_dtype dtype, int64_t columns, double scale) {
    SoftmaxRequest request = request_of(dtype, 1 << 10, columns);
    request.scale = scale;
    return plan_of(request, h200).config.kernel();
  };
  for (const int64_t columns : {7, 64, 77, 1024, 1 << 16}) {
    for (const double scale : {0.0, 0x1p-101, -0x1p-149}) {
      CHECK(kernel_of(FLOWK_FLOAT32, columns, scale) == SoftmaxKernel::two_pass_row);
      CHECK(kernel_of(FLOWK_BFLOAT16, columns, scale) == SoftmaxKernel::two_pass_row);
    }
    CHECK(kernel_of(FLOWK_FLOAT16, columns, 4097) == SoftmaxKernel::two_pass_row);
    CHECK(kernel_of(FLOWK_FLOAT16, columns, 4096) != SoftmaxKernel::two_pass_row);
    CHECK(kernel_of(FLOWK_FLOAT32, columns, 0x1p126) != SoftmaxKernel::two_pass_row);
    CHECK(kernel_of(FLOWK_FLOAT32, columns, 0x1p-100) != SoftmaxKernel::two_pass_row);
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
