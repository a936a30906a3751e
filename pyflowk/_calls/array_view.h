// SPDX-License-Identifier: Apache-2.0
// The memory of a framework's array: address, device, shape, strides and element type, read without Python code.
#ifndef PYFLOWK_CALLS_ARRAY_VIEW_H
#define PYFLOWK_CALLS_ARRAY_VIEW_H

#define Py_LIMITED_API 0x030a0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#include "exchange_api.h"

enum { max_types = 16, max_dims = 32 };

// How the arrays of a type are read; call_path.py has the same list.
enum { by_exchange_api, by_cupy_attributes, by_device_array_attributes, by_numba_attributes, by_numpy_interface };

typedef struct {
  PyTypeObject *type;
  int access;
  const ExchangeApi *api;  // by_exchange_api
  bool is_watched;         // by torch: `torch_gates`
  PyObject *of_framework;  // by_cupy_attributes: cupy.cuda.get_current_stream; by_numba_attributes: OwnedPointer
} ArrayType;

typedef struct {
  DLTensor tensor;                               // the unit of its strides, bytes or elements, depends on the type
  int64_t extents[max_dims], strides[max_dims];  // the tensor's, unless the exchange API has them
  uint64_t dtype;                                // what tells element types apart
  int64_t stream;                                // of a DeviceArray
  bool is_read_only;
} ArrayView;

// Adds a type whose arrays can be read; false if there is no room.
bool register_array_type(const ArrayType *type);

// NULL if objects of its type are not known as arrays.
const ArrayType *array_type_of(PyObject *object);

// The type's index among those that are registered.
int64_t index_of(const ArrayType *type);

// False if the array cannot be read; no exception is set.
bool view_array(PyObject *array, const ArrayType *type, ArrayView *view);

// The address of an array's first element; NULL if it cannot be read.
void *address_of(PyObject *array);

// An integer attribute; false, without an exception, if it is none. Needs a registered type.
bool integer_attribute(PyObject *object, PyObject *name, int64_t *value);

// The integers of a tuple or list; false, without an exception, if it is none or has too many.
bool integers_of(PyObject *sequence, int64_t *values, int max_values, int *num_values);

// The integer that an object is. Takes the object, which may be NULL; false, without an exception, if it is none.
bool take_integer(PyObject *object, int64_t *value);

// The names of attributes, made with the first registered type.
#define ATTRIBUTE_NAMES(F) NAMES_OF_TORCH(F) NAMES_OF_ARRAYS(F) NAMES_OF_NUMBA(F) F(__array_struct__)
#define NAMES_OF_TORCH(F) F(requires_grad) F(_current_level)
#define NAMES_OF_ARRAYS(F) F(data) F(ptr) F(device_id) F(shape) F(strides) F(dtype) F(device) F(stream)
#define NAMES_OF_NUMBA(F) F(gpu_data) F(device_ctypes_pointer) F(value) F(context) F(id)
typedef struct {
#define FIELD(name) PyObject *name;
  ATTRIBUTE_NAMES(FIELD)
#undef FIELD
} AttributeNames;
extern AttributeNames names;

#endif
