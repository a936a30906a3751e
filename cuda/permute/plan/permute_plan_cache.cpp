// SPDX-License-Identifier: Apache-2.0
#include "permute/plan/permute_plan_cache.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "permute/plan/measured_plans.h"
#include "permute/plan/shape_log.h"

namespace flowk::permute {

static_assert(sizeof(PlanCache) < 100000);

PlanKey::PlanKey(const PermuteProblem& problem, const Device& device) {
  const auto add = [&](const void* from, size_t bytes) {
    std::memcpy(words + num_words, from, bytes);
    num_words += bytes / sizeof(int64_t);
  };
  uint64_t numbers = 0;
  for (const int64_t number : {int64_t{problem.unit_bytes}, int64_t{problem.dst_unit_bytes},
                               int64_t{problem.is_converted() << 1 | problem.in_double()}, int64_t{problem.rank},
                               static_cast<int64_t>(reinterpret_cast<uintptr_t>(problem.src) % line_bytes),
                               static_cast<int64_t>(reinterpret_cast<uintptr_t>(problem.dst) % line_bytes)})
    numbers = numbers << 8 | static_cast<uint64_t>(number);
  static_assert(sizeof(Device) == 2 * sizeof(int64_t));
  add(&numbers, sizeof(numbers));
  add(&device, sizeof(device));
  for (const int64_t* dims : {problem.extents, problem.src_strides, problem.dst_strides})
    add(dims, sizeof(int64_t) * static_cast<size_t>(problem.rank));
  set_hash();
}

void PlanKey::set_hash() {
  // FNV-1a over words, see http://www.isthe.com/chongo/tech/comp/fnv.
  hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < num_words; ++i) hash = (hash ^ static_cast<uint64_t>(words[i])) * 0x100000001b3;
  hash = (hash ^ hash >> 32) | 1;
}

const PermutePlan* PlanCache::find(const PermuteProblem& problem, const Device& device) {
  if (problem.rank > PlanKey::max_key_rank) return nullptr;
  if (version_ != measured_plans_version()) {
    std::fill(std::begin(hashes_), std::end(hashes_), 0);
    version_ = measured_plans_version();
  }
  const PlanKey key(problem, device);
  for (int i = 0; i < capacity; ++i) {
    Entry& entry = entries_[i];
    if (hashes_[i] != key.hash || !(entry.key == key)) continue;
    const ptrdiff_t src_step = problem.src - entry.src, dst_step = problem.dst - entry.dst;
    std::visit(
        [&](auto& chosen) {
          auto& params = launch_params(chosen.params);
          params.src += src_step;
          params.dst += dst_step;
          if constexpr (requires { params.src_end; }) params.src_end += src_step;
        },
        entry.plan.mechanism);
    entry.src = problem.src;
    entry.dst = problem.dst;
    entry.plan.conversion = problem.conversion;
    return &entry.plan;
  }
  return nullptr;
}

PermutePlan* PlanCache::add(const PermuteProblem& problem, const Device& device) {
  if (problem.rank > PlanKey::max_key_rank) return &not_cached_;
  Entry& entry = entries_[oldest_];
  entry.key = PlanKey(problem, device);
  entry.src = problem.src;
  entry.dst = problem.dst;
  hashes_[oldest_] = entry.key.hash;
  oldest_ = (oldest_ + 1) % capacity;
  return &entry.plan;
}

namespace {

// The plan that was measured, if there is one, or the model's.
void plan_as_measured(const PermuteProblem& problem, const Device& device, PermutePlan* plan) {
  MeasuredTile measured;
  const bool is_measured =
      problem.rank <= PlanKey::max_key_rank && find_measured_plan(PlanKey(problem, device), &measured);
  const bool is_planned =
      is_measured && measured.src_choice >= 0 &&
      plan_tile_candidate(problem, device, measured.src_choice, measured.dst_choice, plan) == TileCandidate::planned;
  if (!is_planned) plan_problem(problem, device, plan);
  plan->measured = measured;
}

}  // namespace

Status cached_plan(const PermuteRequest& request, const Device& device, const PermutePlan** plan) {
  static thread_local PlanCache cache;
  PermuteProblem problem;
  make_problem(request, &problem);
  *plan = cache.find(problem, device);
  if (*plan != nullptr) return {};
  FLOWK_RETURN_IF_ERROR(load_plans_of_environment(device));
  FLOWK_RETURN_IF_ERROR(open_shape_log());
  PermutePlan* added = cache.add(problem, device);
  plan_as_measured(problem, device, added);
  *plan = added;
  if (problem.rank <= PlanKey::max_key_rank && has_other_plans(*added))
    return log_shape(request, PlanKey(problem, device));
  return {};
}

}  // namespace flowk::permute
