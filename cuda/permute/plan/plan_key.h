// SPDX-License-Identifier: Apache-2.0
// Everything that a plan depends on, as numbers. A pointer counts by its offset in a line of memory.
#pragma once

#include <cstring>

#include "permute/plan/permute_problem.h"

namespace flowk::permute {

struct PlanKey {
  // Problems of more dimensions have no key. After simplification few tensors have that many.
  static constexpr int max_key_rank = 12;

  uint64_t hash = 0;  // 0: no plan
  size_t num_words = 0;
  static constexpr int num_fixed_words = 3;
  int64_t words[num_fixed_words + 3 * max_key_rank];  // packed numbers, the device; extents, strides of src and of dst

  PlanKey() = default;
  PlanKey(const PermuteProblem& problem, const Device& device);
  int rank() const { return static_cast<int>(words[0] >> 16 & 0xff); }
  bool is_of_device(const PlanKey& other) const { return std::memcmp(words + 1, other.words + 1, sizeof(Device)) == 0; }
  void set_hash();
  bool operator==(const PlanKey& other) const {
    return hash == other.hash && num_words == other.num_words &&
           std::memcmp(words, other.words, sizeof(int64_t) * num_words) == 0;
  }
};

}  // namespace flowk::permute
