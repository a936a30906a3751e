// SPDX-License-Identifier: Apache-2.0
#include "simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define FLOWK_SIMT_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FLOWK_SIMT_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define FLOWK_SIMT_TSAN
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define FLOWK_SIMT_TSAN
#endif

#ifdef FLOWK_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FLOWK_SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// Tells Valgrind of the stacks. Otherwise it takes a switch for a huge frame.
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_STACK_REGISTER(start, end) 0
#define VALGRIND_STACK_DEREGISTER(id) (void)(id)
#define VALGRIND_MAKE_MEM_UNDEFINED(start, bytes)
#endif

// Saves the callee-saved registers on the running stack and the stack pointer in *save, and continues on stack `load`.
extern "C" void flowk_simt_switch(void** save, void* load);

asm(R"(
.text
.globl flowk_simt_switch
.hidden flowk_simt_switch
.type flowk_simt_switch, @function
flowk_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size flowk_simt_switch, .-flowk_simt_switch
)");
// Words from the stack pointer: six registers, the return address, then the 0 that ends a backtrace.
static constexpr std::size_t frame_words = 8, entry_word = 6;

namespace flowk::simt {
namespace {

#ifdef FLOWK_SIMT_ASAN
constexpr std::size_t mapping_bytes = 256 * 1024;  // redzones make frames several times larger
#else
constexpr std::size_t mapping_bytes = 64 * 1024;
#endif

std::size_t page_bytes() {
  static const std::size_t bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

Fiber* make_fiber(void (*entry)(), unsigned color) {
  void* mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  if (mprotect(mapping, page_bytes(), PROT_NONE) != 0) {
    munmap(mapping, mapping_bytes);
    return nullptr;
  }
  constexpr std::size_t fiber_bytes = (sizeof(Fiber) + 63) / 64 * 64;
  static_assert(fiber_bytes <= 8192);
  // Stacks a power of two apart would put the frames of all threads of a block into the same few cache sets.
  const std::size_t color_bytes = (color * 448u) % 8192;
  Fiber* fiber = new (static_cast<unsigned char*>(mapping) + mapping_bytes - color_bytes - fiber_bytes) Fiber;
  fiber->stack_bottom = static_cast<unsigned char*>(mapping) + page_bytes();
  fiber->stack_bytes = mapping_bytes - page_bytes() - color_bytes - fiber_bytes;
  fiber->valgrind_stack = VALGRIND_STACK_REGISTER(
      fiber->stack_bottom, static_cast<const unsigned char*>(fiber->stack_bottom) + fiber->stack_bytes);
  reset_fiber(fiber, entry);
  return fiber;
}

void free_fiber(Fiber* fiber) {
#ifdef FLOWK_SIMT_ASAN
  __asan_unpoison_memory_region(fiber->stack_bottom, fiber->stack_bytes);
#endif
  VALGRIND_STACK_DEREGISTER(fiber->valgrind_stack);
#ifdef FLOWK_SIMT_TSAN
  __tsan_destroy_fiber(fiber->sanitizer_stack);
#endif
  const unsigned char* bottom = static_cast<const unsigned char*>(fiber->stack_bottom);
  munmap(const_cast<unsigned char*>(bottom - page_bytes()), mapping_bytes);
}

void reset_fiber(Fiber* fiber, void (*entry)()) {
#ifdef FLOWK_SIMT_ASAN
  __asan_unpoison_memory_region(fiber->stack_bottom, fiber->stack_bytes);  // redzones of the frames that are dropped
#endif
  VALGRIND_MAKE_MEM_UNDEFINED(fiber->stack_bottom, fiber->stack_bytes);  // what returned frames left without access
#ifdef FLOWK_SIMT_TSAN
  if (fiber->sanitizer_stack != nullptr) __tsan_destroy_fiber(fiber->sanitizer_stack);
  fiber->sanitizer_stack = __tsan_create_fiber(0);
#else
  fiber->sanitizer_stack = nullptr;
#endif
  const auto top = (reinterpret_cast<std::uintptr_t>(fiber->stack_bottom) + fiber->stack_bytes) / 16 * 16;
  auto* frame = reinterpret_cast<std::uintptr_t*>(top) - frame_words;
  for (std::size_t word = 0; word < frame_words; ++word) frame[word] = 0;
  frame[entry_word] = reinterpret_cast<std::uintptr_t>(entry);
  fiber->stack_pointer = frame;
}

void switch_context(Context& from, Context& to) {
#ifdef FLOWK_SIMT_ASAN
  __sanitizer_start_switch_fiber(&from.sanitizer_stack, to.stack_bottom, to.stack_bytes);
#endif
#ifdef FLOWK_SIMT_TSAN
  from.sanitizer_stack = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.sanitizer_stack, 0);
#endif
  flowk_simt_switch(&from.stack_pointer, to.stack_pointer);
#ifdef FLOWK_SIMT_ASAN
  __sanitizer_finish_switch_fiber(from.sanitizer_stack, nullptr, nullptr);
#endif
}

void entered_from(Context& from) {
#ifdef FLOWK_SIMT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &from.stack_bottom, &from.stack_bytes);
#else
  (void)from;
#endif
}

}  // namespace flowk::simt
