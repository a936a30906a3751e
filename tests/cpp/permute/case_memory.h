// SPDX-License-Identifier: Apache-2.0
// A tensor's memory that ends where the tensor does, so that AddressSanitizer sees the first byte too many.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "permute_case.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

// One side's memory, on the heap: `lead_bytes` from a multiple of 128, then the elements' bytes and not one more. A
// vector of 16 bytes that holds a byte of the tensor may be read whole, but what lies before the first such vector may
// not.
class Memory {
 public:
  explicit Memory(const CaseSide& side)
      : num_bytes_(static_cast<size_t>(side.lead_bytes + side.span_bytes)),
        num_poisoned_(static_cast<size_t>(side.lead_bytes / 16 * 16)),
        first_(static_cast<size_t>(side.lead_bytes + side.first_bytes)) {
    void* bytes = nullptr;
    if (posix_memalign(&bytes, 128, num_bytes_) != 0) std::abort();
    bytes_ = static_cast<unsigned char*>(bytes);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    ASAN_UNPOISON_MEMORY_REGION(bytes_, num_poisoned_);
    std::free(bytes_);
  }
  void poison_what_lies_before() { ASAN_POISON_MEMORY_REGION(bytes_, num_poisoned_); }

  unsigned char* first() const { return bytes_ + first_; }  // the element with all indices 0
  unsigned char* bytes() const { return bytes_; }
  size_t num_bytes() const { return num_bytes_; }

 private:
  size_t num_bytes_, num_poisoned_, first_;
  unsigned char* bytes_ = nullptr;
};
