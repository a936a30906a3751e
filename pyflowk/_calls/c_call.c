// SPDX-License-Identifier: Apache-2.0
#include "c_call.h"

#include <stdbool.h>

#include "../_native/c_functions.h"

typedef union {
  int64_t i;
  double d;
  float f;
  void *p;
} Word;

// cuLaunchKernel
typedef int LaunchKernel(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **parameters,
                         void **extra);

enum { num_pack_sizes = 5, max_functor_arrays = 4 };  // packs of 1, 2, 4, 8 and 16 elements

// Plans and launches a compiled kernel. A call of several launches, and one whose kernel is not compiled yet, have a
// status: they run in Python.
static int run_functor(const PlannedCall *call, Word *v) {
  flowk_functor_launch launch;
  launch.struct_bytes = sizeof launch;
  launch.params_version = FLOWK_FUNCTOR_PARAMS_VERSION;
  const void *pointers[max_functor_arrays];
  const int num_arrays = (int)v[functor_num_arrays].i;
  Word *const arrays = v + num_functor_words;
  for (int k = 0; k < num_arrays; ++k) pointers[k] = arrays[k].p;
  const int status =
      ((__typeof__(&flowk_functor_plan))call->address)(pointers, v[functor_strides].p, v[functor_dtypes].p, num_arrays,
                                                       (int32_t)v[functor_rank].i, v[functor_shape].p, 0, &launch);
  if (status != 0 || launch.num_parts == 0) return status;
  void *const *kernels = v[functor_kernels].p;
  void *kernel = kernels[launch.kernel * num_pack_sizes + __builtin_ctz((unsigned)launch.pack_elements)];
  if (launch.num_parts > 1 || !kernel) return FLOWK_STATUS_INTERNAL_ERROR;
  void *parameters[] = {launch.params, arrays + num_arrays};
  return ((LaunchKernel *)v[functor_launch].p)(kernel, (unsigned)launch.num_blocks, 1, 1, (unsigned)launch.num_threads,
                                               1, 1, (unsigned)launch.shared_bytes, v[call->num_words - 1].p,
                                               parameters, NULL);
}

// The words `v` are the function's arguments.
static int call_function(const PlannedCall *call, Word *v) {
  switch (call->function) {
    case launch_functor: return run_functor(call, v);
#define p(at) v[at].p
#define d(at) v[at].d
#define i(at) v[at].i
#define n(at) (int32_t)v[at].i
#define CASE(number, name, ...) \
  case number: return ((__typeof__(&name))call->address)(__VA_ARGS__);
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

static bool holds_integer(int bits, bool is_unsigned, int64_t number) {
  if (is_unsigned) return number >= 0 && (bits == 64 || number >> bits == 0);
  return number >> (bits - 1) == 0 || number >> (bits - 1) == -1;
}

// A number that its type does not hold gives a status; then Python raises the exception.
static int run_step(const PlannedCall *call, void *const *pointers, const Number *numbers, void *stream) {
  Word words[max_words];
  float float32[max_numbers];
  flowk_softmax_mask mask;
  for (int i = 0; i < call->num_words; ++i) {
    const int64_t value = call->words[i].value;
    switch (call->words[i].kind) {
      case word_literal: words[i].i = value; break;
      case word_pointer: words[i].p = pointers[value]; break;
      case word_stream: words[i].p = stream; break;
      case word_number: words[i].d = numbers[value].d; break;
      case word_float: words[i].f = (float)numbers[value].d; break;
      case word_integer:
        words[i].i = numbers[value % 256].i;
        if (!holds_integer((int)(value >> 8 & 255), value >> 16, words[i].i)) return FLOWK_STATUS_INVALID_ARGUMENT;
        break;
      case word_float32_ptr:
        float32[value] = (float)numbers[value].d;
        words[i].p = &float32[value];
        break;
      case word_float64_ptr: words[i].p = (void *)&numbers[value].d; break;
      case word_mask:
        mask = *(const flowk_softmax_mask *)(intptr_t)value;
        if (mask.dense) mask.dense = pointers[(intptr_t)mask.dense - 1];
        if (mask.lengths) mask.lengths = pointers[(intptr_t)mask.lengths - 1];
        if (mask.bias) mask.bias = pointers[(intptr_t)mask.bias - 1];
        if (mask.lse) mask.lse = pointers[(intptr_t)mask.lse - 1];
        if (mask.dlse) mask.dlse = pointers[(intptr_t)mask.dlse - 1];
        if (mask.sinks) mask.sinks = pointers[(intptr_t)mask.sinks - 1];
        if (mask.row_scale) mask.row_scale = pointers[(intptr_t)mask.row_scale - 1];
        if (mask.dsinks) mask.dsinks = pointers[(intptr_t)mask.dsinks - 1];
        if (mask.x) mask.x = pointers[(intptr_t)mask.x - 1];
        words[i].p = &mask;
        break;
      default: return FLOWK_STATUS_INTERNAL_ERROR;
    }
  }
  return call_function(call, words);
}

int run_steps(const PlannedCall *steps, int num_steps, void *const *pointers, const Number *numbers, void *stream) {
  int status = 0;
  Py_BEGIN_ALLOW_THREADS;
  for (int i = 0; i < num_steps && status == 0; ++i) status = run_step(&steps[i], pointers, numbers, stream);
  Py_END_ALLOW_THREADS;
  return status;
}
