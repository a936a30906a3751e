// SPDX-License-Identifier: Apache-2.0
// cached_plan(): the last 32 plans of every thread.
#include <cstring>

#include "permute/plan/permute_problem.h"

namespace flowk::permute {
namespace {

constexpr int num_slots = 32;

// Problems of more dimensions, which no usual tensor has once it is simplified, are planned at every call.
constexpr int max_cached_rank = 12;

// Everything that a plan depends on. Of a pointer that is its offset in a line.
struct Key {
  uint64_t hash = 0;     // 0: no plan
  uint64_t scalars = 0;  // sizes of units, rank, flags and offsets, packed
  Device device;
  int64_t dims[3 * max_cached_rank];  // extents, then strides of src and dst: the first 3 * rank
};

struct Slot {
  Key key;
  const unsigned char* src = nullptr;  // the pointers in the plan
  unsigned char* dst = nullptr;
  PermutePlan plan;
};

struct Cache {
  uint64_t hashes[num_slots] = {};  // of the slots' keys, side by side for the search
  Slot slots[num_slots];
  PermutePlan not_cached;
  int oldest = 0;  // the slot that the next new problem takes

  Slot* find(const Key& key, int rank);
};
static_assert(sizeof(Cache) < 100000);

void make_key(const PermuteProblem& problem, const Device& device, Key* key) {
  const auto pack = [&](int64_t value) { key->scalars = key->scalars << 8 | static_cast<uint64_t>(value); };
  pack(problem.unit_bytes);
  pack(problem.dst_unit_bytes);
  pack(problem.is_converted << 1 | problem.in_double);
  pack(problem.rank);
  pack(reinterpret_cast<uintptr_t>(problem.src) % line_bytes);
  pack(reinterpret_cast<uintptr_t>(problem.dst) % line_bytes);
  key->device = device;
  const size_t bytes = sizeof(int64_t) * static_cast<size_t>(problem.rank);
  std::memcpy(key->dims, problem.extents, bytes);
  std::memcpy(key->dims + problem.rank, problem.src_strides, bytes);
  std::memcpy(key->dims + 2 * problem.rank, problem.dst_strides, bytes);
  // FNV-1a over words, see http://www.isthe.com/chongo/tech/comp/fnv.
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](uint64_t word) { hash = (hash ^ word) * 0x100000001b3; };
  mix(key->scalars);
  for (int i = 0; i < 3 * problem.rank; ++i) mix(static_cast<uint64_t>(key->dims[i]));
  hash ^= hash >> 32;
  key->hash = hash | 1;
}

bool are_equal(const Key& a, const Key& b, int rank) {
  return a.scalars == b.scalars && a.device == b.device &&
         std::memcmp(a.dims, b.dims, sizeof(int64_t) * 3 * static_cast<size_t>(rank)) == 0;
}

Slot* Cache::find(const Key& key, int rank) {
  for (int i = 0; i < num_slots; ++i)
    if (hashes[i] == key.hash && are_equal(slots[i].key, key, rank)) return &slots[i];
  return nullptr;
}

// Moves the plan's pointers to those of the problem.
void move_pointers(const PermuteProblem& problem, Slot* slot) {
  const ptrdiff_t src_step = problem.src - slot->src, dst_step = problem.dst - slot->dst;
  std::visit(
      [&](auto& chosen) {
        chosen.params.src += src_step;
        chosen.params.dst += dst_step;
        if constexpr (requires { chosen.params.src_end; }) chosen.params.src_end += src_step;
      },
      slot->plan.mechanism);
  slot->src = problem.src;
  slot->dst = problem.dst;
}

}  // namespace

const PermutePlan& cached_plan(const PermuteRequest& request, const Device& device) {
  PermuteProblem problem;
  make_problem(request, &problem);
  return cached_plan(problem, device);
}

const PermutePlan& cached_plan(const PermuteProblem& problem, const Device& device, PermutePlanner planner) {
  static thread_local Cache cache;
  if (problem.rank > max_cached_rank) {
    planner(problem, device, &cache.not_cached);
    return cache.not_cached;
  }
  Key key;
  make_key(problem, device, &key);
  Slot* slot = cache.find(key, problem.rank);
  if (slot != nullptr) {
    move_pointers(problem, slot);
    return slot->plan;
  }
  slot = &cache.slots[cache.oldest];
  cache.hashes[cache.oldest] = key.hash;
  cache.oldest = (cache.oldest + 1) % num_slots;
  planner(problem, device, &slot->plan);
  slot->key = key;
  slot->src = problem.src;
  slot->dst = problem.dst;
  return slot->plan;
}

}  // namespace flowk::permute
