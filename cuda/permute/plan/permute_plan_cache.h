// SPDX-License-Identifier: Apache-2.0
// The last plans of a thread, by everything that they depend on.
#pragma once

#include "permute/plan/permute_problem.h"

namespace flowk::permute {

class PlanCache {
 public:
  static constexpr int capacity = 32;

  // The plan of an equal problem, with this problem's pointers; null if the cache has none.
  const PermutePlan* find(const PermuteProblem& problem, const Device& device);

  // Where to put the plan of a problem that find() did not find. It replaces the oldest.
  PermutePlan* add(const PermuteProblem& problem, const Device& device);

 private:
  // Problems of more dimensions, which no usual tensor has once it is simplified, are planned at every call.
  static constexpr int max_rank_cached = 12;

  // Everything that a plan depends on. Of a pointer that is its offset in a line.
  struct Key {
    uint64_t hash = 0;  // 0: no plan
    size_t num_bytes = 0;
    int64_t words[3 + 3 * max_rank_cached];  // packed numbers, the device, extents, strides of src and dst
    Key() = default;
    Key(const PermuteProblem& problem, const Device& device);
  };
  struct Entry {
    Key key;
    const unsigned char* src = nullptr;  // the pointers in the plan
    unsigned char* dst = nullptr;
    PermutePlan plan;
  };

  uint64_t hashes_[capacity] = {};  // of the entries' keys, next to each other for the search
  Entry entries_[capacity];
  PermutePlan not_cached_;
  int oldest_ = 0;  // the entry that the next new problem takes
};

}  // namespace flowk::permute
