// SPDX-License-Identifier: Apache-2.0
#include "array_view.h"

#include <string.h>

AttributeNames names;
static ArrayType types[max_types];
static int num_types;

bool register_array_type(const ArrayType *type) {
  if (!names.stream) {
#define FIELD(name) names.name = PyUnicode_InternFromString(#name);
    ATTRIBUTE_NAMES(FIELD)
#undef FIELD
  }
  if (num_types == max_types) return false;
  types[num_types++] = *type;
  return true;
}

const ArrayType *array_type_of(PyObject *object) {
  for (int i = 0; i < num_types; ++i)
    if (types[i].type == Py_TYPE(object)) return &types[i];
  return NULL;
}

int64_t index_of(const ArrayType *type) { return type - types; }

// ---- integers -------------------------------------------------------------------------------------------------------

bool take_integer(PyObject *object, int64_t *value) {
  if (!object) {
    PyErr_Clear();
    return false;
  }
  *value = PyLong_AsLongLong(object);
  Py_DECREF(object);
  if (*value != -1 || !PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

bool integer_attribute(PyObject *object, PyObject *name, int64_t *value) {
  return take_integer(PyObject_GetAttr(object, name), value);
}

// object.first.second, an integer.
static bool integer_attribute_of(PyObject *object, PyObject *first, PyObject *second, int64_t *value) {
  PyObject *inner = PyObject_GetAttr(object, first);
  const bool is_read = inner && integer_attribute(inner, second, value);
  Py_XDECREF(inner);
  return is_read;
}

bool integers_of(PyObject *sequence, int64_t *values, int max_values, int *num_values) {
  const bool is_list = PyList_CheckExact(sequence);
  if (!is_list && !PyTuple_CheckExact(sequence)) return false;
  const Py_ssize_t size = is_list ? PyList_Size(sequence) : PyTuple_Size(sequence);
  if (size > max_values) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject *item = is_list ? PyList_GetItem(sequence, i) : PyTuple_GetItem(sequence, i);
    if (!item || !PyLong_CheckExact(item)) return false;
    Py_INCREF(item);
    if (!take_integer(item, &values[i])) return false;
  }
  *num_values = (int)size;
  return true;
}

// ---- addresses ------------------------------------------------------------------------------------------------------

static bool read_cupy_memory(PyObject *array, int64_t *pointer, int64_t *ordinal) {
  PyObject *data = PyObject_GetAttr(array, names.data);
  const bool is_read = data && integer_attribute(data, names.ptr, pointer) &&
                       (!ordinal || integer_attribute(data, names.device_id, ordinal));
  Py_XDECREF(data);
  return is_read;
}

// Reads only arrays that Numba allocated itself, because its cuMemFree() waits for pending work, and that have no
// stream.
static bool read_numba_memory(PyObject *array, const ArrayType *type, int64_t *pointer, int64_t *ordinal) {
  int64_t stream;
  if (!integer_attribute(array, names.stream, &stream) || stream != 0) return false;
  PyObject *memory = PyObject_GetAttr(array, names.gpu_data), *context = NULL;
  const bool is_read = memory && (PyObject *)Py_TYPE(memory) == type->of_framework &&
                       integer_attribute_of(memory, names.device_ctypes_pointer, names.value, pointer) &&
                       (context = PyObject_GetAttr(memory, names.context)) &&
                       integer_attribute_of(context, names.device, names.id, ordinal);
  Py_XDECREF(context);
  Py_XDECREF(memory);
  return is_read;
}

// ---- arrays ---------------------------------------------------------------------------------------------------------

// The address of the dtype, an object: the array keeps it alive during the call, and the plan after it, so that no
// other object gets its address.
static bool read_dtype(PyObject *array, ArrayView *view) {
  PyObject *dtype = PyObject_GetAttr(array, names.dtype);
  view->dtype = (uint64_t)(uintptr_t)dtype;
  Py_XDECREF(dtype);
  return dtype;
}

static void set_tensor(ArrayView *view, void *data, int device_type, int64_t ordinal, int rank) {
  view->tensor = (DLTensor){.data = data,
                            .device = {device_type, (int32_t)ordinal},
                            .rank = rank,
                            .shape = view->extents,
                            .strides = view->strides};
}

// The shape and the strides (in bytes) that an array has as attributes.
static bool read_attributes(PyObject *array, const ArrayType *type, ArrayView *view) {
  int64_t pointer, ordinal;
  switch (type->access) {
    case by_cupy_attributes:
      if (!read_cupy_memory(array, &pointer, &ordinal)) return false;
      break;
    case by_numba_attributes:
      if (!read_numba_memory(array, type, &pointer, &ordinal)) return false;
      break;
    default:
      if (!integer_attribute(array, names.ptr, &pointer) || !integer_attribute(array, names.device, &ordinal) ||
          !integer_attribute(array, names.stream, &view->stream))
        return false;
  }
  PyObject *shape = PyObject_GetAttr(array, names.shape), *strides = PyObject_GetAttr(array, names.strides);
  int rank = 0, num_strides = 0;
  const bool is_read = shape && strides && integers_of(shape, view->extents, max_dims, &rank) &&
                       integers_of(strides, view->strides, max_dims, &num_strides) && rank == num_strides;
  Py_XDECREF(shape);
  Py_XDECREF(strides);
  set_tensor(view, (void *)(uintptr_t)pointer, dl_cuda, ordinal, rank);
  return is_read && read_dtype(array, view);
}

// NumPy's PyArrayInterface, to which the capsule of __array_struct__ points.
typedef struct {
  int two, num_dims;
  char kind;
  int item_bytes, flags;
  Py_ssize_t *shape, *strides;  // in bytes
  void *data;
} ArrayInterface;

static bool read_numpy_interface(PyObject *array, ArrayView *view) {
  enum { is_writeable = 0x400 };
  PyObject *capsule = PyObject_GetAttr(array, names.__array_struct__);
  const ArrayInterface *interface = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
  const bool is_read = interface && interface->num_dims <= max_dims;
  if (is_read) {
    const size_t num_bytes = (size_t)interface->num_dims * sizeof(int64_t);
    if (num_bytes > 0) {
      memcpy(view->extents, interface->shape, num_bytes);
      memcpy(view->strides, interface->strides, num_bytes);
    }
    view->is_read_only = !(interface->flags & is_writeable);
    set_tensor(view, interface->data, dl_cpu, 0, interface->num_dims);
  }
  Py_XDECREF(capsule);
  return is_read && read_dtype(array, view);
}

static bool read_exchanged_tensor(PyObject *array, const ArrayType *type, ArrayView *view) {
  if (type->api->tensor_from_object(array, &view->tensor)) return false;
  const DLDataType dtype = view->tensor.dtype;
  view->dtype = (uint64_t)dtype.code | (uint64_t)dtype.bits << 8 | (uint64_t)dtype.lanes << 16;
  return view->tensor.rank <= max_dims && (view->tensor.strides || view->tensor.rank == 0);
}

bool view_array(PyObject *array, const ArrayType *type, ArrayView *view) {
  view->is_read_only = false;
  view->stream = 0;
  const bool is_read = type->access == by_exchange_api      ? read_exchanged_tensor(array, type, view)
                       : type->access == by_numpy_interface ? read_numpy_interface(array, view)
                                                            : read_attributes(array, type, view);
  if (!is_read) PyErr_Clear();
  return is_read;
}

void *address_of(PyObject *array) {
  const ArrayType *type = array_type_of(array);
  ArrayView view;
  int64_t pointer;
  if (!type) return NULL;
  if (type->access == by_cupy_attributes) {
    if (read_cupy_memory(array, &pointer, NULL)) return (void *)(uintptr_t)pointer;
    PyErr_Clear();
    return NULL;
  }
  return view_array(array, type, &view) ? (char *)view.tensor.data + view.tensor.byte_offset : NULL;
}
