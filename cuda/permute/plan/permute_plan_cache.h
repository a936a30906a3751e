// SPDX-License-Identifier: Apache-2.0
// The last plans of a thread, by everything that they depend on.
#pragma once

#include "permute/plan/plan_key.h"

namespace flowk::permute {

class PlanCache {
 public:
  static constexpr int capacity = 32;

  // The plan of an equal problem, with this problem's pointers, types and scale; null if the cache has none.
  const PermutePlan* find(const PermuteProblem& problem, const Device& device);

  // Where to put the plan of a problem that find() did not find. It replaces the oldest.
  PermutePlan* add(const PermuteProblem& problem, const Device& device);

 private:
  struct Entry {
    PlanKey key;
    const unsigned char* src = nullptr;  // the pointers in the plan
    unsigned char* dst = nullptr;
    PermutePlan plan;
  };

  uint64_t hashes_[capacity] = {};  // of the entries' keys, next to each other for the search
  Entry entries_[capacity];
  PermutePlan not_cached_;
  int oldest_ = 0;        // the entry that the next new problem takes
  uint64_t version_ = 0;  // of the measured plans: entries of another version are dropped
};

}  // namespace flowk::permute
