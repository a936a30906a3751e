// SPDX-License-Identifier: Apache-2.0
#include "reading.h"

#include <stddef.h>
#include <string.h>

TorchGates torch_gates;
static ArrayType types[max_types];
static PyTypeObject *constant_types[max_types];
static int num_types, num_constant_types;

// The names of attributes, made by make_type_known().
#define NAMES(F) NAMES_OF_TORCH(F) NAMES_OF_ARRAYS(F) NAMES_OF_NUMBA(F) F(__array_interface__)
#define NAMES_OF_TORCH(F) F(requires_grad) F(_current_level)
#define NAMES_OF_ARRAYS(F) F(data) F(ptr) F(device_id) F(shape) F(strides) F(dtype) F(itemsize) F(device) F(stream)
#define NAMES_OF_NUMBA(F) F(gpu_data) F(device_ctypes_pointer) F(value) F(context) F(id)
static struct {
#define FIELD(name) PyObject *name;
  NAMES(FIELD)
#undef FIELD
} names;

bool make_type_known(const ArrayType *type) {
  if (!names.stream) {
#define FIELD(name) names.name = PyUnicode_InternFromString(#name);
    NAMES(FIELD)
#undef FIELD
  }
  if (num_types == max_types) return false;
  types[num_types++] = *type;
  return true;
}

bool make_constant(PyTypeObject *type) {
  if (num_constant_types == max_types) return false;
  constant_types[num_constant_types++] = type;
  return true;
}

static bool is_constant(PyObject *object) {
  for (int i = 0; i < num_constant_types; ++i)
    if (constant_types[i] == Py_TYPE(object)) return true;
  return PyUnicode_CheckExact(object) || Py_TYPE(object) == &PyType_Type;
}

static const ArrayType *type_of(PyObject *array) {
  for (int i = 0; i < num_types; ++i)
    if (types[i].type == Py_TYPE(array)) return &types[i];
  return NULL;
}

// ---- answers of Python's -------------------------------------------------------------------------------------------

// Takes the result of a call: 1 or 0, and 1 for an exception, which is cleared.
static bool is_true(PyObject *result) {
  if (!result) {
    PyErr_Clear();
    return true;
  }
  const int truth = result == Py_False ? 0 : result == Py_True ? 1 : PyObject_IsTrue(result);
  Py_DecRef(result);
  if (truth < 0) PyErr_Clear();
  return truth != 0;
}

// An integer that an attribute or item holds; false where it is none.
static bool take_integer(PyObject *object, int64_t *value) {
  if (!object) {
    PyErr_Clear();
    return false;
  }
  *value = PyLong_AsLongLong(object);
  Py_DecRef(object);
  if (*value != -1 || !PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

static bool integer_attribute(PyObject *object, PyObject *name, int64_t *value) {
  return take_integer(PyObject_GetAttr(object, name), value);
}

static bool integers_of(PyObject *tuple, int64_t *values, int max_values, int *num_values) {
  if (!PyTuple_CheckExact(tuple) && !PyList_CheckExact(tuple)) return false;
  const bool is_list = PyList_CheckExact(tuple);
  const intptr_t size = is_list ? PyList_Size(tuple) : PyTuple_Size(tuple);
  if (size > max_values) return false;
  for (intptr_t i = 0; i < size; ++i) {
    PyObject *item = is_list ? PyList_GetItem(tuple, i) : PyTuple_GetItem(tuple, i);
    if (!item || !PyLong_CheckExact(item)) return false;
    Py_IncRef(item);
    if (!take_integer(item, &values[i])) return false;
  }
  *num_values = (int)size;
  return true;
}

// ---- torch ----------------------------------------------------------------------------------------------------------

static bool torch_watches(bool is_kernel) {
  if (!is_kernel && is_true(PyObject_CallNoArgs(torch_gates.is_autocast_enabled))) return true;
  for (int i = 0; i < torch_gates.num_watchers; ++i)
    if (is_true(PyObject_CallNoArgs(torch_gates.watchers[i]))) return true;
  int64_t level;
  return !integer_attribute(torch_gates.forward_mode, names._current_level, &level) || level >= 0;
}

// Is the tensor's memory not the whole of it?
static bool torch_watches_tensor(PyObject *tensor, bool is_complex, int *is_grad_enabled) {
  if (*is_grad_enabled < 0) *is_grad_enabled = is_true(PyObject_CallNoArgs(torch_gates.is_grad_enabled));
  if (*is_grad_enabled && is_true(PyObject_GetAttr(tensor, names.requires_grad))) return true;
  if (is_true(PyObject_CallFunctionObjArgs(torch_gates.is_neg, tensor, NULL))) return true;
  return is_complex && is_true(PyObject_CallFunctionObjArgs(torch_gates.is_conj, tensor, NULL));
}

// ---- arrays ---------------------------------------------------------------------------------------------------------

typedef struct {
  DLTensor tensor;
  int64_t extents[32], strides[32];
  uint64_t dtype;  // what tells element types apart
  bool is_read_only;
} Array;

// object.first.second, an integer.
static bool integer_attribute_of(PyObject *object, PyObject *first, PyObject *second, int64_t *value) {
  PyObject *inner = PyObject_GetAttr(object, first);
  const bool is_read = inner && integer_attribute(inner, second, value);
  if (inner) Py_DecRef(inner);
  return is_read;
}

// Of memory that Numba frees by cuMemFree(), which waits for the work on it, and of an array without a stream.
static bool read_numba_memory(PyObject *array, const ArrayType *type, int64_t *pointer, int64_t *ordinal) {
  int64_t stream;
  if (!integer_attribute(array, names.stream, &stream) || stream != 0) return false;
  PyObject *memory = PyObject_GetAttr(array, names.gpu_data), *context = NULL;
  const bool is_read = memory && (PyObject *)Py_TYPE(memory) == type->of_framework &&
                       integer_attribute_of(memory, names.device_ctypes_pointer, names.value, pointer) &&
                       (context = PyObject_GetAttr(memory, names.context)) &&
                       integer_attribute_of(context, names.device, names.id, ordinal);
  if (context) Py_DecRef(context);
  if (memory) Py_DecRef(memory);
  return is_read;
}

static bool read_numpy_memory(PyObject *array, Array *read, int64_t *pointer) {
  PyObject *interface = PyObject_GetAttr(array, names.__array_interface__);
  PyObject *data = interface ? PyDict_GetItemWithError(interface, names.data) : NULL;  // (address, is read-only)
  bool is_read = data && PyTuple_CheckExact(data) && PyTuple_Size(data) == 2;
  if (is_read) {
    read->is_read_only = PyTuple_GetItem(data, 1) != Py_False;
    *pointer = PyLong_AsLongLong(PyTuple_GetItem(data, 0));
    is_read = !PyErr_Occurred();
  }
  Py_XDECREF(interface);
  return is_read;
}

// The pointer, shape and strides (in bytes) that an array has as attributes.
static bool read_attributes(PyObject *array, const ArrayType *type, Array *read, int64_t *stream) {
  DLTensor *tensor = &read->tensor;
  int64_t pointer, ordinal;
  *stream = 0;
  if (type->way == by_cupy_attributes) {
    PyObject *data = PyObject_GetAttr(array, names.data);
    const bool is_read =
        data && integer_attribute(data, names.ptr, &pointer) && integer_attribute(data, names.device_id, &ordinal);
    if (data) Py_DecRef(data);
    if (!is_read) {
      PyErr_Clear();
      return false;
    }
  } else if (type->way == by_numba_attributes) {
    if (!read_numba_memory(array, type, &pointer, &ordinal)) {
      PyErr_Clear();
      return false;
    }
  } else if (type->way == by_numpy_attributes) {
    ordinal = 0;
    if (!read_numpy_memory(array, read, &pointer)) {
      PyErr_Clear();
      return false;
    }
  } else if (!integer_attribute(array, names.ptr, &pointer) || !integer_attribute(array, names.device, &ordinal) ||
             !integer_attribute(array, names.stream, stream)) {
    return false;
  }
  PyObject *shape = PyObject_GetAttr(array, names.shape), *strides = PyObject_GetAttr(array, names.strides);
  PyObject *dtype = PyObject_GetAttr(array, names.dtype);
  int rank = 0, num_strides = 0;
  const bool is_read = shape && strides && dtype && integers_of(shape, read->extents, 32, &rank) &&
                       integers_of(strides, read->strides, 32, &num_strides) && rank == num_strides;
  // The array has the dtype and a plan keeps it, so that no other object gets its address.
  read->dtype = (uint64_t)(uintptr_t)dtype;
  if (shape) Py_DecRef(shape);
  if (strides) Py_DecRef(strides);
  if (dtype) Py_DecRef(dtype);
  if (!is_read) {
    PyErr_Clear();
    return false;
  }
  *tensor = (DLTensor){.data = (void *)(uintptr_t)pointer,
                       .device = {type->way == by_numpy_attributes ? dl_cpu : dl_cuda, (int32_t)ordinal},
                       .rank = rank,
                       .shape = read->extents,
                       .strides = read->strides};
  return true;
}

static bool read_array(PyObject *array, const ArrayType *type, Array *read, int64_t *stream) {
  if (type->way != by_exchange_api) return read_attributes(array, type, read, stream);
  if (type->api->tensor_from_object(array, &read->tensor)) {
    PyErr_Clear();
    return false;
  }
  const DLDataType dtype = read->tensor.dtype;
  read->dtype = (uint64_t)dtype.code | (uint64_t)dtype.bits << 8 | (uint64_t)dtype.lanes << 16;
  return read->tensor.rank <= 32 && (read->tensor.strides || read->tensor.rank == 0);
}

void *address_of(PyObject *array) {
  const ArrayType *type = type_of(array);
  Array read;
  int64_t stream;
  if (!type || !read_array(array, type, &read, &stream)) return NULL;
  return (char *)read.tensor.data + read.tensor.byte_offset;
}

// ---- arguments ------------------------------------------------------------------------------------------------------

static bool add_words(Reading *reading, const int64_t *words, int num_words) {
  if (reading->num_key_words + num_words > max_key_words) return false;
  memcpy(reading->key + reading->num_key_words, words, (size_t)num_words * sizeof *words);
  reading->num_key_words += num_words;
  return true;
}

static bool add_word(Reading *reading, uint64_t kind, uint64_t word) {
  const int64_t words[] = {(int64_t)kind, (int64_t)word};
  return add_words(reading, words, 2);
}

// Numbers, None and other objects that do not change: by value, or by address, which the plan keeps valid.
static bool add_object(Reading *reading, PyObject *object, bool is_number) {
  if (PyFloat_CheckExact(object)) {
    const double value = PyFloat_AsDouble(object);
    if (is_number) {
      if (reading->num_numbers == max_numbers) return false;
      reading->numbers[reading->num_numbers++] = value;
      return add_word(reading, 'f', 0);
    }
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return add_word(reading, 'F', bits);
  }
  int64_t values[33];
  int num_values;
  if (PyLong_CheckExact(object)) {
    Py_IncRef(object);
    return take_integer(object, values) && add_word(reading, 'i', (uint64_t)values[0]);
  }
  if (object == Py_None || object == Py_True || object == Py_False)
    return add_word(reading, 'c', (uint64_t)(uintptr_t)object);
  if (is_number) return false;
  if (is_constant(object)) return add_word(reading, 'c', (uint64_t)(uintptr_t)object);
  return integers_of(object, values, 33, &num_values) && add_word(reading, 't', (uint64_t)num_values) &&
         add_words(reading, values, num_values);
}

static bool add_array(Reading *reading, PyObject *array, const ArrayType *type, bool is_written) {
  Array read;
  int64_t stream;
  read.is_read_only = false;
  if (!read_array(array, type, &read, &stream) || (is_written && read.is_read_only)) return false;
  const DLTensor *tensor = &read.tensor;
  if (type->is_watched) {
    reading->is_watched = true;
    const bool is_complex = tensor->dtype.code == 5;
    if (torch_watches_tensor(array, is_complex, &reading->is_grad_enabled)) return false;
  }
  if (type->way == by_device_array_attributes) {  // arrays of several streams wait for each other
    if (reading->has_stream_of_array && stream != reading->stream_of_array) return false;
    reading->has_stream_of_array = true;
    reading->stream_of_array = stream;
  }
  if (reading->first && type != reading->first_type &&
      (type->way == by_numba_attributes || reading->first_type->way == by_numba_attributes))
    return false;  // the stream is the other array's
  if (!reading->first) {
    reading->first = array;
    reading->first_type = type;
    reading->device = tensor->device;
    if (tensor->device.type > dl_cuda_host) return false;
  } else if (tensor->device.type != reading->device.type || tensor->device.ordinal != reading->device.ordinal) {
    return false;
  }
  reading->pointers[reading->num_pointers] = (char *)tensor->data + tensor->byte_offset;
  const int64_t head[] = {type - types + 256, (int64_t)read.dtype, tensor->device.type,
                          (int64_t)tensor->device.ordinal << 32 | tensor->rank};
  return add_words(reading, head, 4) && add_words(reading, tensor->shape, tensor->rank) &&
         add_words(reading, tensor->strides, tensor->rank);
}

// The stream that the framework has made current, or the arrays' own.
static bool read_current_stream(const Reading *reading, void **stream) {
  const ArrayType *type = reading->first_type;
  int64_t handle;
  *stream = NULL;
  if (reading->device.type != dl_cuda) return true;
  switch (type->way) {
    case by_exchange_api:
      if (!type->api->current_stream(dl_cuda, reading->device.ordinal, stream)) return true;
      PyErr_Clear();
      return false;
    case by_cupy_attributes: {
      PyObject *object = PyObject_CallNoArgs(type->of_framework);
      const bool is_read = object && integer_attribute(object, names.ptr, &handle);
      Py_XDECREF(object);
      if (!is_read) PyErr_Clear();
      *stream = (void *)(uintptr_t)handle;
      return is_read;
    }
    default: *stream = (void *)(uintptr_t)reading->stream_of_array; return true;
  }
}

// The legacy default stream has two handles.
static bool is_same_stream(const void *first, const void *second) {
  enum { legacy_default = 1 };
  return first == second || ((uintptr_t)first <= legacy_default && (uintptr_t)second <= legacy_default);
}

bool is_on_current_stream(const Reading *reading) {
  void *current;
  return !reading->has_stream || reading->device.type != dl_cuda ||
         (read_current_stream(reading, &current) && is_same_stream(reading->stream, current));
}

static bool choose_stream(Reading *reading, const ArrayType *out_type) {
  if (!reading->has_stream) {
    // The stream of a DeviceArray gives way to the one that the framework of out has made current.
    if (out_type && out_type != reading->first_type && reading->first_type->way == by_device_array_attributes)
      return false;
    if (!read_current_stream(reading, &reading->stream)) return false;
  }
  // A DeviceArray of another stream is waited for.
  return !reading->has_stream_of_array ||
         is_same_stream(reading->stream, (const void *)(uintptr_t)reading->stream_of_array);
}

bool read_arguments(Reading *reading, const char *roles, PyObject *const *arguments, Py_ssize_t num_arguments,
                    bool is_kernel) {
  const ArrayType *out_type = NULL;
  bool lacks_out = false;
  memset((char *)reading + offsetof(Reading, num_key_words), 0, sizeof *reading - offsetof(Reading, num_key_words));
  reading->is_grad_enabled = is_kernel ? 0 : -1;
  for (Py_ssize_t i = 0; i < num_arguments; ++i) {
    PyObject *argument = arguments[i];
    const char role = roles[i];
    if (role == role_stream) {
      if (argument == Py_None) continue;
      if (!PyLong_CheckExact(argument)) return false;
      reading->has_stream = true;
      reading->stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(argument);
      if (reading->stream == (void *)UINTPTR_MAX) {
        PyErr_Clear();
        return false;
      }
      continue;
    }
    if (role == role_array || role == role_out) {
      if (reading->num_pointers == max_pointers) return false;
      reading->pointers[reading->num_pointers] = NULL;
      const ArrayType *type = type_of(argument);
      const bool is_added =
          type ? add_array(reading, argument, type, role == role_out) : add_object(reading, argument, true);
      if (!is_added) return false;
      ++reading->num_pointers;
      if (role == role_out) {
        lacks_out |= !type;
        if (type && reading->num_outs == 0) out_type = type;
        reading->outs[reading->num_outs++] = type ? argument : NULL;
      }
      continue;
    }
    if (!add_object(reading, argument, role == role_value)) return false;
  }
  if (!reading->first || (reading->is_watched && torch_watches(is_kernel))) return false;
  // Numba's results are made in Python, and its memory is held until the work of another stream is done.
  if (reading->first_type->way == by_numba_attributes && (lacks_out || reading->has_stream)) return false;
  return choose_stream(reading, out_type);
}
