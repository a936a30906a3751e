// SPDX-License-Identifier: Apache-2.0
#include "call_values.h"

#include <stddef.h>
#include <string.h>

enum { max_constant_types = 16 };

TorchGates torch_gates;
static PyTypeObject *constant_types[max_constant_types];
static int num_constant_types;

bool register_constant_type(PyTypeObject *type) {
  if (num_constant_types == max_constant_types) return false;
  constant_types[num_constant_types++] = type;
  return true;
}

static bool is_constant(PyObject *object) {
  for (int i = 0; i < num_constant_types; ++i)
    if (constant_types[i] == Py_TYPE(object)) return true;
  return PyUnicode_CheckExact(object) || Py_TYPE(object) == &PyType_Type;
}

// ---- torch ----------------------------------------------------------------------------------------------------------

// The truth of a result, which it takes; true for an exception, which it clears.
static bool is_true(PyObject *result) {
  if (!result) {
    PyErr_Clear();
    return true;
  }
  const int truth = result == Py_False ? 0 : result == Py_True ? 1 : PyObject_IsTrue(result);
  Py_DECREF(result);
  if (truth < 0) PyErr_Clear();
  return truth != 0;
}

static bool torch_watches(void) {
  for (int i = 0; i < torch_gates.num_watchers; ++i)
    if (is_true(PyObject_CallNoArgs(torch_gates.watchers[i]))) return true;
  int64_t level;
  return !integer_attribute(torch_gates.forward_mode, names._current_level, &level) || level >= 0;
}

bool is_autocast_enabled(void) { return is_true(PyObject_CallNoArgs(torch_gates.is_autocast_enabled)); }

// Is the tensor negated or conjugated when it is read?
static bool is_lazy(PyObject *tensor, bool is_complex) {
  if (is_true(PyObject_CallFunctionObjArgs(torch_gates.is_neg, tensor, NULL))) return true;
  return is_complex && is_true(PyObject_CallFunctionObjArgs(torch_gates.is_conj, tensor, NULL));
}

// ---- arguments ------------------------------------------------------------------------------------------------------

static bool add_words(CallValues *values, const int64_t *words, int num_words) {
  if (values->num_key_words + num_words > max_key_words) return false;
  memcpy(values->key + values->num_key_words, words, (size_t)num_words * sizeof *words);
  values->num_key_words += num_words;
  return true;
}

static bool add_word(CallValues *values, uint64_t kind, uint64_t word) {
  const int64_t words[] = {(int64_t)kind, (int64_t)word};
  return add_words(values, words, 2);
}

// Numbers, None and other objects that do not change. They enter the key by value, or by address: the plan keeps them
// alive. Of a float that is a number of the call, only its type does.
static bool add_object(CallValues *values, PyObject *object, bool is_number) {
  if (PyFloat_CheckExact(object)) {
    const double value = PyFloat_AsDouble(object);
    if (is_number) {
      values->numbers[values->num_numbers++].d = value;
      return add_word(values, 'f', 0);
    }
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return add_word(values, 'F', bits);
  }
  int64_t integers[33];
  int num_integers;
  if (PyLong_CheckExact(object)) {
    Py_INCREF(object);
    return take_integer(object, integers) && add_word(values, 'i', (uint64_t)integers[0]);
  }
  if (object == Py_None || object == Py_True || object == Py_False)
    return add_word(values, 'c', (uint64_t)(uintptr_t)object);
  if (is_number) return false;
  if (is_constant(object)) return add_word(values, 'c', (uint64_t)(uintptr_t)object);
  return integers_of(object, integers, 33, &num_integers) && add_word(values, 't', (uint64_t)num_integers) &&
         add_words(values, integers, num_integers);
}

static bool add_array(CallValues *values, PyObject *array, const ArrayType *type, bool is_written) {
  ArrayView view;
  if (!view_array(array, type, &view) || (is_written && view.is_read_only)) return false;
  const DLTensor *tensor = &view.tensor;
  if (type->is_watched) {
    values->is_watched = true;
    if (values->asked & ask_watchers && is_lazy(array, tensor->dtype.code == 5)) return false;
    if (values->is_grad_enabled < 0)
      values->is_grad_enabled = is_true(PyObject_CallNoArgs(torch_gates.is_grad_enabled));
    if (values->is_grad_enabled && !values->requires_grad)
      values->requires_grad = is_true(PyObject_GetAttr(array, names.requires_grad));
  } else {
    values->is_mixed = true;
  }
  if (type->access == by_device_array_attributes) {  // arrays of several streams wait for each other
    if (values->has_stream_of_array && view.stream != values->stream_of_array) return false;
    values->has_stream_of_array = true;
    values->stream_of_array = view.stream;
  }
  if (values->first && type != values->first_type &&
      (type->access == by_numba_attributes || values->first_type->access == by_numba_attributes))
    return false;  // the stream is the other array's
  if (!values->first) {
    values->first = array;
    values->first_type = type;
    values->device = tensor->device;
    if (tensor->device.type > dl_cuda_host) return false;
  } else if (tensor->device.type != values->device.type || tensor->device.ordinal != values->device.ordinal) {
    return false;
  }
  values->pointers[values->num_pointers] = (char *)tensor->data + tensor->byte_offset;
  const int64_t head[] = {index_of(type) + 256, (int64_t)view.dtype, tensor->device.type,
                          (int64_t)tensor->device.ordinal << 32 | tensor->rank};
  return add_words(values, head, 4) && add_words(values, tensor->shape, tensor->rank) &&
         add_words(values, tensor->strides, tensor->rank);
}

// An int that is not in the key.
static bool add_integer(CallValues *values, PyObject *argument) {
  Number *number = &values->numbers[values->num_numbers++];
  Py_INCREF(argument);
  if (!take_integer(argument, &number->i)) return false;
  number->d = (double)number->i;
  return add_word(values, 'j', 0);
}

// An array, or what stands for one; the address of a number or of None is NULL.
static bool add_operand(CallValues *values, PyObject *argument, const ArrayType *type, char role) {
  const bool is_out = role == role_out;
  if (values->num_pointers == max_pointers) return false;
  values->pointers[values->num_pointers] = NULL;
  const bool is_added = type ? add_array(values, argument, type, is_out)
                        : role == role_operand && PyLong_CheckExact(argument) ? add_integer(values, argument)
                                                                              : add_object(values, argument, true);
  if (!is_added) return false;
  ++values->num_pointers;
  if (is_out) values->outs[values->num_outs++] = type ? argument : NULL;
  return true;
}

static bool add_stream(CallValues *values, PyObject *argument) {
  if (argument == Py_None) return true;
  if (!PyLong_CheckExact(argument)) return false;
  values->has_stream = true;
  values->stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(argument);
  if (values->stream != (void *)UINTPTR_MAX) return true;
  PyErr_Clear();
  return false;
}

// The stream that the framework has made current, or the arrays' own.
static bool read_current_stream(const CallValues *values, void **stream) {
  const ArrayType *type = values->first_type;
  int64_t handle;
  *stream = NULL;
  if (values->device.type != dl_cuda) return true;
  switch (type->access) {
    case by_exchange_api:
      if (!type->api->current_stream(dl_cuda, values->device.ordinal, stream)) return true;
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
    default: *stream = (void *)(uintptr_t)values->stream_of_array; return true;
  }
}

// The legacy default stream has two handles.
static bool is_same_stream(const void *first, const void *second) {
  enum { legacy_default = 1 };
  return first == second || ((uintptr_t)first <= legacy_default && (uintptr_t)second <= legacy_default);
}

bool is_on_current_stream(const CallValues *values) {
  void *current;
  return !values->has_stream || values->device.type != dl_cuda ||
         (read_current_stream(values, &current) && is_same_stream(values->stream, current));
}

static bool choose_stream(CallValues *values, const ArrayType *out_type) {
  if (!values->has_stream) {
    // If the framework of `out` has made a stream current, that one is used, not the DeviceArray's.
    if (out_type && out_type != values->first_type && values->first_type->access == by_device_array_attributes)
      return false;
    if (!read_current_stream(values, &values->stream)) return false;
  }
  // The work of a DeviceArray's own stream has to be waited for.
  return !values->has_stream_of_array ||
         is_same_stream(values->stream, (const void *)(uintptr_t)values->stream_of_array);
}

bool read_arguments(CallValues *values, const char *roles, PyObject *const *arguments, Py_ssize_t num_arguments,
                    int asked) {
  const ArrayType *out_type = NULL;
  bool lacks_out = false;
  memset((char *)values + offsetof(CallValues, num_key_words), 0, sizeof *values - offsetof(CallValues, num_key_words));
  values->asked = asked;
  values->is_grad_enabled = asked & ask_autograd ? -1 : 0;
  for (Py_ssize_t i = 0; roles[i]; ++i) {
    PyObject *argument = i < num_arguments ? arguments[i] : Py_None;
    const char role = roles[i];
    if (role == role_stream) {
      if (!add_stream(values, argument)) return false;
    } else if (role == role_array || role == role_operand || role == role_out) {
      const ArrayType *type = array_type_of(argument);
      if (!add_operand(values, argument, type, role)) return false;
      if (role == role_out) {
        lacks_out |= !type;
        if (values->num_outs == 1) out_type = type;
      }
    } else if (!add_object(values, argument, role == role_value)) {
      return false;
    }
  }
  if (!values->first || (values->is_watched && asked & ask_watchers && torch_watches())) return false;
  // Numba's results are made in Python, and its memory is held until the work of another stream is done.
  if (values->first_type->access == by_numba_attributes && (lacks_out || values->has_stream)) return false;
  return choose_stream(values, out_type);
}
