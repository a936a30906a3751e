// SPDX-License-Identifier: Apache-2.0
// The C ABI of measured plans: the planner's best tiles are timed, and the fastest is remembered.
#include <algorithm>
#include <cmath>
#include <vector>

#include "api/call.h"
#include "api/permute_call.h"
#include "core/stopwatch.h"
#include "flowk/flowk.h"
#include "permute/permute.h"
#include "permute/plan/measured_plans.h"

namespace flowk::api {
using namespace permute;
namespace {

// Each plan has `rounds` rounds of calls that take about round_us together. A round's time is the mean of its calls,
// and the plan's time is the median of its rounds. A tile replaces the model's plan only if it is faster by more than
// min_gain. These numbers are not measured.
constexpr int rounds = 5;
constexpr double round_us = 200;
constexpr int max_calls_per_round = 20;
constexpr double min_gain = 0.01;

// A plan on trial: the model's own, or a tile.
struct Trial {
  PermutePlan plan;
  int32_t src_choice = -1, dst_choice = -1;
  double us[rounds] = {};
  double median_us = 0;  // in whole nanoseconds, as the file of plans has it
};

// The model's plan first, then the tiles of least predicted time that have other plans.
std::vector<Trial> find_trials(const PermuteProblem& problem, const Device& device, int32_t max_trials) {
  std::vector<Trial> trials(1);
  plan_problem(problem, device, &trials[0].plan);
  if (!has_other_plans(trials[0].plan)) return trials;
  for (const RankedTile& tile : rank_tiles(problem, device)) {
    if (static_cast<int32_t>(trials.size()) >= max_trials) break;
    Trial trial;
    trial.src_choice = tile.src_choice;
    trial.dst_choice = tile.dst_choice;
    const bool is_planned =
        plan_tile_candidate(problem, device, tile.src_choice, tile.dst_choice, &trial.plan) == TileCandidate::planned;
    const auto is_same = [&](const Trial& other) {
      return other.plan.launch == trial.plan.launch && other.plan.mechanism == trial.plan.mechanism;
    };
    if (is_planned && std::none_of(trials.begin(), trials.end(), is_same)) trials.push_back(trial);
  }
  return trials;
}

// Times the trials in turn.
Status time_trials(flowk_stream stream, std::vector<Trial>* trials) {
  Stopwatch stopwatch;
  FLOWK_RETURN_IF_ERROR(stopwatch.open(stream));
  const auto time_calls = [&](const Trial& trial, int num_calls, double* us) -> Status {
    FLOWK_RETURN_IF_ERROR(stopwatch.start());
    for (int i = 0; i < num_calls; ++i) FLOWK_RETURN_IF_ERROR(run_permute(trial.plan, stream));
    FLOWK_RETURN_IF_ERROR(stopwatch.stop(us));
    *us /= num_calls;
    return {};
  };
  // The first call of a kernel loads it.
  double us = 0;
  for (const Trial& trial : *trials) FLOWK_RETURN_IF_ERROR(time_calls(trial, 1, &us));
  FLOWK_RETURN_IF_ERROR(time_calls(trials->front(), 1, &us));
  const int num_calls = std::clamp(static_cast<int>(round_us / std::max(us, 1.0)), 1, max_calls_per_round);
  for (int round = 0; round < rounds; ++round)
    for (Trial& trial : *trials) FLOWK_RETURN_IF_ERROR(time_calls(trial, num_calls, &trial.us[round]));
  for (Trial& trial : *trials) {
    std::nth_element(trial.us, trial.us + rounds / 2, trial.us + rounds);
    trial.median_us = std::round(trial.us[rounds / 2] * 1000) / 1000;
  }
  return {};
}

// Measures, and remembers the fastest plan.
Status tune(const PermuteRequest& request, const Device& device, int32_t max_trials, flowk_stream stream,
            MeasuredTile* measured) {
  PermuteProblem problem;
  make_problem(request, &problem);
  std::vector<Trial> trials = find_trials(problem, device, max_trials);
  for (const Trial& trial : trials) FLOWK_RETURN_IF_ERROR(check_grid("dst", trial.plan.launch));
  FLOWK_RETURN_IF_ERROR(time_trials(stream, &trials));
  const Trial& own = trials.front();
  const Trial* fastest = &*std::min_element(trials.begin(), trials.end(),
                                            [](const Trial& a, const Trial& b) { return a.median_us < b.median_us; });
  if (fastest->median_us >= (1 - min_gain) * own.median_us) fastest = &own;
  *measured = {fastest->src_choice, fastest->dst_choice, own.median_us, fastest->median_us};
  if (trials.size() == 1 || problem.rank > PlanKey::max_key_rank) return {};  // there is no choice to remember
  char gpu[device_name_bytes];
  FLOWK_RETURN_IF_ERROR(current_device_name(&gpu));
  add_measured_plan(PlanKey(problem, device), gpu, *measured);
  return {};
}

Status check_trials(int32_t max_trials) {
  constexpr int32_t max = 4096;
  if (max_trials >= 1 && max_trials <= max) return {};
  return Status::failure(FLOWK_STATUS_INVALID_ARGUMENT, "max_trials = %d, must be in 1 ... %d", max_trials, max);
}

flowk_status check_and_tune(const PermuteArguments& arguments, const PermuteTypes& types, int32_t max_trials,
                            flowk_stream stream, MeasuredTile* measured) {
  return check_plan_run<PermuteRequest>(
      stream,
      [&](PermuteRequest* request, bool* is_empty) -> Status {
        FLOWK_RETURN_IF_ERROR(check_permute_types(types, request));
        FLOWK_RETURN_IF_ERROR(check_trials(max_trials));
        return check_permute(arguments, types, request, is_empty);
      },
      [&](const PermuteRequest& request, const Device& device) {
        return tune(request, device, max_trials, stream, measured);
      });
}

Status save_plans(const char* path) {
  FLOWK_RETURN_IF_ERROR(check_not_null("path", path));
  return save_measured_plans(path);
}

Status load_plans(const char* path, int32_t* num_loaded, int32_t* num_ignored) {
  FLOWK_RETURN_IF_ERROR(check_not_null("path", path));
  Device device;
  char gpu[device_name_bytes];
  FLOWK_RETURN_IF_ERROR(current_device(&device));
  FLOWK_RETURN_IF_ERROR(current_device_name(&gpu));
  int32_t loaded = 0, ignored = 0;
  FLOWK_RETURN_IF_ERROR(load_measured_plans(path, device, gpu, &loaded, &ignored));
  if (num_loaded != nullptr) *num_loaded = loaded;
  if (num_ignored != nullptr) *num_ignored = ignored;
  return {};
}

}  // namespace
}  // namespace flowk::api

using namespace flowk::api;

extern "C" {

flowk_status flowk_permute_tune(const void* src, const int64_t* src_strides, flowk_dtype src_dtype, void* dst,
                                const int64_t* dst_strides, flowk_dtype dst_dtype, int32_t rank, const int64_t* shape,
                                const int32_t* axes, double scale, int32_t max_trials, double* modelled_us,
                                double* measured_us, flowk_stream stream) {
  flowk::permute::MeasuredTile measured;
  const flowk_status status = check_and_tune({src, src_strides, dst, dst_strides, rank, shape, axes},
                                             {src_dtype, dst_dtype, scale}, max_trials, stream, &measured);
  if (status != FLOWK_STATUS_SUCCESS) return status;
  if (modelled_us != nullptr) *modelled_us = measured.modelled_us;
  if (measured_us != nullptr) *measured_us = measured.measured_us;
  return status;
}

flowk_status flowk_plans_save(const char* path) {
  return without_exceptions([&] { return save_plans(path); });
}

flowk_status flowk_plans_load(const char* path, int32_t* num_loaded, int32_t* num_ignored) {
  return without_exceptions([&] { return load_plans(path, num_loaded, num_ignored); });
}

}  // extern "C"
