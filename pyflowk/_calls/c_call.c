// SPDX-License-Identifier: Apache-2.0
#include "c_call.h"

#include "flowk/flowk.h"

typedef union {
  int64_t i;
  double d;
  void *p;
} Word;

// The arguments `v` have the types of flowk.h, in its order.
static int call_function(int function, void *address, const Word *v) {
  switch (function) {
#define CALL(name, ...) return ((__typeof__(&name))address)(__VA_ARGS__)
#define p(at) v[at].p
#define n(at) (int32_t)v[at].i
    case 0: CALL(flowk_permute, p(0), p(1), p(2), p(3), n(4), p(5), p(6), n(7), p(8));
    case 1: CALL(flowk_permute_convert, p(0), p(1), n(2), p(3), p(4), n(5), n(6), p(7), p(8), v[9].d, p(10));
    case 2: CALL(flowk_unary, n(0), p(1), p(2), n(3), p(4), p(5), n(6), n(7), p(8), v[9].d, v[10].d, p(11));
    case 3: CALL(flowk_binary, n(0), p(1), p(2), n(3), p(4), p(5), n(6), p(7), p(8), n(9), n(10), p(11), p(12));
    case 4:
      CALL(flowk_ternary, n(0), p(1), p(2), n(3), p(4), p(5), n(6), p(7), p(8), n(9), p(10), p(11), n(12), n(13), p(14),
           v[15].d, p(16));
    case 5: CALL(flowk_prelu, p(0), p(1), p(2), v[3].i, v[4].i, v[5].i, n(6), n(7), p(8));
    case 6:
      CALL(flowk_prelu_backward, p(0), p(1), p(2), p(3), p(4), v[5].i, v[6].i, v[7].i, n(8), n(9), p(10),
           (size_t)v[11].i, p(12));
    case 7: CALL(flowk_masked_softmax, p(0), p(1), n(2), p(3), p(4), n(5), n(6), p(7), v[8].d, p(9), n(10), p(11));
    case 8:
      CALL(flowk_masked_softmax_backward, p(0), p(1), p(2), p(3), n(4), p(5), p(6), n(7), n(8), p(9), v[10].d, p(11),
           n(12), p(13));
#undef n
#undef p
#undef CALL
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
