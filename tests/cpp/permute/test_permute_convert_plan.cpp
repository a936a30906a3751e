// SPDX-License-Identifier: Apache-2.0
// The planner of permute with conversion: which kernel it chooses, and that what it chooses can be launched. Pointers
// are never followed.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "permute/plan/permute_problem.h"
#include "permute_candidates.h"
#include "permute_convert_case.h"
#include "permute_plan_case.h"
#include "permute_plan_cases.h"

namespace {

using namespace flowk::permute;

PermuteRequest fake_request(const PermuteCase& row, const TypePair& types) {
  return make_convert_request(row, types, 1, fake_src(case_of_size(row, dtype_info(types.src).element_bytes)),
                              fake_dst(case_of_size(row, dtype_info(types.dst).element_bytes)));
}

PermutePlan plan_of(const PermuteCase& row, const TypePair& types, const Device& device) {
  PermutePlan plan;
  plan_permute(fake_request(row, types), device, &plan);
  return plan;
}

std::string explanation_of(const PermuteCase& row, const TypePair& types, const PermutePlan& plan) {
  char text[4096];
  explain_permute(plan, fake_request(row, types), text, sizeof(text));
  return text;
}

struct ConvertPlanCase {
  PermuteKernel kernel;
  TypePair types;
  PermuteCase row;  // of elements of one byte: leads count elements
  bool wide_index = false;
};

std::vector<ConvertPlanCase> convert_plan_cases() {
  using enum PermuteKernel;
  constexpr int64_t kilo = 1024, mega = 1024 * kilo, giga = 1024 * mega;
  constexpr TypePair f32_f16 = {FLOWK_FLOAT32, FLOWK_FLOAT16}, u8_f16 = {FLOWK_UINT8, FLOWK_FLOAT16},
                     f16_f32 = {FLOWK_FLOAT16, FLOWK_FLOAT32}, f64_e4m3 = {FLOWK_FLOAT64, FLOWK_FLOAT8_E4M3},
                     f16_bf16 = {FLOWK_FLOAT16, FLOWK_BFLOAT16};
  return {
      {copy_rows, f32_f16, {"one element", 1, {}, {}}},
      {copy_rows, f32_f16, {"nothing is permuted", 1, {kilo, kilo}, {0, 1}}},
      {copy_rows, u8_f16, {"both sides walk down", 1, {kilo, kilo}, {0, 1}, 0, 0, {-kilo, -1}, {-kilo, -1}}},
      {copy_rows, f64_e4m3, {"one run at any alignment", 1, {1000003}, {0}, 1, 3}},
      {copy_rows, f32_f16, {"the last groups whose index fits 31 bits", 1, {8 * giga - 4}, {0}}},
      {copy_rows, f32_f16, {"the first that does not", 1, {8 * giga}, {0}}, true},
      {copy_rows, f32_f16, {"wide: 2^32 rows", 1, {2, 4 * giga, 64}, {1, 0, 2}}, true},
      {copy_rows, f32_f16, {"attention heads", 1, {8, 512, 16, 64}, {0, 2, 1, 3}}},
      {copy_rows, f32_f16, {"rows of 160 bytes to 80", 1, {64, 128, 40}, {1, 0, 2}}},
      {general_tile, f32_f16, {"shorter", 1, {64, 128, 36}, {1, 0, 2}}},
      {general_tile, f32_f16, {"rows that start inside packs", 1, {64, 128, 67}, {1, 0, 2}}},
      {general_tile, f32_f16, {"a source that starts inside a pack", 1, {64, 128, 64}, {1, 0, 2}, 1, 0}},
      {general_tile, f16_bf16, {"rows of a pair without a kernel for rows", 1, {64, 128, 64}, {1, 0, 2}}},
      {copy_rows, f16_f32, {"rows of a padded matrix", 1, {100, 256}, {0, 1}, 0, 0, {264, 1}, {}}},
      {general_tile, f32_f16, {"a matrix", 1, {4096, 4096}, {1, 0}}},
      {aligned_tile, u8_f16, {"a matrix of bytes", 1, {4096, 4096}, {1, 0}}},
      {aligned_tile, {FLOWK_FLOAT64, FLOWK_FLOAT32}, {"a matrix of 8 bytes to 4", 1, {4096, 4096}, {1, 0}}},
      {general_tile, f64_e4m3, {"a pair without aligned kernels", 1, {4096, 4096}, {1, 0}}},
      {general_tile, f16_f32, {"more than 2^31 elements", 1, {64 * kilo, 64 * kilo}, {1, 0}}},
      {general_tile, f32_f16, {"many channels", 1, {32, 64, 56 * 56}, {0, 2, 1}}},
      {general_tile, f32_f16, {"odd extents", 1, {1001, 999}, {1, 0}}},
      {general_tile, f32_f16, {"source not aligned", 1, {kilo, kilo}, {1, 0}, 1, 0}},
      {general_tile, f32_f16, {"destination not aligned", 1, {kilo, kilo}, {1, 0}, 0, 1}},
      {channels, f32_f16, {"NCHW to NHWC", 1, {32, 3, 224 * 224}, {0, 2, 1}}},
      {channels, u8_f16, {"more than 2^31 elements", 1, {128 * kilo, 16 * kilo, 4}, {0, 2, 1}}},
      {general_tile, u8_f16, {"planes of 1 byte", 1, {32, 3, 224 * 224}, {0, 2, 1}}},
      {general_tile, f32_f16, {"two channels", 1, {32, 2, 224 * 224}, {0, 2, 1}}},
      {general_tile, f32_f16, {"planes of an odd length", 1, {32, 3, 1001}, {0, 2, 1}}},
      {general_tile, f32_f16, {"planes whose pixels are no whole vectors", 1, {32, 3, 1004}, {0, 2, 1}}},
      {general_tile, {FLOWK_INT32, FLOWK_FLOAT16}, {"computed in double", 1, {32, 3, 224 * 224}, {0, 2, 1}}},
      {channels, u8_f16, {"NHWC to NCHW", 1, {32, 224 * 224, 3}, {0, 2, 1}}},
      {channels, u8_f16, {"RGB pixels of a padded image", 1, {32, 512, 3}, {0, 2, 1}, 0, 0, {1600, 3, 1}, {}}},
      {general_tile, u8_f16, {"rank 32 reversed", 1, repeated(2, 32), axes_reversed(32)}},
      {strided_tile, f32_f16, {"every second element", 1, {500, 600}, {1, 0}, 0, 0, {1200, 2}, {}}},
      {strided_tile, f16_f32, {"one element is broadcast", 1, {500, 600}, {1, 0}, 0, 0, {0, 0}, {}}},
  };
}

// Can it be launched on `device`, and do its blocks cover the tensor?
void check_launch(const PermuteCase& row, const TypePair& types, const Device& device, const PermutePlan& plan) {
  const LaunchConfig& launch = plan.launch;
  int64_t num_elements = 1;
  for (const int64_t extent : row.shape) num_elements *= extent;
  const int32_t src_bytes = dtype_info(types.src).element_bytes, dst_bytes = dtype_info(types.dst).element_bytes;
  CHECK(plan.unit_bytes == src_bytes && plan.dst_unit_bytes == dst_bytes);
  CHECK(launch.num_blocks >= 1 && launch.num_blocks <= max_grid_blocks);
  CHECK(launch.num_threads >= 32 && launch.num_threads <= 1024 && launch.num_threads % 32 == 0);
  CHECK(launch.shared_bytes >= 0 && launch.shared_bytes <= device.shared_bytes_per_block);
  CHECK(launch.uses_pdl == device.runs_pdl());
  if (const CopyParams* rows = plan.copy()) {
    const bool takes_packs = converts_rows(src_bytes, dst_bytes, plan.conversion->in_double, rows->wide_index);
    const int items_per_block = launch.num_threads * (takes_packs ? flowk::permute::converted_packs_per_thread : 1);
    CHECK(launch.num_blocks == (rows->num_items + items_per_block - 1) / items_per_block);
    CHECK(rows->wide_index == (rows->num_items >= int64_t{1} << 31));
    CHECK(rows->num_items * convert_pack_elements(src_bytes, dst_bytes) >= num_elements);
  } else if (const auto* planes = std::get_if<Channels>(&plan.mechanism)) {
    const int64_t planar_bytes = planes->interleaves ? src_bytes : dst_bytes;
    const int64_t num_elements_per_block =
        launch.num_threads * flowk::permute::vector_bytes / planar_bytes * planes->params.num_channels;
    CHECK(launch.num_blocks * num_elements_per_block >= num_elements);
    CHECK(launch.shared_bytes >= num_elements_per_block * (planes->interleaves ? dst_bytes : src_bytes));
  } else {
    CHECK(launch.num_blocks == num_grid_tiles(plan.tile()->grid, plan.tile()->grid_rank));
    CHECK(launch.num_blocks * launch.shared_bytes >= num_elements * src_bytes);
  }
}

TEST(every_row_is_planned_as_it_says_and_can_be_launched) {
  for (const ConvertPlanCase& expected : convert_plan_cases()) {
    const int num_failed_before = num_failed_checks;
    const PermutePlan plan = plan_of(expected.row, expected.types, h200);
    CHECK(plan.kernel() == expected.kernel);
    const CopyParams* copy = plan.copy();
    CHECK((copy != nullptr && copy->wide_index) == expected.wide_index);
    CHECK(plan == plan_of(expected.row, expected.types, h200));
    for (int round = 0; round < 2; ++round) {
      const PermutePlan* cached = nullptr;
      CHECK(cached_plan(fake_request(expected.row, expected.types), h200, &cached).ok() && plan == *cached);
    }
    check_launch(expected.row, expected.types, h200, plan);
    check_launch(expected.row, expected.types, small, plan_of(expected.row, expected.types, small));
    const std::string text = explanation_of(expected.row, expected.types, plan);
    CHECK(text.starts_with(permute_kernel_name(expected.kernel)) && text.ends_with('\n'));
    if (num_failed_checks != num_failed_before)
      std::printf("  %s\n  %s\n", text_of(expected.row).c_str(), text.c_str());
  }
}

// Any tile that the planner may ever choose for any pair of sizes, on the device with the least shared memory.
TEST(every_tile_candidate_can_be_launched) {
  int num_candidates = 0;
  for (const PermutePlanCase& expected : permute_plan_cases()) {
    for (const TypePair& types : type_pairs) {
      PermuteProblem problem;
      make_problem(fake_request(expected.row, types), &problem);
      for_each_tile_candidate(problem, small, [&](const PermutePlan& plan, int src_choice, int dst_choice) {
        if (plan.launch.num_blocks > max_grid_blocks) return;
        ++num_candidates;
        const int num_failed_before = num_failed_checks;
        check_launch(expected.row, types, small, plan);
        if (num_failed_checks != num_failed_before)
          std::printf("  %s: %d to %d, candidate (%d, %d)\n", text_of(expected.row).c_str(), types.src, types.dst,
                      src_choice, dst_choice);
      });
    }
  }
  CHECK(num_candidates > 10000);
}

TEST(arithmetic_follows_from_the_types) {
  for (int src = FLOWK_BOOL; src <= FLOWK_COMPLEX128; ++src) {
    const auto src_dtype = static_cast<flowk_dtype>(src);
    CHECK(is_plain_move(src_dtype, src_dtype, 1) && !is_plain_move(src_dtype, src_dtype, 2));
    CHECK(is_convertible(src_dtype) ==
          (src != FLOWK_INT64 && src != FLOWK_UINT64 && src != FLOWK_COMPLEX64 && src != FLOWK_COMPLEX128));
  }
  CHECK(!is_convertible(static_cast<flowk_dtype>(0)) && !is_convertible(static_cast<flowk_dtype>(18)));
  CHECK(is_plain_move(FLOWK_INT32, FLOWK_UINT32, 1) && !is_plain_move(FLOWK_INT32, FLOWK_FLOAT32, 1));
  CHECK(!is_plain_move(FLOWK_INT8, FLOWK_BOOL, 1) && !is_plain_move(FLOWK_BOOL, FLOWK_INT8, 1));
  CHECK(!is_plain_move(FLOWK_INT8, FLOWK_INT16, 1) && !is_plain_move(FLOWK_FLOAT16, FLOWK_BFLOAT16, 1));
  const auto computes_in_double = [](flowk_dtype src, flowk_dtype dst) { return conversion_of(src, dst, 1).in_double; };
  CHECK(computes_in_double(FLOWK_INT32, FLOWK_FLOAT16) && computes_in_double(FLOWK_FLOAT16, FLOWK_UINT32));
  CHECK(computes_in_double(FLOWK_FLOAT64, FLOWK_INT8) && !computes_in_double(FLOWK_FLOAT32, FLOWK_UINT16));
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
