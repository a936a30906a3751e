// SPDX-License-Identifier: Apache-2.0
// The fast path of a call, for arrays whose types are known (reading.h): one object of Python's per public function.
//
//   read the arguments -> find the plan by their key -> make results and temporaries -> run the steps -> return
//
// A miss runs in Python, which returns the plan with the result. What is not plain is Python's too, an error of the
// library included: `call` raises it again, with its text.
//
// All of it runs under the GIL, which only run_steps() gives up: the plan in use is kept until it returns.
#define _GNU_SOURCE  // strdup()
#include <stdlib.h>
#include <string.h>

#include "reading.h"

typedef struct {
  PyMethodDef method;  // its text is this path's own
  PyObject *call;      // what Python does, with the same arguments
  PyObject *miss;      // called with the arguments: (result, the plan as a tuple or None)
  Py_ssize_t num_arguments;
  char roles[max_arguments + 1];
  bool is_kernel;       // torch has seen the call: neither autograd nor autocast is asked for
  const void *plans;    // the path, or of a kernel the path, that has its plans
  PlannedCall planned;  // of a prepared call
  PyObject *kept;
} Path;

// A new array of a call.
typedef struct {
  int pointer;          // the index of its address
  int result;           // the index of the result that it is; -1: a temporary
  PyObject *make;       // NULL: the exchange API does, by `like`
  PyObject *arguments;  // NULL: the first array
  PyObject *options;
  const int64_t *like;  // rank, shape and strides
} NewArray;

enum { max_new_arrays = 8 };

typedef struct {
  const void *path;
  uint64_t hash;
  int num_users;  // the cache, and the calls that are under way
  bool is_plain;  // false: the call stays Python's
  int num_steps, num_new_arrays, num_results;
  PlannedCall *steps;
  NewArray new_arrays[max_new_arrays];
  PyObject *default_dtype;  // torch's, for which the plan is; NULL: for any
  PyObject *kept;           // what the steps point to
  int num_key_words;
  uint64_t key[];
} Plan;

// ---- the cache of plans ---------------------------------------------------------------------------------------------

// About 1 KB per plan; the oldest of a set makes room.
enum { num_sets = 1024, plans_per_set = 4 };
static Plan *plans[num_sets][plans_per_set];
static int (*get_current_device)(int *);  // cuCtxGetDevice, if there are several GPUs

static void let_go(Plan *plan) {
  if (!plan || --plan->num_users > 0) return;
  for (int i = 0; i < plan->num_new_arrays; ++i) {
    Py_XDECREF(plan->new_arrays[i].make);
    Py_XDECREF(plan->new_arrays[i].arguments);
    Py_XDECREF(plan->new_arrays[i].options);
  }
  Py_XDECREF(plan->default_dtype);
  Py_XDECREF(plan->kept);
  free(plan->steps);
  free(plan);
}

static uint64_t hash_of(const Path *path, const Reading *reading) {
  uint64_t hash = (uint64_t)(uintptr_t)path->plans;
  for (int i = 0; i < reading->num_key_words; ++i) {
    hash = (hash ^ reading->key[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

static Plan *find_plan(const Path *path, const Reading *reading, uint64_t hash) {
  Plan **set = plans[hash % num_sets];
  for (int i = 0; i < plans_per_set && set[i]; ++i) {
    Plan *plan = set[i];
    if (plan->hash != hash || plan->path != path->plans || plan->num_key_words != reading->num_key_words) continue;
    if (memcmp(plan->key, reading->key, (size_t)reading->num_key_words * sizeof *plan->key) != 0) continue;
    if (i > 0) {  // the latest first
      memmove(set + 1, set, (size_t)i * sizeof *set);
      set[0] = plan;
    }
    return plan;
  }
  return NULL;
}

static void add_plan(Plan *plan) {
  Plan **set = plans[plan->hash % num_sets];
  Plan *oldest = set[plans_per_set - 1];
  memmove(set + 1, set, (plans_per_set - 1) * sizeof *set);
  set[0] = plan;
  let_go(oldest);
}

// ---- a miss ---------------------------------------------------------------------------------------------------------

static PyObject *object_or_null(PyObject *object) {
  if (object == Py_None) return NULL;
  Py_INCREF(object);
  return object;
}

// (function, address, words), as plan_words.py makes it; false with an exception.
static bool take_step(PyObject *tuple, PlannedCall *call) {
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

// `learned` is None or (steps, new arrays, number of results, default dtype, kept).
static bool fill_plan(Plan *plan, PyObject *learned) {
  if (learned == Py_None) return true;
  PyObject *steps, *new_arrays, *default_dtype, *kept;
  if (!PyArg_ParseTuple(learned, "O!O!iOO", &PyTuple_Type, &steps, &PyTuple_Type, &new_arrays, &plan->num_results,
                        &default_dtype, &kept))
    return false;
  const Py_ssize_t num_steps = PyTuple_Size(steps), num_new_arrays = PyTuple_Size(new_arrays);
  if (num_steps > max_steps || num_new_arrays > max_new_arrays) return true;
  plan->default_dtype = object_or_null(default_dtype);
  plan->kept = object_or_null(kept);
  plan->steps = calloc((size_t)num_steps, sizeof *plan->steps);
  for (; plan->num_steps < num_steps; ++plan->num_steps)
    if (!plan->steps || !take_step(PyTuple_GetItem(steps, plan->num_steps), &plan->steps[plan->num_steps]))
      return false;
  for (; plan->num_new_arrays < num_new_arrays; ++plan->num_new_arrays)
    if (!take_new_array(PyTuple_GetItem(new_arrays, plan->num_new_arrays), &plan->new_arrays[plan->num_new_arrays]))
      return false;
  plan->is_plain = true;
  return true;
}

static void remember(const Path *path, const Reading *reading, uint64_t hash, PyObject *learned) {
  const size_t key_bytes = (size_t)reading->num_key_words * sizeof *reading->key;
  if (find_plan(path, reading, hash)) return;  // of another thread, or of a call in this one
  Plan *plan = calloc(1, sizeof *plan + key_bytes);
  if (!plan) return;
  plan->path = path->plans;
  plan->hash = hash;
  plan->num_users = 1;
  plan->num_key_words = reading->num_key_words;
  memcpy(plan->key, reading->key, key_bytes);
  if (fill_plan(plan, learned)) {
    add_plan(plan);
  } else {
    PyErr_Clear();
    let_go(plan);
  }
}

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

static PyObject *call_and_remember(const Path *path, PyObject *const *arguments, const Reading *reading,
                                   uint64_t hash) {
  PyObject *both = call_python(path->miss, arguments, path->num_arguments), *result, *learned;
  if (!both || !PyArg_ParseTuple(both, "OO", &result, &learned)) {
    Py_XDECREF(both);
    return NULL;
  }
  remember(path, reading, hash, learned);
  Py_INCREF(result);
  Py_DECREF(both);
  return result;
}

// ---- a hit ----------------------------------------------------------------------------------------------------------

static void ignore_error(void *context, const char *kind, const char *text) { (void)context, (void)kind, (void)text; }

// NULL if none can be made, without an exception.
static PyObject *make_array(const NewArray *array, const Reading *reading) {
  PyObject *made = NULL;
  if (array->arguments) {
    made = PyObject_Call(array->make, array->arguments, array->options);
  } else if (array->make) {
    made = PyObject_CallFunctionObjArgs(array->make, reading->first, NULL);
  } else {
    ManagedTensor *tensor = NULL;
    DLTensor like;
    const ExchangeApi *api = reading->first_type->api;
    if (!api->tensor_from_object(reading->first, &like)) {
      like.rank = (int32_t)array->like[0];
      like.shape = (int64_t *)array->like + 1;
      like.strides = like.shape + like.rank;
      if (!api->allocate(&like, &tensor, NULL, ignore_error)) api->object_from_managed(tensor, (void **)&made);
    }
  }
  if (!made) PyErr_Clear();
  return made;
}

// Makes the new arrays and runs the steps; `results` are owned. False without an exception if the call is Python's.
static bool run_plan(const Plan *plan, Reading *reading, PyObject **results) {
  PyObject *temporaries[max_new_arrays];
  int num_temporaries = 0;
  bool is_done = true;
  for (int i = 0; is_done && i < plan->num_new_arrays; ++i) {
    const NewArray *array = &plan->new_arrays[i];
    PyObject *made = make_array(array, reading);
    reading->pointers[array->pointer] = made ? address_of(made) : NULL;
    is_done = made != NULL;
    if (array->result >= 0)
      results[array->result] = made;
    else
      temporaries[num_temporaries++] = made;
  }
  is_done =
      is_done && run_steps(plan->steps, plan->num_steps, reading->pointers, reading->numbers, reading->stream) == 0;
  for (int i = 0; i < num_temporaries; ++i) Py_XDECREF(temporaries[i]);  // freed in the stream's order, after the work
  return is_done;
}

static void mark_written(PyObject *out) {
  PyObject *done = PyObject_CallFunction(torch_gates.increment_version, "((O))", out);
  if (!done) PyErr_Clear();
  Py_XDECREF(done);
}

static PyObject *returned(PyObject **results, int num_results) {
  if (num_results == 1) return results[0];
  PyObject *tuple = PyTuple_New(num_results);
  for (int i = 0; tuple && i < num_results; ++i) {
    if (!results[i]) Py_INCREF(Py_None);
    PyTuple_SetItem(tuple, i, results[i] ? results[i] : Py_None);
  }
  return tuple;
}

static bool is_python_s(const Plan *plan, const Reading *reading) {
  int device;
  if (!plan->is_plain || (plan->num_new_arrays > 0 && !is_on_current_stream(reading))) return true;
  if (get_current_device && reading->device.type == dl_cuda &&
      (get_current_device(&device) != 0 || device != reading->device.ordinal))
    return true;
  if (!plan->default_dtype) return false;
  PyObject *now = torch_gates.get_default_dtype ? PyObject_CallNoArgs(torch_gates.get_default_dtype) : NULL;
  if (!now) PyErr_Clear();
  Py_XDECREF(now);
  return now != plan->default_dtype;
}

static PyObject *enter(PyObject *self, PyObject *const *arguments, Py_ssize_t num_arguments) {
  const Path *path = PyCapsule_GetPointer(self, NULL);
  Reading reading;
  if (num_arguments != path->num_arguments ||
      !read_arguments(&reading, path->roles, arguments, num_arguments, path->is_kernel))
    return call_python(path->call, arguments, num_arguments);
  const uint64_t hash = hash_of(path, &reading);
  Plan *plan = find_plan(path, &reading, hash);
  if (!plan) return call_and_remember(path, arguments, &reading, hash);
  if (is_python_s(plan, &reading)) return call_python(path->call, arguments, num_arguments);

  ++plan->num_users;
  const int num_results = plan->num_results;
  PyObject *results[max_outs] = {0};
  for (int i = 0; i < num_results; ++i) {
    results[i] = reading.outs[i];
    Py_XINCREF(results[i]);
  }
  const bool is_done = run_plan(plan, &reading, results);
  let_go(plan);
  if (!is_done) {
    for (int i = 0; i < num_results; ++i) Py_XDECREF(results[i]);
    return call_python(path->call, arguments, num_arguments);
  }
  for (int i = 0; reading.is_watched && i < reading.num_outs; ++i)
    if (reading.outs[i]) mark_written(reading.outs[i]);
  return returned(results, num_results);
}

// A prepared call: addresses, and the stream.
static PyObject *run_prepared(PyObject *self, PyObject *const *arguments, Py_ssize_t num_arguments) {
  const Path *path = PyCapsule_GetPointer(self, NULL);
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

// ---- the module -----------------------------------------------------------------------------------------------------

static void delete_path(PyObject *capsule) {
  Path *path = PyCapsule_GetPointer(capsule, NULL);
  Py_XDECREF(path->call);
  Py_XDECREF(path->miss);
  Py_XDECREF(path->kept);
  free((char *)path->method.ml_doc);
  free(path);
}

// Takes `path`.
static PyObject *function_of(Path *path, const char *name, void (*function)(void), const char *text) {
  path->method = (PyMethodDef){name, (PyCFunction)function, METH_FASTCALL, strdup(text)};
  PyObject *capsule = PyCapsule_New(path, NULL, delete_path);
  PyObject *made = capsule ? PyCFunction_NewEx(&path->method, capsule, NULL) : NULL;
  Py_XDECREF(capsule);
  return made;
}

static PyObject *add_path(PyObject *self, PyObject *arguments) {
  (void)self;
  const char *text, *roles;
  PyObject *call, *miss;
  if (!PyArg_ParseTuple(arguments, "ssOO", &text, &roles, &call, &miss)) return NULL;
  Path *path = calloc(1, sizeof *path);
  if (!path || strlen(roles) > max_arguments) {
    free(path);
    return PyErr_NoMemory();
  }
  path->num_arguments = (Py_ssize_t)strlen(roles);
  memcpy(path->roles, roles, (size_t)path->num_arguments);
  path->plans = path;
  path->call = object_or_null(call);
  path->miss = object_or_null(miss);
  return function_of(path, "enter", (void (*)(void))enter, text);
}

static PyObject *kernel(PyObject *self, PyObject *arguments) {
  (void)self;
  PyObject *function, *call, *miss;
  if (!PyArg_ParseTuple(arguments, "O!OO", &PyCFunction_Type, &function, &call, &miss)) return NULL;
  const Path *of_function = PyCapsule_GetPointer(PyCFunction_GetSelf(function), NULL);
  Path *path = of_function ? malloc(sizeof *path) : PyErr_NoMemory();
  if (!path) return NULL;
  *path = *of_function;
  path->is_kernel = true;
  path->call = object_or_null(call);
  path->miss = object_or_null(miss);
  path->kept = object_or_null(function);
  return function_of(path, "kernel", (void (*)(void))enter, of_function->method.ml_doc);
}

static PyObject *prepared(PyObject *self, PyObject *arguments) {
  (void)self;
  const char *text;
  int num_arguments;
  PyObject *step, *kept, *call;
  if (!PyArg_ParseTuple(arguments, "siO!OO", &text, &num_arguments, &PyTuple_Type, &step, &kept, &call)) return NULL;
  Path *path = calloc(1, sizeof *path);
  if (!path) return PyErr_NoMemory();
  path->num_arguments = num_arguments;
  path->kept = object_or_null(kept);
  path->call = object_or_null(call);
  if (take_step(step, &path->planned)) return function_of(path, "run", (void (*)(void))run_prepared, text);
  Py_XDECREF(path->kept);
  Py_XDECREF(path->call);
  free(path);
  return NULL;
}

static PyObject *add_type(PyObject *self, PyObject *arguments) {
  (void)self;
  ArrayType known = {0};
  unsigned long long api;
  int is_watched;
  PyObject *type, *of_framework;
  if (!PyArg_ParseTuple(arguments, "O!iKpO", &PyType_Type, &type, &known.way, &api, &is_watched, &of_framework))
    return NULL;
  Py_INCREF(type);
  known.type = (PyTypeObject *)type;
  known.api = (const ExchangeApi *)(uintptr_t)api;
  known.is_watched = is_watched;
  known.of_framework = object_or_null(of_framework);
  return PyBool_FromLong(make_type_known(&known));
}

static PyObject *add_constant(PyObject *self, PyObject *type) {
  (void)self;
  Py_INCREF(type);
  return PyBool_FromLong(make_constant((PyTypeObject *)type));
}

static PyObject *watch(PyObject *self, PyObject *arguments) {
  (void)self;
  PyObject *watchers;
  TorchGates *g = &torch_gates;
  if (!PyArg_ParseTuple(arguments, "O!OOOOOOO", &PyTuple_Type, &watchers, &g->is_autocast_enabled, &g->forward_mode,
                        &g->is_grad_enabled, &g->is_neg, &g->is_conj, &g->increment_version, &g->get_default_dtype))
    return NULL;
  Py_INCREF(arguments);  // which has all of them
  const Py_ssize_t num_watchers = PyTuple_Size(watchers);
  for (g->num_watchers = 0; g->num_watchers < num_watchers && g->num_watchers < max_watchers; ++g->num_watchers)
    g->watchers[g->num_watchers] = PyTuple_GetItem(watchers, g->num_watchers);
  Py_RETURN_NONE;
}

static PyObject *check_device(PyObject *self, PyObject *address) {
  (void)self;
  const unsigned long long function = PyLong_AsUnsignedLongLong(address);
  if (PyErr_Occurred()) return NULL;
  get_current_device = (int (*)(int *))(uintptr_t)function;
  Py_RETURN_NONE;
}

static PyObject *num_plans(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  long count = 0;
  for (int i = 0; i < num_sets; ++i)
    for (int j = 0; j < plans_per_set; ++j) count += plans[i][j] && plans[i][j]->is_plain;
  return PyLong_FromLong(count);
}

static PyObject *forget(PyObject *self, PyObject *unused) {
  (void)self, (void)unused;
  for (int i = 0; i < num_sets; ++i)
    for (int j = 0; j < plans_per_set; ++j) {
      Plan *plan = plans[i][j];
      plans[i][j] = NULL;
      let_go(plan);
    }
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"path", add_path, METH_VARARGS, "A function that takes arguments with these roles: (text, roles, call, miss)."},
    {"kernel", kernel, METH_VARARGS, "A path's function for calls that torch has seen: (function, call, miss)."},
    {"prepared", prepared, METH_VARARGS,
     "A function that takes addresses, the last one a stream: (text, number of arguments, step, kept, call)."},
    {"add_type", add_type, METH_VARARGS, "Adds a type of arrays: (type, way, exchange API, is watched, of framework)."},
    {"add_constant", add_constant, METH_O, "Adds a type whose objects never change."},
    {"watch", watch, METH_VARARGS, "What tells whether torch must see a call: (watchers, the fields of TorchGates)."},
    {"check_device", check_device, METH_O, "The address of cuCtxGetDevice: plain calls are on the current GPU."},
    {"num_plans", num_plans, METH_NOARGS, "How many calls this path takes."},
    {"forget", forget, METH_NOARGS, "Forgets all plans."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_program_cache", "The fast path of calls: roads.py.", -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__program_cache(void) { return PyModule_Create(&module); }
