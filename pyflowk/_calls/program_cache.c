// SPDX-License-Identifier: Apache-2.0
// The extension module _program_cache: makes the functions for calls, and registers types and torch's gates.
#define _GNU_SOURCE  // strdup()
#include <stdlib.h>
#include <string.h>

#include "calls.h"

static PyTypeObject *call_path_type;

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
  PyObject *call, *miss;
  if (!PyArg_ParseTuple(arguments, "ssOO", &text, &roles, &call, &miss)) return NULL;
  if (strlen(roles) > max_arguments) return PyErr_Format(PyExc_ValueError, "more than %d arguments", max_arguments);
  CallPath *path = new_path(call, miss, Py_None);
  if (!path) return NULL;
  path->asked = ask_watchers | ask_autograd | ask_autocast;
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
    {"path", add_path, METH_VARARGS, "A function that takes arguments with these roles: (text, roles, call, miss)."},
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
