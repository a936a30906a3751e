// SPDX-License-Identifier: Apache-2.0
// KernelSet: the kernels for which something is done, on each device. A launch asks it: one atomic load, as a rule.
#pragma once

#include <atomic>
#include <cstdint>

namespace flowk::detail {

// Threads may call both functions at once. A set without room for a kernel leaves it out, and so does one for a device
// of a number past the last: what is done for the kernel is then done again at each launch.
class KernelSet {
 public:
  bool contains(const void* kernel, int device) const {
    for (int i = 0; device < max_devices && i < num_slots; ++i) {
      const void* const held = slots_[device][slot(kernel, i)].load(std::memory_order_acquire);
      if (held == kernel) return true;
      if (held == nullptr) return false;
    }
    return false;
  }

  void insert(const void* kernel, int device) {
    for (int i = 0; device < max_devices && i < num_slots; ++i) {
      const void* held = nullptr;
      if (slots_[device][slot(kernel, i)].compare_exchange_strong(held, kernel) || held == kernel) return;
    }
  }

 private:
  static constexpr int max_devices = 64, num_slots = 256;

  // The i-th slot that may hold the kernel.
  static int slot(const void* kernel, int i) {
    const uint64_t hash = reinterpret_cast<uintptr_t>(kernel) * uint64_t{0x9e3779b97f4a7c15};  // 2^64 / golden ratio
    return (static_cast<int>(hash >> 56) + i) % num_slots;
  }

  std::atomic<const void*> slots_[max_devices][num_slots] = {};
};

}  // namespace flowk::detail
