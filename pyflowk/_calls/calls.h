// SPDX-License-Identifier: Apache-2.0
// The functions for calls, which program_cache.c makes and calls.c runs.
#ifndef PYFLOWK_CALLS_CALLS_H
#define PYFLOWK_CALLS_CALLS_H

#include "plan_cache.h"

// The `self` of a function for calls: of cached_call() or run_prepared().
typedef struct {
  PyObject ob_base;
  PyMethodDef method;  // its text belongs to this struct
  PyObject *call;      // runs the call in Python, with the same arguments
  PyObject *miss;      // called with the arguments: (result, the plan for add_plan())
  // Of an operator, called with the inputs if all arrays are torch's: if one requires a gradient, and under autocast
  // (NULL: it has no rule). Other functions have plans that name an operator.
  PyObject *under_autograd, *under_autocast;
  PyObject *keep_alive;
  Py_ssize_t num_inputs, num_arguments;
  char roles[max_arguments + 1];
  int asked;            // of torch
  const void *owner;    // of the plans: this object, or for a kernel the object of the public function
  PlannedCall planned;  // of a prepared call
} CallPath;

extern int (*get_current_device)(int *);  // cuCtxGetDevice, if there are several GPUs

// The fast path of a public function, or of an operator of torch. Takes its arguments by position.
PyObject *cached_call(PyObject *self, PyObject *const *arguments, Py_ssize_t num_arguments);

// A prepared call. Takes addresses, and the stream.
PyObject *run_prepared(PyObject *self, PyObject *const *arguments, Py_ssize_t num_arguments);

#endif
