// SPDX-License-Identifier: Apache-2.0
// The fast path of calls, for arrays of registered types (array_view.h):
//
//   read the arguments -> find the plan by their key -> make results and temporaries -> run the steps -> return
//
// A cache miss runs in Python and returns the plan with the result. A call that the fast path does not take runs in
// Python too, and so does a call for which the library returns an error: Python raises the exception with its text.
#include "calls.h"

int (*get_current_device)(int *);

static PyObject *call_python(PyObject *function, PyObject *const *arguments, Py_ssize_t num_arguments) {
  PyObject *tuple = PyTuple_New(num_arguments);
  for (Py_ssize_t i = 0; tuple && i < num_arguments; ++i) {
    Py_INCREF(arguments[i]);
    PyTuple_SetItem(tuple, i, arguments[i]);
  }
  PyObject *result = tuple ? PyObject_Call(function, tuple, NULL) : NULL;
  Py_XDECREF(tuple);
  return result;
}

static PyObject *call_and_add_plan(const CallPath *path, PyObject *const *arguments, Py_ssize_t num_arguments,
                                   CallValues *values, uint64_t hash) {
  PyObject *both = call_python(path->miss, arguments, num_arguments), *result, *plan;
  if (!both || !PyArg_ParseTuple(both, "OO", &result, &plan)) {
    Py_XDECREF(both);
    return NULL;
  }
  add_plan(path->owner, values, hash, plan);
  Py_INCREF(result);
  Py_DECREF(both);
  return result;
}

// ---- a hit ----------------------------------------------------------------------------------------------------------

static void ignore_error(void *context, const char *kind, const char *text) { (void)context, (void)kind, (void)text; }

// NULL, without an exception, if it cannot be made.
static PyObject *make_array(const NewArray *array, const CallValues *values) {
  PyObject *made = NULL;
  if (array->arguments) {
    made = PyObject_Call(array->make, array->arguments, array->options);
  } else if (array->make) {
    made = PyObject_CallFunctionObjArgs(array->make, values->first, NULL);
  } else {
    ManagedTensor *tensor = NULL;
    DLTensor like;
    const ExchangeApi *api = values->first_type->api;
    if (!api->tensor_from_object(values->first, &like)) {
      like.rank = (int32_t)array->like[0];
      like.shape = (int64_t *)array->like + 1;
      like.strides = like.shape + like.rank;
      if (!api->allocate(&like, &tensor, NULL, ignore_error)) api->object_from_managed(tensor, (void **)&made);
    }
  }
  if (!made) PyErr_Clear();
  return made;
}

// Makes the new arrays and runs the steps; `results` are owned. False, without an exception, if the call has to run in
// Python.
static bool run_plan(const Plan *plan, CallValues *values, PyObject **results) {
  PyObject *temporaries[max_new_arrays];
  int num_temporaries = 0;
  bool is_done = true;
  for (int i = 0; is_done && i < plan->num_new_arrays; ++i) {
    const NewArray *array = &plan->new_arrays[i];
    PyObject *made = make_array(array, values);
    values->pointers[array->pointer] = made ? address_of(made) : NULL;
    is_done = made != NULL;
    if (array->result >= 0)
      results[array->result] = made;
    else
      temporaries[num_temporaries++] = made;
  }
  is_done = is_done && run_steps(plan->steps, plan->num_steps, values->pointers, values->numbers, values->stream) == 0;
  for (int i = 0; i < num_temporaries; ++i) Py_XDECREF(temporaries[i]);  // freed in the stream's order, after the work
  return is_done;
}

static void mark_written(PyObject *out) {
  PyObject *outs = PyTuple_Pack(1, out);
  PyObject *done = outs ? PyObject_CallFunctionObjArgs(torch_gates.increment_version, outs, NULL) : NULL;
  if (!done) PyErr_Clear();
  Py_XDECREF(done);
  Py_XDECREF(outs);
}

// The one result, or a tuple with None for those that are not needed. Takes the results.
static PyObject *pack_results(PyObject **results, int num_results) {
  if (num_results == 1) return results[0];
  PyObject *tuple = PyTuple_New(num_results);
  for (int i = 0; tuple && i < num_results; ++i) {
    if (!results[i]) Py_INCREF(Py_None);
    PyTuple_SetItem(tuple, i, results[i] ? results[i] : Py_None);
  }
  return tuple;
}

// Is the plan for another current stream, device or default dtype, or is there no plan?
static bool needs_python(const Plan *plan, const CallValues *values) {
  int device;
  if (!plan->is_cacheable || (plan->num_new_arrays > 0 && !is_on_current_stream(values))) return true;
  if (get_current_device && values->device.type == dl_cuda &&
      (get_current_device(&device) != 0 || device != values->device.ordinal))
    return true;
  if (!plan->default_dtype) return false;
  PyObject *now = torch_gates.get_default_dtype ? PyObject_CallNoArgs(torch_gates.get_default_dtype) : NULL;
  if (!now) PyErr_Clear();
  Py_XDECREF(now);
  return now != plan->default_dtype;
}

// ---- calls that torch sees ------------------------------------------------------------------------------------------

// An operator takes torch's tensors, numbers and options, allocates its result and runs on the current stream.
static bool is_call_of_operator(const CallValues *values) {
  for (int i = 0; i < values->num_outs; ++i)
    if (values->outs[i]) return false;
  return !values->is_mixed && !values->has_stream;
}

static bool is_under_autocast(const CallValues *values) {
  return values->is_watched && values->asked & ask_autocast && is_autocast_enabled();
}

// May autocast choose the types of the results, which are new arrays?
static bool may_change_types(const CallValues *values, const Plan *plan) {
  if (!values->is_watched || values->outs[0]) return false;
  const bool has_rule =
      !plan || (plan->operator && PySet_Contains(torch_gates.autocast_operators, plan->operator) != 0);
  return has_rule && is_under_autocast(values);
}

// True on a thread that calls an operator's Function. The next call is its forward(), for which torch has been asked.
static _Thread_local bool is_forward_next;

static PyObject *call_function(PyObject *under_autograd, PyObject *const *arguments, Py_ssize_t num_arguments) {
  is_forward_next = true;
  PyObject *result = call_python(under_autograd, arguments, num_arguments);
  is_forward_next = false;
  return result;
}

static PyObject *call_operator(const CallPath *path, PyObject *const *arguments, Py_ssize_t num_arguments,
                               CallValues *values, uint64_t hash) {
  if (!is_call_of_operator(values)) return call_python(path->call, arguments, num_arguments);
  if (path->under_autograd) return call_function(path->under_autograd, arguments, path->num_inputs);
  values->by_operator = true;
  Plan *plan = find_plan(path->owner, values, hash);
  const bool is_under_rule = (!plan || plan->under_autocast) && is_under_autocast(values);
  if (!plan || !(values->requires_grad || is_under_rule))
    return call_and_add_plan(path, arguments, path->num_inputs, values, hash);
  if (!plan->is_cacheable) return call_python(path->call, arguments, path->num_inputs);
  ++plan->num_users;
  PyObject *filled[max_arguments];
  const Py_ssize_t size = PyTuple_Size(plan->template);
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject *argument = PyTuple_GetItem(plan->template, i);
    const long index = PyLong_AsLong(PyTuple_GetItem(argument, 0));
    filled[i] = index < 0 ? PyTuple_GetItem(argument, 1) : arguments[index];
  }
  PyObject *result = is_under_rule ? call_python(plan->under_autocast, filled, size)
                                   : call_function(plan->under_autograd, filled, size);
  release_plan(plan);
  return result;
}

PyObject *cached_call(PyObject *self, PyObject *const *arguments, Py_ssize_t num_arguments) {
  const CallPath *path = (CallPath *)self;
  CallValues values;
  const int asked = is_forward_next ? 0 : path->asked;
  is_forward_next = false;
  if (num_arguments < path->num_inputs || num_arguments > path->num_arguments ||
      !read_arguments(&values, path->roles, arguments, num_arguments, asked))
    return call_python(path->call, arguments, num_arguments);
  if (path->under_autocast && is_call_of_operator(&values) && is_under_autocast(&values))
    return call_python(path->under_autocast, arguments, path->num_inputs);
  const uint64_t hash = hash_of(path->owner, &values);
  if (values.requires_grad) return call_operator(path, arguments, num_arguments, &values, hash);
  Plan *plan = find_plan(path->owner, &values, hash);
  const bool is_by_autocast = may_change_types(&values, plan);
  if (is_by_autocast && is_call_of_operator(&values))
    return call_operator(path, arguments, num_arguments, &values, hash);
  if (!plan) return call_and_add_plan(path, arguments, num_arguments, &values, hash);
  if (is_by_autocast || needs_python(plan, &values)) return call_python(path->call, arguments, num_arguments);

  ++plan->num_users;
  const int num_results = plan->num_results;
  PyObject *results[max_outs] = {0};
  for (int i = 0; i < num_results; ++i) {
    results[i] = values.outs[i];
    Py_XINCREF(results[i]);
  }
  const bool is_done = run_plan(plan, &values, results);
  release_plan(plan);
  if (!is_done) {
    for (int i = 0; i < num_results; ++i) Py_XDECREF(results[i]);
    return call_python(path->call, arguments, num_arguments);
  }
  for (int i = 0; values.is_watched && i < values.num_outs; ++i)
    if (values.outs[i]) mark_written(values.outs[i]);
  return pack_results(results, num_results);
}

PyObject *run_prepared(PyObject *self, PyObject *const *arguments, Py_ssize_t num_arguments) {
  const CallPath *path = (CallPath *)self;
  void *pointers[max_pointers + 1] = {0};
  if (num_arguments != path->num_arguments) return call_python(path->call, arguments, num_arguments);
  for (Py_ssize_t i = 0; i < num_arguments; ++i) {
    if (!PyLong_CheckExact(arguments[i])) return call_python(path->call, arguments, num_arguments);
    const unsigned long long address = PyLong_AsUnsignedLongLong(arguments[i]);
    if (address == UINT64_MAX) {  // or an exception
      PyErr_Clear();
      return call_python(path->call, arguments, num_arguments);
    }
    pointers[i] = (void *)(uintptr_t)address;
  }
  if (run_steps(&path->planned, 1, pointers, NULL, pointers[num_arguments - 1]) != 0)
    return call_python(path->call, arguments, num_arguments);
  Py_RETURN_NONE;
}
