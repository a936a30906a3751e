// SPDX-License-Identifier: Apache-2.0
// The functions of Python that the C road uses, of the stable ABI, found in the running process: nothing here is
// compiled or linked against Python.
#ifndef PYFLOWK_CALLS_PYTHON_API_H
#define PYFLOWK_CALLS_PYTHON_API_H

#include <stdint.h>

// The layout of an object's head, where Python has a GIL. On a free-threaded Python nothing of this library is used.
typedef struct PyObject {
  intptr_t num_references;
  struct PyObject *type;
} PyObject;

typedef PyObject *(*FastCall)(PyObject *self, PyObject *const *arguments, intptr_t num_arguments);

// PyMethodDef, and METH_FASTCALL.
typedef struct {
  const char *name;
  FastCall function;
  int flags;
  const char *text;
} PyMethod;
enum { method_fastcall = 0x80 };

#define PYTHON_FUNCTIONS(F)                                                  \
  F(void, Py_IncRef, (PyObject *))                                           \
  F(void, Py_DecRef, (PyObject *))                                           \
  F(PyObject *, PyObject_Call, (PyObject *, PyObject *, PyObject *))         \
  F(PyObject *, PyObject_CallNoArgs, (PyObject *))                           \
  F(PyObject *, PyObject_CallFunctionObjArgs, (PyObject *, ...))             \
  F(PyObject *, PyObject_GetAttr, (PyObject *, PyObject *))                  \
  F(int, PyObject_IsTrue, (PyObject *))                                      \
  F(long long, PyLong_AsLongLong, (PyObject *))                              \
  F(unsigned long long, PyLong_AsUnsignedLongLong, (PyObject *))             \
  F(double, PyFloat_AsDouble, (PyObject *))                                  \
  F(intptr_t, PyTuple_Size, (PyObject *))                                    \
  F(PyObject *, PyTuple_GetItem, (PyObject *, intptr_t))                     \
  F(PyObject *, PyTuple_New, (intptr_t))                                     \
  F(int, PyTuple_SetItem, (PyObject *, intptr_t, PyObject *))                \
  F(PyObject *, PyTuple_Pack, (intptr_t, ...))                               \
  F(intptr_t, PyList_Size, (PyObject *))                                     \
  F(PyObject *, PyList_GetItem, (PyObject *, intptr_t))                      \
  F(intptr_t, PyBytes_Size, (PyObject *))                                    \
  F(char *, PyBytes_AsString, (PyObject *))                                  \
  F(PyObject *, PyUnicode_InternFromString, (const char *))                  \
  F(PyObject *, PyErr_Occurred, (void))                                      \
  F(void, PyErr_Clear, (void))                                               \
  F(void *, PyEval_SaveThread, (void))                                       \
  F(void, PyEval_RestoreThread, (void *))                                    \
  F(PyObject *, PyCapsule_New, (void *, const char *, void (*)(PyObject *))) \
  F(void *, PyCapsule_GetPointer, (PyObject *, const char *))                \
  F(PyObject *, PyCFunction_NewEx, (PyMethod *, PyObject *, PyObject *))

#define PYTHON_OBJECTS(F) \
  F(_Py_NoneStruct)       \
  F(_Py_TrueStruct)       \
  F(_Py_FalseStruct) F(PyLong_Type) F(PyFloat_Type) F(PyTuple_Type) F(PyList_Type) F(PyUnicode_Type) F(PyType_Type)

typedef struct {
#define FIELD(result, name, parameters) result(*name) parameters;
  PYTHON_FUNCTIONS(FIELD)
#undef FIELD
#define FIELD(name) PyObject *name;
  PYTHON_OBJECTS(FIELD)
#undef FIELD
} Python;

extern Python python;

#endif
