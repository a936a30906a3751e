// SPDX-License-Identifier: Apache-2.0
// The planner of PReLU: which kernels it chooses, and that what it chooses, or a bench may force, can be launched.
// Pointers are never followed.
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "check.h"
#include "devices.h"
#include "prelu_case.h"

namespace {

using namespace flowk::prelu;

// An sm_86, cut to a few multiprocessors: no clusters, no early launch.
const Device small = {.capability = 86,
                      .num_multiprocessors = 2,
                      .shared_bytes_per_multiprocessor = 102400,
                      .shared_bytes_per_block = 101376};
constexpr int64_t shared_bytes_of_every_device = 48 * 1024;

// Fake pointers, far apart.
void* fake(int number, int64_t bytes) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>((int64_t{number} << 52) + bytes));
}

PreluRequest forward_request(const PreluCase& row) {
  const int64_t bytes = bytes_of(row.dtype);
  return {fake(1, row.x_lead * bytes),
          fake(2, 0),
          fake(3, row.out_lead * bytes),
          row.outer,
          row.channels,
          row.inner,
          row.dtype,
          row.type_of_alpha()};
}

PreluBackwardRequest backward_request(const PreluCase& row) {
  const int64_t bytes = bytes_of(row.dtype);
  return {fake(1, row.dy_lead * bytes),
          fake(2, row.x_lead * bytes),
          fake(3, 0),
          fake(4, row.out_lead * bytes),
          fake(5, 0),
          fake(6, 0),
          row.outer,
          row.channels,
          row.inner,
          row.dtype,
          row.type_of_alpha()};
}

struct PreluPlanCase {
  PreluCase row;
  PreluBackwardKernel on_h200;
  int32_t num_reductions;
};

std::vector<PreluPlanCase> plan_cases() {
  constexpr flowk_dtype f16 = FLOWK_FLOAT16, f32 = FLOWK_FLOAT32, f64 = FLOWK_FLOAT64;
  constexpr PreluBackwardKernel channel_planes = PreluBackwardKernel::by_channel,
                                warps = PreluBackwardKernel::by_warp_column, spans = PreluBackwardKernel::by_span,
                                planes = PreluBackwardKernel::by_plane, columns = PreluBackwardKernel::by_column;
  return {
      {{"112x112", f16, 96, 64, 12544}, spans, 1},
      {{"57x57", f16, 32, 100, 3249}, spans, 1},
      {{"57x57", f32, 32, 100, 3249}, spans, 1},
      {{"5x5, large: planes shorter than 96 bytes", f16, 4096, 4096, 25}, columns, 1},
      {{"14x14, large: too many rows for a block", f16, 4096, 1024, 196}, columns, 1},
      {{"14x14, large, few rows", f16, 60, 32749, 196}, planes, 1},
      {{"7x7: a block has all rows of 4 channels", f16, 96, 512, 49}, channel_planes, 0},
      {{"14x14: a block has all rows of 2 channels, more vectors than a warp lanes", f32, 96, 256, 196},
       channel_planes,
       0},
      {{"28x28 of 64 channels: a cluster has all rows of one", f16, 96, 64, 784}, channel_planes, 0},
      {{"2x2", f16, 512, 768, 4}, columns, 1},
      {{"2x2 of few channels: a cluster would have 16 bytes of each row", f32, 46399, 33, 4}, columns, 1},
      {{"4x4 of few channels, 64 bytes of each row", f32, 4828, 15, 16}, channel_planes, 0},
      {{"1x1: a warp has all rows", f16, 96, 512, 1}, warps, 0},
      {{"channels last", f16, 96 * 112 * 112, 64, 1}, columns, 2},
      {{"channels last, misaligned", f16, 96 * 112 * 112, 64, 1, 1, 1, 1}, columns, 2},
      {{"small, 3 channels last: few channels are no reason to leave the GPU idle", f16, 1 << 20, 3, 1}, columns, 1},
      {{"channels last, 7x7", f16, 96 * 49, 512, 1}, columns, 1},
      {{"3 channels last", f32, 64 * 224 * 224, 3, 1}, columns, 1},
      {{"one alpha for all", f32, 1, 1, int64_t{1} << 28}, spans, 2},
      {{"2^31 elements and more", f16, 3, 1, int64_t{1} << 30}, spans, 2},
      {{"2^31 elements and more, channels last", f16, int64_t{1} << 26, 64, 1}, columns, 2},
      {{"a plane of 2^40 elements, f64", f64, 1, 2, int64_t{1} << 40}, planes, 2},
      {{"2^31 channels and more", f16, 1, int64_t{1} << 32, 1}, columns, 0},
      {{"a row of few elements", f32, 1, 7, 1}, columns, 0},
  };
}

void check_launch(const LaunchConfig& launch, int32_t max_threads) {
  CHECK(launch.num_blocks >= 1);
  CHECK(launch.num_threads >= 32 && launch.num_threads <= max_threads && launch.num_threads % 32 == 0);
  CHECK(launch.shared_bytes >= 0 && launch.shared_bytes <= shared_bytes_of_every_device);
  CHECK(launch.cluster_blocks >= 1 && launch.cluster_blocks <= max_cluster_blocks);
  CHECK(launch.num_blocks % launch.cluster_blocks == 0);
}

// The launch covers all elements.
struct CheckGradient {
  const PreluCase& row;
  const LaunchConfig& launch;
  int64_t num_elements() const { return row.outer * row.channels * row.inner; }
  int64_t num_vectors() const { return (num_elements() * bytes_of(row.dtype) + 15) / 16; }

  void operator()(const ByChannel& plan) const {
    const ByChannelParams& params = plan.params;
    const int64_t tile_vectors = params.tile_vectors.divisor, V = vector_bytes / bytes_of(row.dtype);
    CHECK(tile_vectors * params.tile_rows <= launch.num_threads);
    CHECK(params.tile_channels * 32 <= launch.num_threads);
    CHECK(tile_vectors * V >= params.tile_channels * row.inner);
    CHECK(launch.num_blocks / launch.cluster_blocks * params.tile_channels >= row.channels);
    CHECK(int64_t{launch.cluster_blocks} * params.rows_per_block >= row.outer);
    CHECK(launch.cluster_blocks == 1 << params.log2_cluster_blocks);
  }
  void operator()(const BySpan& plan) const {
    const int64_t span_elements = plan.params.span_elements;
    CHECK(launch.num_blocks * launch.num_threads / 32 * span_elements >= num_elements());
    CHECK(span_elements <= row.inner);
    CHECK(span_elements * bytes_of(row.dtype) <= plan.vectors_per_lane * 32 * vector_bytes);
    CHECK(!plan.is_in_one_plane || row.inner % span_elements == 0);
  }
  void operator()(const ByPlane& plan) const {
    CHECK(launch.num_blocks * plan.params.span_vectors >= num_vectors());
    CHECK(plan.params.span_vectors <= launch.num_threads);
  }
  void operator()(const ByColumn& plan) const {
    const ByColumnParams& params = plan.params;
    CHECK(params.step_vectors == launch.num_threads / line_vectors * params.row_vectors);
    CHECK(params.row_vectors * params.num_rows >= num_vectors());
    CHECK(launch.num_blocks * line_vectors * params.rows_per_block >= num_vectors());
    CHECK(launch.cluster_blocks == 1);
  }
  void operator()(const ByWarpColumn& plan) const {
    CHECK(row.outer <= 32 * 4);
    CHECK(launch.num_blocks * launch.num_threads / 32 >= plan.params.row_vectors);
  }
  void operator()(const NoElements&) const { CHECK(false); }
};

void check_plan(const PreluCase& row, const Device& device, const PreluBackwardPlan& plan) {
  check_launch(plan.launch, max_backward_threads);
  CHECK(plan.launch.uses_pdl == device.runs_pdl());
  std::visit(CheckGradient{row, plan.launch}, plan.gradient);
  CHECK(plan.num_reductions >= 0 && plan.num_reductions <= 2);
  CHECK((plan.num_reductions == 0) == (plan.workspace_bytes == 0));
  for (int i = 0; i < plan.num_reductions; ++i) {
    const ReducePartials& reduction = plan.reductions[i];
    check_launch(reduction.launch, max_row_sum_threads);
    CHECK(reduction.launch.uses_pdl == device.runs_pdl());
    CHECK(reduction.launch.num_blocks << reduction.params.log2_block_channels >= reduction.params.channels);
  }
  if (device.capability < 90) CHECK(plan.launch.cluster_blocks == 1);
}

std::string explanation_of(const PreluBackwardPlan& plan) {
  char text[2048];
  explain_prelu_backward(plan, text, sizeof(text));
  return text;
}

TEST(every_row_is_planned_as_it_says_and_can_be_launched) {
  for (const PreluPlanCase& expected : plan_cases()) {
    const int num_failed_before = num_failed_checks;
    PreluBackwardPlan plan, on_small;
    CHECK(plan_prelu_backward(backward_request(expected.row), h200, {}, &plan));
    CHECK(plan_prelu_backward(backward_request(expected.row), small, {}, &on_small));
    CHECK(plan.kernel() == expected.on_h200 && plan.num_reductions == expected.num_reductions);
    check_plan(expected.row, h200, plan);
    check_plan(expected.row, small, on_small);
    CHECK(prelu_backward_workspace_bytes(backward_request(expected.row), h200) >= plan.workspace_bytes);
    PreluPlan forward;
    plan_prelu(forward_request(expected.row), h200, &forward);
    check_launch(forward.launch, max_prelu_threads);
    CHECK(forward.launch.num_blocks * forward.launch.num_threads * vector_bytes >=
          expected.row.outer * expected.row.channels * expected.row.inner * bytes_of(expected.row.dtype));
    if (num_failed_checks != num_failed_before)
      std::printf("  %s\n  %s", text_of(expected.row).c_str(), explanation_of(plan).c_str());
  }
}

TEST(every_kernel_case_is_planned_as_it_says) {
  for (const PreluCase& row : prelu_kernel_cases) {
    PreluBackwardPlan plan;
    CHECK(plan_prelu_backward(backward_request(row), h200, {}, &plan));
    const bool is_as_said = row.mechanism == std::string(prelu_backward_kernel_name(plan.kernel()));
    CHECK(is_as_said);
    if (!is_as_said) std::printf("  %s: %s\n", text_of(row).c_str(), prelu_backward_kernel_name(plan.kernel()));
  }
}

TEST(every_forced_choice_can_be_launched) {
  int num_planned = 0;
  std::vector<PreluCase> rows = prelu_alignment_cases();
  for (const PreluCase& row : prelu_kernel_cases)
    if (row.outer > 0) rows.push_back(row);
  for (const PreluPlanCase& expected : plan_cases()) rows.push_back(expected.row);
  for (const PreluCase& row : rows)
    for (int kernel = 0; kernel < num_prelu_backward_kernels; ++kernel)
      for (const int threads : {0, 64, 128, 256, 512})
        for (const int cluster_blocks : {0, 2, 4, 8})
          for (const int tile_vectors : {0, 1, 16, 64}) {
            PreluBackwardPlan plan;
            const PreluBackwardChoice choice = {.kernel = kernel,
                                                .max_threads = threads,
                                                .cluster_blocks = cluster_blocks,
                                                .tile_vectors = tile_vectors};
            if (!plan_prelu_backward(backward_request(row), h200, choice, &plan)) {
              CHECK(kernel > 0);
              continue;
            }
            ++num_planned;
            const int num_failed_before = num_failed_checks;
            check_plan(row, h200, plan);
            if (num_failed_checks != num_failed_before)
              std::printf("  %s: kernel %d, %d threads, clusters of %d, %d vectors\n  %s", text_of(row).c_str(), kernel,
                          threads, cluster_blocks, tile_vectors, explanation_of(plan).c_str());
          }
  CHECK(num_planned > 1000);
}

// The sizes alone are the key of the calls' cache.
TEST(the_workspace_size_is_that_of_any_alignment_of_alpha) {
  std::vector<PreluCase> rows = {{"", FLOWK_FLOAT32, 376, 32, 1}, {"", FLOWK_FLOAT16, 843, 792, 1}};
  for (const PreluPlanCase& expected : plan_cases()) rows.push_back(expected.row);
  Device executor = h200;
  executor.capability = 0;
  for (const PreluCase& row : rows)
    for (const Device& device : {h200, small, executor}) {
      PreluBackwardRequest request = backward_request(row);
      const int64_t num_bytes = prelu_backward_workspace_bytes(request, device);
      request.alpha = static_cast<const unsigned char*>(request.alpha) + bytes_of(row.dtype);
      PreluBackwardPlan plan;
      plan_prelu_backward(request, device, {}, &plan);
      CHECK(plan.workspace_bytes <= num_bytes);
      CHECK(prelu_backward_workspace_bytes(request, device) == num_bytes);
    }
}

// For tensors past the L2 the workspace adds no more than 1.2% to what is read and written.
TEST(workspace_is_small_beside_the_tensors) {
  constexpr int64_t l2_bytes = 62914560;  // of an H200
  for (const PreluPlanCase& expected : plan_cases()) {
    const PreluCase& row = expected.row;
    const int64_t num_bytes = row.outer * row.channels * row.inner * bytes_of(row.dtype);
    if (num_bytes < l2_bytes || row.outer == 1) continue;
    CHECK(prelu_backward_workspace_bytes(backward_request(row), h200) * 100 < num_bytes * 36 / 10);
  }
}

// What flowk_prelu_backward_workspace_bytes() promises in flowk.h.
TEST(workspace_is_a_sum_per_element_at_most_and_small_beside_many_or_long_planes) {
  const auto check = [](const PreluCase& row) {
    const int64_t num_elements = row.outer * row.channels * row.inner;
    const int64_t num_bytes = prelu_backward_workspace_bytes(backward_request(row), h200);
    CHECK(num_bytes <= round_up(num_elements * (row.dtype == FLOWK_FLOAT64 ? 8 : 4), 16));
    if (row.inner >= 256 || row.outer >= 4096) CHECK(num_bytes * 40 <= 3 * num_elements * bytes_of(row.dtype));
  };
  std::minstd_rand random(1);
  const auto draw = [&](int max_bits) {
    const int64_t power = int64_t{1} << random() % static_cast<unsigned>(max_bits);
    return power + static_cast<int64_t>(random() >> 4) % power;
  };
  for (int i = 0; i < 20000; ++i)
    for (const flowk_dtype dtype : {FLOWK_FLOAT16, FLOWK_FLOAT32, FLOWK_FLOAT64})
      check({"drawn", dtype, draw(16), draw(22), draw(14)});
  for (const int64_t outer : {1, 3, 7})
    for (const int64_t channels : {int64_t{1'000'001}, (int64_t{1} << 31) + 33})
      check({"few periods", FLOWK_FLOAT16, outer, channels, 1});
}

TEST(kernels_have_names_of_their_own) {
  for (int kernel = 0; kernel <= num_prelu_backward_kernels; ++kernel)
    for (int other = 0; other < kernel; ++other)
      CHECK(std::strcmp(prelu_backward_kernel_name(static_cast<PreluBackwardKernel>(kernel)),
                        prelu_backward_kernel_name(static_cast<PreluBackwardKernel>(other))) != 0);
}

TEST(equal_requests_have_equal_plans) {
  for (const PreluPlanCase& expected : plan_cases()) {
    PreluBackwardPlan plan, again;
    plan_prelu_backward(backward_request(expected.row), h200, {}, &plan);
    plan_prelu_backward(backward_request(plan_cases()[0].row), h200, {}, &again);  // leaves something else behind
    plan_prelu_backward(backward_request(expected.row), h200, {}, &again);
    CHECK(plan == again);
  }
}

TEST(explanation_starts_with_the_kernel_and_is_cut_to_the_buffer) {
  for (const PreluPlanCase& expected : plan_cases()) {
    PreluBackwardPlan plan;
    plan_prelu_backward(backward_request(expected.row), h200, {}, &plan);
    const std::string whole = explanation_of(plan);
    CHECK(whole.starts_with(prelu_backward_kernel_name(plan.kernel())) && whole.ends_with('\n'));
    char cut[40];
    explain_prelu_backward(plan, cut, sizeof(cut));
    CHECK(cut == whole.substr(0, sizeof(cut) - 1));
  }
}

TEST(wide_division_is_exact) {
  uint64_t state = 1;
  for (int i = 0; i < 200000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t d = (state >> 2 >> (i % 62)) + (i % 62 == 0 ? 0 : 1);
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t n = state >> 1 >> (i / 62 % 40), multiple = n / d * d;
    const WideDivider divider(d);
    CHECK(divider.divide(n) == n / d && divider.divide(multiple) == multiple / d);
    if (multiple > 0) CHECK(divider.divide(multiple - 1) == (multiple - 1) / d);
  }
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv); }
