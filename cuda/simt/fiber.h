// SPDX-License-Identifier: Apache-2.0
// Switches between stacks, by a few instructions of x86-64. AddressSanitizer and ThreadSanitizer are told of every
// switch, and Valgrind of every stack if its header is there. setjmp is not used, because _FORTIFY_SOURCE checks it.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__ELF__) || !defined(__x86_64__)
#error "the executor runs on Linux on x86-64"
#endif

namespace flowk::simt {

// A stack that can be switched to: a host thread's own, or a Fiber's.
struct Context {
  void* stack_pointer = nullptr;
  const void* stack_bottom = nullptr;  // the lowest address; known for a host thread once it has been switched from
  std::size_t stack_bytes = 0;
  void* sanitizer_stack = nullptr;
};

struct AsyncCopy {
  void* dst;
  const void* src;
  std::uint32_t bytes;
  std::uint32_t group;
};

// A stack, and the copies that the thread on it still has to do. This struct lies at the top of the stack.
struct Fiber : Context {
  static constexpr std::uint32_t max_copies = 64;

  unsigned valgrind_stack = 0;
  Fiber* next_free = nullptr;
  Fiber* next_made = nullptr;
  std::uint32_t first_copy = 0, end_copy = 0;  // counted without end: copy n is copies[n % max_copies]
  std::uint32_t copy_group = 0;                // the group that is open
  AsyncCopy copies[max_copies];
};

// Makes a fiber that runs entry(), which must not return, after the first switch to it; nullptr if there is no memory.
// Below its stack lies a page without access. `color` varies the stack's place, see fiber.cpp.
Fiber* make_fiber(void (*entry)(), unsigned color);
void free_fiber(Fiber* fiber);
// Makes the fiber run entry() from the start again, and drops what it was doing.
void reset_fiber(Fiber* fiber, void (*entry)());

// Continues `to`. Returns when something switches to `from`. The first thing that a new fiber does is entered_from().
void switch_context(Context& from, Context& to);
void entered_from(Context& from);

}  // namespace flowk::simt
