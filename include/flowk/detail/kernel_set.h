// SPDX-License-Identifier: Apache-2.0
// KernelSet: a set of kernels for each device. A launch looks a kernel up, which is one atomic load as a rule.
#pragma once

#include <atomic>
#include <cstdint>

namespace flowk::detail {

// Threads may call both functions at once. A kernel is not kept if the set is full or the device number is too large:
// then its attributes are set at each launch.
class KernelSet {
 public:
  bool contains(const void* kernel, int device) const {
    for (int i = 0; device < max_devices && i < capacity; ++i) {
      const void* const held = entries_[device][entry(kernel, i)].load(std::memory_order_acquire);
      if (held == kernel) return true;
      if (held == nullptr) return false;
    }
    return false;
  }

  void insert(const void* kernel, int device) {
    for (int i = 0; device < max_devices && i < capacity; ++i) {
      const void* held = nullptr;
      if (entries_[device][entry(kernel, i)].compare_exchange_strong(held, kernel) || held == kernel) return;
    }
  }

 private:
  static constexpr int max_devices = 64, capacity = 256;

  // The i-th entry that may hold the kernel.
  static int entry(const void* kernel, int i) {
    const uint64_t hash = reinterpret_cast<uintptr_t>(kernel) * uint64_t{0x9e3779b97f4a7c15};  // 2^64 / golden ratio
    return (static_cast<int>(hash >> 56) + i) % capacity;
  }

  std::atomic<const void*> entries_[max_devices][capacity] = {};
};

}  // namespace flowk::detail
