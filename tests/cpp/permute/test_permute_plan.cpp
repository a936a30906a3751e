// SPDX-License-Identifier: Apache-2.0
// The planner of permute: which kernel it chooses, and that what it chooses can be launched. Pointers are never
// followed.
#include <cstdio>
#include <cstring>
#include <string>

#include "check.h"
#include "permute/plan/permute_plan_cache.h"
#include "permute_candidates.h"
#include "permute_kernel_cases.h"
#include "permute_plan_case.h"
#include "permute_plan_cases.h"

namespace {

using namespace flowk::permute;

PermuteRequest fake_request(const PermuteCase& row) { return make_request(row, fake_src(row), fake_dst(row)); }

PermutePlan plan_of(const PermuteCase& row, const Device& device) {
  PermutePlan plan;
  plan_permute(fake_request(row), device, &plan);
  return plan;
}

std::string explanation_of(const PermuteCase& row, const PermutePlan& plan) {
  char text[4096];
  explain_permute(plan, fake_request(row), text, sizeof(text));
  return text;
}

// Can it be launched on `device`, and do its blocks cover the tensor?
void check_launch(const PermuteCase& row, const Device& device, const PermutePlan& plan) {
  const LaunchConfig& launch = plan.launch;
  int64_t num_bytes = row.element_bytes;
  for (const int64_t extent : row.shape) num_bytes *= extent;
  CHECK(launch.num_blocks >= 1 && launch.num_blocks <= 2147483647);
  CHECK(launch.num_threads >= 32 && launch.num_threads <= 1024 && launch.num_threads % 32 == 0);
  CHECK(launch.shared_bytes >= 0 && launch.shared_bytes <= device.shared_bytes_per_block);
  CHECK(!launch.uses_pdl || device.runs_pdl());
  CHECK(plan.unit_bytes >= 1 && plan.unit_bytes <= 16 && (plan.unit_bytes & (plan.unit_bytes - 1)) == 0);
  if (const CopyParams* copy = plan.copy()) {
    CHECK(launch.num_blocks == (copy->num_items + launch.num_threads - 1) / launch.num_threads);
    CHECK(copy->wide_index == (copy->num_items >= int64_t{1} << 31));
    CHECK(copy->num_items * flowk::permute::vector_bytes >= num_bytes);
    if (plan.kernel() == PermuteKernel::copy_rows) CHECK(plan.unit_bytes == 16);
  } else if (const ChannelParams* channels = plan.channels()) {
    const int64_t num_tiles = num_grid_tiles(channels->grid, channels->grid_rank);
    CHECK(channels->num_tiles == num_tiles && launch.num_blocks == ceil_div(num_tiles, channels->tiles_per_block));
    CHECK(launch.num_blocks * launch.num_threads * flowk::permute::vector_bytes * channels->num_channels >= num_bytes);
  } else {
    CHECK(launch.num_blocks == num_grid_tiles(plan.tile()->grid, plan.tile()->grid_rank));
    CHECK(launch.num_blocks * launch.shared_bytes >= num_bytes);
    CHECK(launch.shared_bytes > 0);
  }
}

TEST(every_row_is_planned_as_it_says_and_can_be_launched) {
  for (const PermutePlanCase& expected : permute_plan_cases()) {
    const int num_failed_before = num_failed_checks;
    const PermutePlan plan = plan_of(expected.row, h200), on_small = plan_of(expected.row, small);
    CHECK(plan.kernel() == expected.kernel);
    CHECK((plan.copy() != nullptr && plan.copy()->wide_index) == expected.wide_index);
    check_launch(expected.row, h200, plan);
    check_launch(expected.row, small, on_small);
    if (num_failed_checks != num_failed_before)
      std::printf("  %s\n  %s\n", text_of(expected.row).c_str(), explanation_of(expected.row, plan).c_str());
  }
}

TEST(every_kernel_is_reached_by_a_row_and_by_one_of_2_to_the_31_elements) {
  for (int kernel = 0; kernel < num_permute_kernels; ++kernel) {
    bool is_reached = false, is_reached_large = false;
    for (const PermutePlanCase& expected : permute_plan_cases()) {
      if (expected.kernel != static_cast<PermuteKernel>(kernel)) continue;
      int64_t num_elements = 1;
      for (const int64_t extent : expected.row.shape) num_elements *= extent;
      is_reached = true;
      is_reached_large |= num_elements > int64_t{1} << 31;
    }
    CHECK(is_reached && is_reached_large);
    if (!is_reached || !is_reached_large)
      std::printf("  %s\n", permute_kernel_name(static_cast<PermuteKernel>(kernel)));
  }
}

TEST(kernels_have_names_of_their_own) {
  for (int kernel = 0; kernel < num_permute_kernels; ++kernel)
    for (int other = 0; other <= kernel; ++other)
      CHECK((std::strcmp(permute_kernel_name(static_cast<PermuteKernel>(kernel)),
                         permute_kernel_name(static_cast<PermuteKernel>(other))) == 0) == (kernel == other));
  CHECK(std::strcmp(permute_kernel_name(static_cast<PermuteKernel>(num_permute_kernels)), "unknown") == 0);
}

TEST(equal_requests_have_equal_plans) {
  const std::vector<PermutePlanCase> rows = permute_plan_cases();
  for (size_t i = 0; i < rows.size(); ++i) {
    const PermutePlan plan = plan_of(rows[i].row, h200);
    (void)plan_of(rows[(i + 1) % rows.size()].row, h200);  // leaves something else on the stack
    CHECK(plan == plan_of(rows[i].row, h200));
    CHECK(rows.size() == 1 || plan != plan_of(rows[(i + 1) % rows.size()].row, h200));
  }
}

// Twice, at pointers that are further on by lines and by less: before and after the cache has a row's plan, and with
// rows that replace each other in it.
TEST(a_cached_plan_is_the_plan) {
  for (int round = 0; round < 2; ++round) {
    for (const Device& device : {h200, small}) {
      for (const PermutePlanCase& expected : permute_plan_cases()) {
        const PermuteCase& row = expected.row;
        for (const int step : {0, line_bytes, 3 * line_bytes, 16}) {
          PermuteRequest request = fake_request(row);
          request.src = static_cast<const unsigned char*>(request.src) + step;
          request.dst = static_cast<unsigned char*>(request.dst) + 2 * step;
          PermutePlan plan;
          plan_permute(request, device, &plan);
          for (int round = 0; round < 2; ++round) {
            const PermutePlan* cached = nullptr;
            CHECK(cached_plan(request, device, &cached).ok() && *cached == plan);
          }
        }
      }
    }
  }
}

// 32 shapes in turn are planned once each; the plan of one more replaces the first.
TEST(a_cache_keeps_the_plans_of_its_last_32_shapes) {
  PlanCache cache;
  int num_planned = 0;
  const auto ask = [&](int64_t rows) {
    const PermuteCase row = {"transpose", 4, {rows, 96}, {1, 0}};
    PermuteProblem problem;
    make_problem(fake_request(row), &problem);
    if (cache.find(problem, h200) != nullptr) return;
    ++num_planned;
    plan_problem(problem, h200, cache.add(problem, h200));
  };
  for (int round = 0; round < 3; ++round)
    for (int64_t i = 0; i < PlanCache::capacity; ++i) ask(1000 + i);
  CHECK(num_planned == 32);
  ask(2000);
  CHECK(num_planned == 33);
  ask(1001);
  CHECK(num_planned == 33);
  ask(1000);
  CHECK(num_planned == 34);
}

// A complex number at half its alignment is two halves, which doubles the strides: not those that nothing is stepped
// by.
TEST(complex_halves_leave_the_stride_of_an_extent_of_1_alone) {
  PermuteRequest request;
  request.src = reinterpret_cast<const void*>(uintptr_t{0x10004});
  request.dst = reinterpret_cast<void*>(uintptr_t{0x20004});
  request.element_bytes = 8;
  request.shape.rank = 2;
  request.shape.extents[0] = 4;
  request.shape.strides[src_operand][0] = request.shape.strides[dst_operand][0] = 1;
  request.shape.extents[1] = 1;
  request.shape.strides[src_operand][1] = request.shape.strides[dst_operand][1] = INT64_MAX / 2 + 10;
  PermuteProblem problem;
  make_problem(request, &problem);
  CHECK(problem.rank == 1 && problem.unit_bytes == 4 && problem.extents[0] == 8);
}

TEST(explanation_starts_with_the_kernel_and_is_cut_to_the_buffer) {
  for (const PermutePlanCase& expected : permute_plan_cases()) {
    const PermutePlan plan = plan_of(expected.row, h200);
    const std::string whole = explanation_of(expected.row, plan);
    CHECK(whole.starts_with(permute_kernel_name(plan.kernel())) && whole.ends_with('\n'));
    char cut[40];
    explain_permute(plan, fake_request(expected.row), cut, sizeof(cut));
    CHECK(cut == whole.substr(0, sizeof(cut) - 1));
  }
}

// A tile of 64 columns of 99 bytes, which lie one after the other in dst.
TEST(an_explanation_counts_joined_runs_as_one_row) {
  const PermuteCase row = {"columns", 1, {64, 99, 192}, {0, 2, 1}};
  const PermutePlan plan = plan_of(row, h200);
  CHECK(plan.kernel() == PermuteKernel::byte_tile);
  CHECK(explanation_of(row, plan).find("reads 99 rows of 64 bytes, writes 1 row of 6336 bytes") != std::string::npos);
}

// The cheapest tile by the estimate is a byte_tile, and has bank conflicts.
TEST(of_tiles_of_bytes_one_with_few_bank_conflicts_is_taken) {
  const PermuteCase row = {"images", 1, {2581, 57, 57, 8}, {0, 3, 1, 2}};
  const PermutePlan plan = plan_of(row, h200);
  CHECK(plan.kernel() == PermuteKernel::general_tile);
  CHECK(explanation_of(row, plan).find("reads 1 row of 25992 bytes, writes 8 rows of 3249 bytes") != std::string::npos);
}

// Tiles of 4, 8 and 24 KB load and store whole lines alike: the smallest one has the most blocks to start.
TEST(of_tiles_that_differ_in_size_alone_the_smallest_is_not_taken) {
  const PermuteCase row = {"slices", 4, {24, 64, 48, 96},       {2, 0, 3, 1},
                           0,        0, {442368, 6144, 128, 1}, {294912, 12288, 128, 1}};
  const PermutePlan plan = plan_of(row, h200);
  CHECK(plan.kernel() == PermuteKernel::aligned_tile);
  const auto& tile = *plan.tile();
  CHECK(tile.whole_count(tile.src_rows) * tile.whole_count(tile.src_run_bytes) >= 8192);
}

// Any tile that the planner may ever choose, on the device with the least shared memory.
TEST(every_tile_candidate_can_be_launched) {
  int num_candidates = 0;
  for (const PermutePlanCase& expected : permute_plan_cases()) {
    PermuteProblem problem;
    make_problem(fake_request(expected.row), &problem);
    for_each_tile_candidate(problem, small, [&](const PermutePlan& plan, int src_choice, int dst_choice) {
      ++num_candidates;
      const int num_failed_before = num_failed_checks;
      if (plan.launch.num_blocks <= 2147483647) check_launch(expected.row, small, plan);
      if (num_failed_checks != num_failed_before)
        std::printf("  %s: candidate (%d, %d)\n", text_of(expected.row).c_str(), src_choice, dst_choice);
    });
  }
  CHECK(num_candidates > 1000);
}

// The plan is the cheapest tile of all pairs of runs.
TEST(no_tile_candidate_is_cheaper_than_the_plan) {
  int num_tiles = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    const PermuteCase row = drawn_permute_case(seed);
    const PermutePlan plan = plan_of(row, h200);
    if (plan.predicted_cost() == 0) continue;  // no tile of two runs
    ++num_tiles;
    PermuteProblem problem;
    make_problem(fake_request(row), &problem);
    for_each_tile_candidate(problem, h200, [&](const PermutePlan& other, int src_choice, int dst_choice) {
      const bool is_cheaper = other.predicted_cost() < plan.predicted_cost() - 0.001f;
      CHECK(!is_cheaper);
      if (is_cheaper)
        std::printf("  %s: %f, candidate (%d, %d): %f\n", text_of(row).c_str(), plan.predicted_cost(), src_choice,
                    dst_choice, other.predicted_cost());
    });
  }
  CHECK(num_tiles > 1000);
}

TEST(pairs_take_the_place_of_dimensions_that_a_launch_has_not) {
  int64_t offsets[max_launch_pairs];
  for (int i = 0; i < max_launch_pairs; ++i) offsets[i] = 128 * i;
  for (const int rank : {0, 17, 18}) {
    PermutePlan plan;
    plan.launch.num_blocks = 10;
    TileParams& params = plan.mechanism.emplace<GeneralTile>().params.tile;
    params.grid_rank = rank;
    const bool fits = set_pairs(max_launch_pairs, offsets, offsets, &plan);
    CHECK(fits == (rank <= max_rank - max_launch_pairs));
    CHECK(plan.launch.num_blocks == (fits ? 160 : 10));
    CHECK(params.num_pairs == (fits ? 16 : 1));
    for (int d = rank; fits && d < max_rank - max_launch_pairs; ++d) CHECK(params.grid[d].src_step == 0);
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
