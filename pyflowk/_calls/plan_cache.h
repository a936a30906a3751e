// SPDX-License-Identifier: Apache-2.0
// The plans of calls, by what is called and the key of its arguments.
//
// Everything here runs under the GIL. A plan that is in use is kept while run_steps() gives the GIL up.
#ifndef PYFLOWK_CALLS_PLAN_CACHE_H
#define PYFLOWK_CALLS_PLAN_CACHE_H

#include "call_values.h"

enum { max_new_arrays = 8 };

// A new array of a call.
typedef struct {
  int pointer;          // the index of its address
  int result;           // the index of the result that it is; -1: a temporary
  PyObject *make;       // NULL: the exchange API makes it, as `like` says
  PyObject *arguments;  // NULL: the first array
  PyObject *options;
  const int64_t *like;  // rank, shape and strides
} NewArray;

typedef struct {
  const void *owner;
  uint64_t hash;
  int num_users;      // the cache, and the calls that are running it
  bool is_cacheable;  // false: the call runs in Python every time
  int num_steps, num_new_arrays, num_results;
  PlannedCall *steps;
  NewArray new_arrays[max_new_arrays];
  PyObject *default_dtype;  // the default dtype of torch that the plan is for; NULL: any
  PyObject *operator;       // its name in torch; NULL: it is none
  // Of a call that torch sees, instead of steps: what is called with the arguments of `template`, also under autocast
  // if `under_autocast` is NULL. For each argument, `template` has (the index of an input or -1, the argument).
  PyObject *under_autograd, *under_autocast, *template;
  bool by_operator;
  PyObject *keep_alive;  // what the steps and the key point to
  int num_key_words;
  uint64_t key[];
} Plan;

uint64_t hash_of(const void *owner, const CallValues *values);
Plan *find_plan(const void *owner, const CallValues *values, uint64_t hash);

// Adds the plan that plan_words.py made of a Program: (steps, new arrays, number of results, default dtype, operator,
// what to keep alive). Of a call that torch sees: (under_autograd, under_autocast, template, what to keep alive). None
// says that the call runs in Python every time, False that this call does. If the plan cannot be kept, the next call
// asks again.
void add_plan(const void *owner, CallValues *values, uint64_t hash, PyObject *plan_of_python);

// Ends one use of a plan. NULL is no plan.
void release_plan(Plan *plan);

// Drops the plans of `owner`; of NULL, all plans.
void forget_plans(const void *owner);
long count_cacheable_plans(void);

// Reads a step as plan_words.py makes it; false with an exception.
bool take_step(PyObject *tuple, PlannedCall *call);

// The object with a new reference, NULL for None.
PyObject *object_or_null(PyObject *object);

#endif
