// SPDX-License-Identifier: Apache-2.0
// The fast path of calls, for arrays of registered types (array_view.h):
//
//   read the arguments -> find the plan by their key -> make results and temporaries -> run the steps -> return
//
// A cache miss runs in Python and returns the plan with the result. A call that the fast path does not take runs in
// Python too, and so does a call for which the library returns an error: Python raises the exception with its text.
#define _GNU_SOURCE  // strdup()
#include <stdlib.h>
#include <string.h>

#include "plan_cache.h"

// The `self` of a function for calls: of cached_call() or run_prepared().
typedef struct {
  PyObject ob_base;
  PyMethodDef method;  // its text belongs to this struct
  PyObject *call;      // runs the call in Python, with the same arguments
  PyObject *miss;      // called with the arguments: (result, the plan for add_plan())
  // Called with the inputs if all arrays are torch's: if one requires a gradient, and under autocast. May be NULL.
  PyObject *under_autograd, *under_autocast;
  PyObject *keep_alive;
  Py_ssize_t num_inputs, num_arguments;
  char roles[max_arguments + 1];
  bool is_operator;     // of torch; false: `under_autograd` returns (result, the plan for add_plan()), as `miss` does
  int asked;            // of torch's features
  const void *owner;    // of the plans: this object, or for a kernel the object of the public function
  PlannedCall planned;  // of a prepared call
} CallPath;

static PyTypeObject *call_path_type;
static int (*get_current_device)(int *);  // cuCtxGetDevice, if there are several GPUs

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

static PyObject *call_and_add_plan(const CallPath *path, PyObject *miss, PyObject *const *arguments,
                                   Py_ssize_t num_arguments, const CallValues *values, uint64_t hash) {
  PyObject *both = call_python(miss, arguments, num_arguments), *result, *plan;
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
  PyObject *done = PyObject_CallFunction(torch_gates.increment_version, "((O))", out);
  if (!done) PyErr_Clear();
  Py_XDECREF(done);
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

// ---- calls that torch sees
// --------------------------------------------------------------------------------------------

// An operator takes torch's tensors and options, allocates its result and runs on the current stream.
static bool is_call_of_operator(const CallValues *values) {
  for (int i = 0; i < values->num_outs; ++i)
    if (values->outs[i]) return false;
  return !values->is_mixed && !values->has_stream;
}

static bool has_autocast_rule(const Plan *plan) {
  return plan->operator && PySet_Contains(torch_gates.autocast_operators, plan->operator) != 0;
}

static PyObject *call_under_autograd(const CallPath *path, PyObject *const *arguments, CallValues *values) {
  if (path->is_operator) return call_python(path->under_autograd, arguments, path->num_inputs);
  if (!add_word(values, 'g', 0)) return call_python(path->call, arguments, path->num_inputs);
  const uint64_t hash = hash_of(path->owner, values);
  Plan *plan = find_plan(path->owner, values, hash);
  if (!plan) return call_and_add_plan(path, path->under_autograd, arguments, path->num_inputs, values, hash);
  if (!plan->is_cacheable) return call_python(path->call, arguments, path->num_inputs);
  ++plan->num_users;
  PyObject *filled[max_arguments];
  const Py_ssize_t size = PyTuple_Size(plan->template);
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject *argument = PyTuple_GetItem(plan->template, i);
    const long index = PyLong_AsLong(PyTuple_GetItem(argument, 0));
    filled[i] = index < 0 ? PyTuple_GetItem(argument, 1) : arguments[index];
  }
  const bool is_under_autocast = values->is_autocast_enabled && plan->under_autocast;
  PyObject *result = call_python(is_under_autocast ? plan->under_autocast : plan->under_autograd, filled, size);
  release_plan(plan);
  return result;
}

static PyObject *cached_call(PyObject *self, PyObject *const *arguments, Py_ssize_t num_arguments) {
  const CallPath *path = (CallPath *)self;
  CallValues values;
  if (num_arguments < path->num_inputs || num_arguments > path->num_arguments ||
      !read_arguments(&values, path->roles, arguments, num_arguments, path->asked))
    return call_python(path->call, arguments, num_arguments);
  if (values.is_autocast_enabled && path->under_autocast && is_call_of_operator(&values))
    return call_python(path->under_autocast, arguments, path->num_inputs);
  if (values.requires_grad)
    return path->under_autograd && is_call_of_operator(&values) ? call_under_autograd(path, arguments, &values)
                                                                : call_python(path->call, arguments, num_arguments);
  const uint64_t hash = hash_of(path->owner, &values);
  Plan *plan = find_plan(path->owner, &values, hash);
  if (!plan) return call_and_add_plan(path, path->miss, arguments, num_arguments, &values, hash);
  if (needs_python(plan, &values) || (values.is_autocast_enabled && has_autocast_rule(plan)))
    return call_python(path->call, arguments, num_arguments);

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

// A prepared call takes addresses, and the stream.
static PyObject *run_prepared(PyObject *self, PyObject *const *arguments, Py_ssize_t num_arguments) {
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

// ---- CallPath -------------------------------------------------------------------------------------------------------

// The type has garbage collection, because `call` and `miss` are often methods of the object that holds the path.
static int traverse_path(PyObject *self, visitproc visit, void *arg) {
  CallPath *path = (CallPath *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(path->call);
  Py_VISIT(path->miss);
  Py_VISIT(path->under_autograd);
  Py_VISIT(path->under_autocast);
  Py_VISIT(path->keep_alive);
  return 0;
}

static int clear_path(PyObject *self) {
  CallPath *path = (CallPath *)self;
  Py_CLEAR(path->call);
  Py_CLEAR(path->miss);
  Py_CLEAR(path->under_autograd);
  Py_CLEAR(path->under_autocast);
  Py_CLEAR(path->keep_alive);
  return 0;
}

static void delete_path(PyObject *self) {
  CallPath *path = (CallPath *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (path->roles[0] && path->owner == path) forget_plans(path);
  clear_path(self);
  free((char *)path->method.ml_doc);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyType_Slot path_slots[] = {
    {Py_tp_traverse, traverse_path}, {Py_tp_clear, clear_path}, {Py_tp_dealloc, delete_path}, {0, NULL}};
static PyType_Spec path_spec = {"pyflowk._calls._program_cache.CallPath", sizeof(CallPath), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                path_slots};

static CallPath *new_path(PyObject *call, PyObject *miss, PyObject *keep_alive) {
  CallPath *path = (CallPath *)PyType_GenericAlloc(call_path_type, 0);
  if (!path) return NULL;
  path->owner = path;
  path->call = object_or_null(call);
  path->miss = object_or_null(miss);
  path->keep_alive = object_or_null(keep_alive);
  return path;
}

// Takes `path`.
static PyObject *function_of(CallPath *path, const char *name, void (*function)(void), const char *text) {
  path->method = (PyMethodDef){name, (PyCFunction)function, METH_FASTCALL, strdup(text)};
  PyObject *made = PyCFunction_NewEx(&path->method, (PyObject *)path, NULL);
  Py_DECREF(path);
  return made;
}

// ---- the module -----------------------------------------------------------------------------------------------------

static PyObject *add_path(PyObject *module, PyObject *arguments) {
  (void)module;
  const char *text, *roles;
  PyObject *call, *miss, *under_autograd;
  if (!PyArg_ParseTuple(arguments, "ssOOO", &text, &roles, &call, &miss, &under_autograd)) return NULL;
  if (strlen(roles) > max_arguments) return PyErr_Format(PyExc_ValueError, "more than %d arguments", max_arguments);
  CallPath *path = new_path(call, miss, Py_None);
  if (!path) return NULL;
  path->under_autograd = object_or_null(under_autograd);
  path->asked = ask_autograd | ask_autocast;
  path->num_inputs = (Py_ssize_t)strcspn(roles, "ws");
  path->num_arguments = (Py_ssize_t)strlen(roles);
  memcpy(path->roles, roles, (size_t)path->num_arguments);
  return function_of(path, "cached_call", (void (*)(void))cached_call, text);
}

static CallPath *path_of(PyObject *function) {
  CallPath *path = (CallPath *)PyCFunction_GetSelf(function);
  if (path && Py_TYPE(path) == call_path_type) return path;
  PyErr_SetString(PyExc_TypeError, "function must be one of path() or kernel()");
  return NULL;
}

static PyObject *as_operator(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *function, *under_autograd, *under_autocast;
  if (!PyArg_ParseTuple(arguments, "O!OO", &PyCFunction_Type, &function, &under_autograd, &under_autocast)) return NULL;
  CallPath *path = path_of(function);
  if (!path) return NULL;
  Py_CLEAR(path->under_autograd);
  Py_CLEAR(path->under_autocast);
  path->under_autograd = object_or_null(under_autograd);
  path->under_autocast = object_or_null(under_autocast);
  path->is_operator = true;
  Py_RETURN_NONE;
}

static PyObject *add_kernel(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *function, *call, *miss;
  int asked;
  if (!PyArg_ParseTuple(arguments, "O!OOi", &PyCFunction_Type, &function, &call, &miss, &asked)) return NULL;
  CallPath *of_function = path_of(function);
  if (!of_function) return NULL;
  CallPath *path = new_path(call, miss, function);
  if (!path) return NULL;
  path->asked = asked;
  path->owner = of_function;
  path->num_inputs = of_function->num_inputs;
  path->num_arguments = of_function->num_arguments;
  memcpy(path->roles, of_function->roles, sizeof path->roles);
  return function_of(path, "cached_call", (void (*)(void))cached_call, of_function->method.ml_doc);
}

static PyObject *add_prepared(PyObject *module, PyObject *arguments) {
  (void)module;
  const char *text;
  int num_arguments;
  PyObject *step, *keep_alive, *call;
  if (!PyArg_ParseTuple(arguments, "siO!OO", &text, &num_arguments, &PyTuple_Type, &step, &keep_alive, &call))
    return NULL;
  CallPath *path = new_path(call, Py_None, keep_alive);
  if (!path) return NULL;
  path->num_arguments = num_arguments;
  if (take_step(step, &path->planned)) return function_of(path, "run", (void (*)(void))run_prepared, text);
  Py_DECREF(path);
  return NULL;
}

static PyObject *add_type(PyObject *module, PyObject *arguments) {
  (void)module;
  ArrayType registered = {0};
  unsigned long long api;
  int is_watched;
  PyObject *type, *of_framework;
  if (!PyArg_ParseTuple(arguments, "O!iKpO", &PyType_Type, &type, &registered.access, &api, &is_watched, &of_framework))
    return NULL;
  Py_INCREF(type);
  registered.type = (PyTypeObject *)type;
  registered.api = (const ExchangeApi *)(uintptr_t)api;
  registered.is_watched = is_watched;
  registered.of_framework = object_or_null(of_framework);
  return PyBool_FromLong(register_array_type(&registered));
}

static PyObject *add_constant(PyObject *module, PyObject *type) {
  (void)module;
  Py_INCREF(type);
  return PyBool_FromLong(register_constant_type((PyTypeObject *)type));
}

static PyObject *watch(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *watchers;
  TorchGates *g = &torch_gates;
  if (!PyArg_ParseTuple(arguments, "O!OOOOOOOO", &PyTuple_Type, &watchers, &g->is_autocast_enabled, &g->forward_mode,
                        &g->is_grad_enabled, &g->is_neg, &g->is_conj, &g->increment_version, &g->get_default_dtype,
                        &g->autocast_operators))
    return NULL;
  Py_INCREF(arguments);  // which has all of them
  const Py_ssize_t num_watchers = PyTuple_Size(watchers);
  for (g->num_watchers = 0; g->num_watchers < num_watchers && g->num_watchers < max_watchers; ++g->num_watchers)
    g->watchers[g->num_watchers] = PyTuple_GetItem(watchers, g->num_watchers);
  Py_RETURN_NONE;
}

static PyObject *check_device(PyObject *module, PyObject *address) {
  (void)module;
  const unsigned long long function = PyLong_AsUnsignedLongLong(address);
  if (PyErr_Occurred()) return NULL;
  get_current_device = (int (*)(int *))(uintptr_t)function;
  Py_RETURN_NONE;
}

static PyObject *num_plans(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  return PyLong_FromLong(count_cacheable_plans());
}

static PyObject *forget(PyObject *module, PyObject *unused) {
  (void)module, (void)unused;
  forget_plans(NULL);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"path", add_path, METH_VARARGS,
     "A function that takes arguments with these roles: (text, roles, call, miss, under autograd)."},
    {"kernel", add_kernel, METH_VARARGS,
     "A function of path() for calls that torch has seen: (function, call, miss, the features that it asks for)."},
    {"as_operator", as_operator, METH_VARARGS,
     "What a function of an operator calls with its inputs: (function, under autograd, under autocast)."},
    {"prepared", add_prepared, METH_VARARGS,
     "A function that takes addresses, the last one a stream: (text, number of arguments, step, keep alive, call)."},
    {"add_type", add_type, METH_VARARGS,
     "Adds a type of arrays: (type, access, exchange API, is watched, of framework)."},
    {"add_constant", add_constant, METH_O, "Adds a type whose objects never change."},
    {"watch", watch, METH_VARARGS, "What tells whether torch must see a call: (watchers, the fields of TorchGates)."},
    {"check_device", check_device, METH_O, "The address of cuCtxGetDevice: only calls on the current GPU run here."},
    {"num_plans", num_plans, METH_NOARGS, "The number of plans in the cache that run here."},
    {"forget", forget, METH_NOARGS, "Drops all plans."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "_program_cache",
                                        "The fast path of calls: call_path.py.",
                                        -1,
                                        methods,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

PyMODINIT_FUNC PyInit__program_cache(void) {
  call_path_type = (PyTypeObject *)PyType_FromSpec(&path_spec);
  return call_path_type ? PyModule_Create(&definition) : NULL;
}
