// SPDX-License-Identifier: Apache-2.0
#include "plan_cache.h"

#include <stdlib.h>
#include <string.h>

// A plan takes about 1 KB. The oldest plan of a set makes room for a new one.
enum { num_sets = 1024, plans_per_set = 4 };
static Plan *plans[num_sets][plans_per_set];  // the latest first

void release_plan(Plan *plan) {
  if (!plan || --plan->num_users > 0) return;
  for (int i = 0; i < plan->num_new_arrays; ++i) {
    Py_XDECREF(plan->new_arrays[i].make);
    Py_XDECREF(plan->new_arrays[i].arguments);
    Py_XDECREF(plan->new_arrays[i].options);
  }
  Py_XDECREF(plan->default_dtype);
  Py_XDECREF(plan->operator);
  Py_XDECREF(plan->under_autograd);
  Py_XDECREF(plan->under_autocast);
  Py_XDECREF(plan->template);
  Py_XDECREF(plan->keep_alive);
  free(plan->steps);
  free(plan);
}

uint64_t hash_of(const void *owner, const CallValues *values) {
  uint64_t hash = (uint64_t)(uintptr_t)owner;
  for (int i = 0; i < values->num_key_words; ++i) {
    hash = (hash ^ values->key[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

Plan *find_plan(const void *owner, const CallValues *values, uint64_t hash) {
  Plan **set = plans[hash % num_sets];
  for (int i = 0; i < plans_per_set && set[i]; ++i) {
    Plan *plan = set[i];
    if (plan->hash != hash || plan->owner != owner || plan->by_operator != values->by_operator) continue;
    if (plan->num_key_words != values->num_key_words) continue;
    if (memcmp(plan->key, values->key, (size_t)values->num_key_words * sizeof *plan->key) != 0) continue;
    if (i > 0) {
      memmove(set + 1, set, (size_t)i * sizeof *set);
      set[0] = plan;
    }
    return plan;
  }
  return NULL;
}

static void insert_plan(Plan *plan) {
  Plan **set = plans[plan->hash % num_sets];
  Plan *oldest = set[plans_per_set - 1];
  memmove(set + 1, set, (plans_per_set - 1) * sizeof *set);
  set[0] = plan;
  release_plan(oldest);
}

void forget_plans(const void *owner) {
  for (int i = 0; i < num_sets; ++i) {
    Plan *dropped[plans_per_set] = {0};
    for (int j = 0, num_left = 0; j < plans_per_set; ++j) {
      Plan *plan = plans[i][j];
      plans[i][j] = NULL;
      if (plan && owner && plan->owner != owner)
        plans[i][num_left++] = plan;
      else
        dropped[j] = plan;
    }
    for (int j = 0; j < plans_per_set; ++j) release_plan(dropped[j]);  // which may run Python code
  }
}

long count_cacheable_plans(void) {
  long count = 0;
  for (int i = 0; i < num_sets; ++i)
    for (int j = 0; j < plans_per_set; ++j) count += plans[i][j] && plans[i][j]->is_cacheable;
  return count;
}

// ---- a plan from Python ---------------------------------------------------------------------------------------------

PyObject *object_or_null(PyObject *object) {
  if (object == Py_None) return NULL;
  Py_INCREF(object);
  return object;
}

// (function, address, words)
bool take_step(PyObject *tuple, PlannedCall *call) {
  unsigned long long address;
  const char *words;
  Py_ssize_t num_bytes;
  if (!PyArg_ParseTuple(tuple, "iKy#", &call->function, &address, &words, &num_bytes)) return false;
  if ((size_t)num_bytes > sizeof call->words) {
    PyErr_SetString(PyExc_ValueError, "too many words");
    return false;
  }
  call->address = (void *)(uintptr_t)address;
  call->num_words = (int)((size_t)num_bytes / sizeof *call->words);
  memcpy(call->words, words, (size_t)num_bytes);
  return true;
}

// (pointer, result, make, arguments, options, like)
static bool take_new_array(PyObject *tuple, NewArray *array) {
  PyObject *make, *arguments, *options;
  unsigned long long like;
  if (!PyArg_ParseTuple(tuple, "iiOOOK", &array->pointer, &array->result, &make, &arguments, &options, &like))
    return false;
  if (array->pointer >= max_pointers || array->result >= max_outs) {
    PyErr_SetString(PyExc_ValueError, "too many arrays");
    return false;
  }
  array->make = object_or_null(make);
  array->arguments = object_or_null(arguments);
  array->options = object_or_null(options);
  array->like = (const int64_t *)(uintptr_t)like;
  return true;
}

static bool fill_operator_call(Plan *plan, PyObject *plan_of_python) {
  PyObject *under_autograd, *under_autocast, *template, *keep_alive;
  if (!PyArg_ParseTuple(plan_of_python, "OOO!O", &under_autograd, &under_autocast, &PyTuple_Type, &template,
                        &keep_alive))
    return false;
  plan->under_autograd = object_or_null(under_autograd);
  plan->under_autocast = object_or_null(under_autocast);
  plan->template = object_or_null(template);
  plan->keep_alive = object_or_null(keep_alive);
  plan->is_cacheable = PyTuple_Size(template) <= max_arguments;
  return true;
}

static bool fill_plan(Plan *plan, PyObject *plan_of_python) {
  if (plan_of_python == Py_None) return true;
  if (PyTuple_Size(plan_of_python) == 4) return fill_operator_call(plan, plan_of_python);
  PyObject *steps, *new_arrays, *default_dtype, *operator, *keep_alive;
  if (!PyArg_ParseTuple(plan_of_python, "O!O!iOOO", &PyTuple_Type, &steps, &PyTuple_Type, &new_arrays,
                        &plan->num_results, &default_dtype, &operator, &keep_alive))
    return false;
  const Py_ssize_t num_steps = PyTuple_Size(steps), num_new_arrays = PyTuple_Size(new_arrays);
  if (num_steps > max_steps || num_new_arrays > max_new_arrays) return true;
  plan->default_dtype = object_or_null(default_dtype);
  plan->operator = object_or_null(operator);
  plan->keep_alive = object_or_null(keep_alive);
  plan->steps = calloc((size_t)num_steps, sizeof *plan->steps);
  for (; plan->num_steps < num_steps; ++plan->num_steps)
    if (!plan->steps || !take_step(PyTuple_GetItem(steps, plan->num_steps), &plan->steps[plan->num_steps]))
      return false;
  for (; plan->num_new_arrays < num_new_arrays; ++plan->num_new_arrays)
    if (!take_new_array(PyTuple_GetItem(new_arrays, plan->num_new_arrays), &plan->new_arrays[plan->num_new_arrays]))
      return false;
  plan->is_cacheable = true;
  return true;
}

void add_plan(const void *owner, CallValues *values, uint64_t hash, PyObject *plan_of_python) {
  const size_t key_bytes = (size_t)values->num_key_words * sizeof *values->key;
  if (PyTuple_Check(plan_of_python)) values->by_operator = PyTuple_Size(plan_of_python) == 4;
  if (plan_of_python == Py_False || find_plan(owner, values, hash))
    return;  // another thread has added it, or a call inside this one
  Plan *plan = calloc(1, sizeof *plan + key_bytes);
  if (!plan) return;
  plan->owner = owner;
  plan->hash = hash;
  plan->by_operator = values->by_operator;
  plan->num_users = 1;
  plan->num_key_words = values->num_key_words;
  memcpy(plan->key, values->key, key_bytes);
  if (fill_plan(plan, plan_of_python)) {
    insert_plan(plan);
  } else {
    PyErr_Clear();
    release_plan(plan);
  }
}
