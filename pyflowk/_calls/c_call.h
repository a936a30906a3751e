// SPDX-License-Identifier: Apache-2.0
// The steps of a Program: calls of C functions of libflowk, or launches of compiled kernels. The arguments are words;
// some of them are filled in for each call.
#ifndef PYFLOWK_CALLS_C_CALL_H
#define PYFLOWK_CALLS_C_CALL_H

#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { max_arguments = 24, max_words = 32, max_pointers = 16, max_numbers = max_arguments, max_steps = 8 };

// What a word of a call is made of; plan_words.py writes them.
enum {
  word_literal,      // the 64 bits of `value`: an integer, an address, a double
  word_pointer,      // the address of array `value` of the call
  word_stream,       // the stream
  word_number,       // number `value` of the call, as a double
  word_float,        // number `value`, as a float32
  word_integer,      // a number, as an integer: `value` is its index, + 256 * bits of its type, + 65536 if unsigned
  word_float32_ptr,  // the address of number `value`, as a float32
  word_float64_ptr,  // the address of number `value`
  word_mask,         // the address of a copy of the flowk_softmax_mask at `value`, whose arrays are indices plus 1
};

typedef struct {
  int64_t kind;
  int64_t value;
} PlannedWord;

// A number of a call; `i` only of an int.
typedef struct {
  double d;
  int64_t i;
} Number;

// PlannedCall::function of a launch of a compiled kernel; `address` is flowk_functor_plan's. The words are those of the
// second enum, the addresses of the arrays (out first), the members of the functor, and the stream.
enum { launch_functor = -1 };
enum {
  functor_launch,   // the address of cuLaunchKernel
  functor_kernels,  // the address of CUkernels, by flowk_functor_launch::kernel and log2 of pack_elements
  functor_strides,  // from here on arguments of flowk_functor_plan()
  functor_dtypes,
  functor_num_arrays,
  functor_rank,
  functor_shape,
  num_functor_words
};

typedef struct {
  int function;  // its number in c_functions.h, or launch_functor
  void *address;
  int num_words;
  PlannedWord words[max_words];
} PlannedCall;

// Calls the functions in turn and returns the first status that is not 0. Releases the GIL while they run, because a
// launch into a full queue waits, and the CPU executor computes.
int run_steps(const PlannedCall *steps, int num_steps, void *const *pointers, const Number *numbers, void *stream);

#endif
