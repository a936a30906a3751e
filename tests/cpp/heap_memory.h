// SPDX-License-Identifier: Apache-2.0
// A tensor's memory that ends where the tensor does, so that AddressSanitizer sees the first byte too many.
#pragma once

#include <cstddef>
#include <cstdlib>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

// `num_bytes` from a multiple of 128 on, and not one more.
class HeapMemory {
 public:
  explicit HeapMemory(size_t num_bytes) : num_bytes_(num_bytes) {
    void* bytes = nullptr;
    if (posix_memalign(&bytes, 128, num_bytes_) != 0) std::abort();
    bytes_ = static_cast<unsigned char*>(bytes);
  }
  HeapMemory(const HeapMemory&) = delete;
  HeapMemory& operator=(const HeapMemory&) = delete;
  ~HeapMemory() {
    ASAN_UNPOISON_MEMORY_REGION(bytes_, num_poisoned_);
    std::free(bytes_);
  }
  // Nothing may access the first `num_bytes` from now on.
  void poison(size_t num_bytes) {
    num_poisoned_ = num_bytes;
    ASAN_POISON_MEMORY_REGION(bytes_, num_poisoned_);
  }

  unsigned char* bytes() const { return bytes_; }
  size_t num_bytes() const { return num_bytes_; }
  size_t num_poisoned() const { return num_poisoned_; }

 private:
  size_t num_bytes_, num_poisoned_ = 0;
  unsigned char* bytes_ = nullptr;
};
