// SPDX-License-Identifier: Apache-2.0
#include "c_call.h"

#include "../_native/c_functions.h"

typedef union {
  int64_t i;
  double d;
  void *p;
} Word;

// The words `v` are the function's arguments.
static int call_function(int function, void *address, const Word *v) {
  switch (function) {
#define p(at) v[at].p
#define d(at) v[at].d
#define i(at) v[at].i
#define n(at) (int32_t)v[at].i
#define CASE(number, name, ...) \
  case number: return ((__typeof__(&name))address)(__VA_ARGS__);
#define NO_CASE(name)
    FLOWK_FUNCTIONS(CASE, NO_CASE)
#undef NO_CASE
#undef CASE
#undef n
#undef i
#undef d
#undef p
    default: return FLOWK_STATUS_INTERNAL_ERROR;
  }
}

static int run_step(const PlannedCall *call, void *const *pointers, const double *numbers, void *stream) {
  Word words[max_words];
  float float32[max_numbers];
  flowk_softmax_mask mask;
  for (int i = 0; i < call->num_words; ++i) {
    const int64_t value = call->words[i].value;
    switch (call->words[i].kind) {
      case word_literal: words[i].i = value; break;
      case word_pointer: words[i].p = pointers[value]; break;
      case word_stream: words[i].p = stream; break;
      case word_number: words[i].d = numbers[value]; break;
      case word_float32:
        float32[value] = (float)numbers[value];
        words[i].p = &float32[value];
        break;
      case word_float64: words[i].p = (void *)&numbers[value]; break;
      case word_mask:
        mask = *(const flowk_softmax_mask *)(intptr_t)value;
        if (mask.dense) mask.dense = pointers[(intptr_t)mask.dense - 1];
        if (mask.lengths) mask.lengths = pointers[(intptr_t)mask.lengths - 1];
        if (mask.bias) mask.bias = pointers[(intptr_t)mask.bias - 1];
        words[i].p = &mask;
        break;
      default: return FLOWK_STATUS_INTERNAL_ERROR;
    }
  }
  return call_function(call->function, call->address, words);
}

int run_steps(const PlannedCall *steps, int num_steps, void *const *pointers, const double *numbers, void *stream) {
  int status = 0;
  Py_BEGIN_ALLOW_THREADS;
  for (int i = 0; i < num_steps && status == 0; ++i) status = run_step(&steps[i], pointers, numbers, stream);
  Py_END_ALLOW_THREADS;
  return status;
}
