// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime of two H200 for host code under ThreadSanitizer. It launches nothing, and refuses what a GPU refuses.
// It takes no lock: a lock would order the threads that call it and hide their races.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

namespace stand_in {

constexpr int num_devices = 2, num_kernels = 300;
constexpr int shared_bytes_per_block = 232448, static_shared_bytes = 1024;  // of every kernel

inline thread_local int current = 0;  // the device

// The attributes of a kernel on a device.
struct Attributes {
  std::atomic<int> shared_bytes{48 * 1024};
  std::atomic<bool> may_have_large_clusters{false};
};
inline Attributes attributes[num_devices][num_kernels];
inline std::atomic<int> num_attributes_set = 0, num_launches = 0, num_pdl_launches = 0, last_argument = 0;

inline char kernel_addresses[num_kernels];
using Kernel = void(int);
inline Kernel* kernel(int index) { return reinterpret_cast<Kernel*>(&kernel_addresses[index]); }
inline Attributes& attributes_of(const void* function) {
  return attributes[current][static_cast<const char*>(function) - kernel_addresses];
}

// As cudaDeviceReset() does.
inline void forget_attributes() {
  for (Attributes& kernel : attributes[current]) {
    kernel.shared_bytes = 48 * 1024;
    kernel.may_have_large_clusters = false;
  }
}

}  // namespace stand_in
