// SPDX-License-Identifier: Apache-2.0
// cached_plan(): a small memory of plans in every thread, so that a shape that comes again is not planned again.
#include <cstring>

#include "permute/permute_problem.h"

namespace flowk::permute {
namespace {

// The shapes of a thread that are remembered, the latest: 6 KB each.
constexpr int num_slots = 32;

// All that a plan depends on, pointers only by what they are modulo a line.
struct Key {
  uint64_t hash = 0;  // 0: nothing is remembered
  PermutePlanner planner = nullptr;
  int32_t unit_bytes = 0;
  int32_t dst_unit_bytes = 0;
  int rank = 0;
  uintptr_t src_phase = 0;
  uintptr_t dst_phase = 0;
  Device device;
  int64_t dims[3 * max_rank];  // extents, then strides of src and dst: the first 3 * rank
};

struct Slot {
  Key key;
  const unsigned char* src = nullptr;  // of the problem that the plan holds the pointers of
  unsigned char* dst = nullptr;
  PermutePlan plan;
};

struct Memory {
  uint64_t hashes[num_slots] = {};  // of the slots' keys, side by side for the search
  Slot slots[num_slots];
  int oldest = 0;  // the slot that the next new shape takes

  Slot* find(const Key& key);
};

void make_key(const PermuteProblem& problem, const Device& device, PermutePlanner planner, Key* key) {
  key->planner = planner;
  key->unit_bytes = problem.unit_bytes;
  key->dst_unit_bytes = problem.dst_unit_bytes;
  key->rank = problem.rank;
  key->src_phase = reinterpret_cast<uintptr_t>(problem.src) % line_bytes;
  key->dst_phase = reinterpret_cast<uintptr_t>(problem.dst) % line_bytes;
  key->device = device;
  const size_t bytes = sizeof(int64_t) * static_cast<size_t>(problem.rank);
  std::memcpy(key->dims, problem.extents, bytes);
  std::memcpy(key->dims + problem.rank, problem.src_strides, bytes);
  std::memcpy(key->dims + 2 * problem.rank, problem.dst_strides, bytes);
  // FNV-1a over words, see http://www.isthe.com/chongo/tech/comp/fnv.
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](uint64_t word) { hash = (hash ^ word) * 0x100000001b3; };
  mix(static_cast<uint64_t>(key->unit_bytes) | key->src_phase << 8 | key->dst_phase << 16 |
      static_cast<uint64_t>(key->dst_unit_bytes) << 24);
  for (int i = 0; i < 3 * problem.rank; ++i) mix(static_cast<uint64_t>(key->dims[i]));
  hash ^= hash >> 32;
  key->hash = hash | 1;
}

bool are_equal(const Key& a, const Key& b) {
  return a.hash == b.hash && a.planner == b.planner && a.unit_bytes == b.unit_bytes &&
         a.dst_unit_bytes == b.dst_unit_bytes && a.rank == b.rank && a.src_phase == b.src_phase &&
         a.dst_phase == b.dst_phase && a.device == b.device &&
         std::memcmp(a.dims, b.dims, sizeof(int64_t) * 3 * static_cast<size_t>(a.rank)) == 0;
}

Slot* Memory::find(const Key& key) {
  for (int i = 0; i < num_slots; ++i)
    if (hashes[i] == key.hash && are_equal(slots[i].key, key)) return &slots[i];
  return nullptr;
}

void move_pointers(const PermuteProblem& problem, Slot* slot) {
  const ptrdiff_t src_step = problem.src - slot->src, dst_step = problem.dst - slot->dst;
  const auto move = [&](auto* params) {
    if (params->src == nullptr) return;  // another kernel's
    params->src += src_step;
    params->dst += dst_step;
    if constexpr (requires { params->src_end; }) params->src_end += src_step;
  };
  move(&slot->plan.copy);
  move(&slot->plan.tile);
  move(&slot->plan.channels);
  slot->src = problem.src;
  slot->dst = problem.dst;
}

}  // namespace

const PermutePlan& cached_plan(const PermuteRequest& request, const Device& device) {
  PermuteProblem problem;
  make_problem(request, &problem);
  return cached_plan(problem, device, plan_problem);
}

const PermutePlan& cached_plan(const PermuteProblem& problem, const Device& device, PermutePlanner planner) {
  static thread_local Memory memory;
  Key key;
  make_key(problem, device, planner, &key);
  Slot* slot = memory.find(key);
  if (slot != nullptr) {
    move_pointers(problem, slot);
    return slot->plan;
  }
  slot = &memory.slots[memory.oldest];
  memory.hashes[memory.oldest] = key.hash;
  memory.oldest = (memory.oldest + 1) % num_slots;
  slot->plan = PermutePlan();
  planner(problem, device, &slot->plan);
  slot->key = key;
  slot->src = problem.src;
  slot->dst = problem.dst;
  return slot->plan;
}

}  // namespace flowk::permute
