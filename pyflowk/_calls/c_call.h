// SPDX-License-Identifier: Apache-2.0
// A step of a Program: a call of a C function of libflowk, with its arguments as words, some of which are filled in for
// each call.
#ifndef PYFLOWK_CALLS_C_CALL_H
#define PYFLOWK_CALLS_C_CALL_H

#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { max_words = 24, max_pointers = 16, max_numbers = 4, max_steps = 8 };

// What a word holds; plan_words.py writes them. `value` is
enum {
  word_literal,  // the argument's 64 bits: an integer, an address, a double
  word_pointer,  // the index of an array, whose address it becomes
  word_stream,   // not used: it becomes the stream
  word_number,   // the index of a number, which it becomes as a double
  word_float32,  // the index of a number, whose address as a float32 it becomes
  word_float64,  // the index of a number, whose address it becomes
  word_mask,     // the address of a flowk_softmax_mask, whose arrays are indices of arrays plus 1
};

typedef struct {
  int64_t kind;
  int64_t value;
} PlannedWord;

typedef struct {
  int function;  // its number in c_functions.h
  void *address;
  int num_words;
  PlannedWord words[max_words];
} PlannedCall;

// Calls the functions in turn and returns the first status that is not 0. Releases the GIL meanwhile: a launch into a
// full queue waits, and the CPU executor computes.
int run_steps(const PlannedCall *steps, int num_steps, void *const *pointers, const double *numbers, void *stream);

#endif
