// SPDX-License-Identifier: Apache-2.0
// The arguments of a call as C values, and the key that says which calls have the same plan.
#ifndef PYFLOWK_CALLS_READING_H
#define PYFLOWK_CALLS_READING_H

#include <stdbool.h>
#include <stdint.h>

#include "c_call.h"
#include "exchange_api.h"

enum { max_arguments = 16, max_key_words = 256, max_types = 16, max_watchers = 8, max_outs = 3 };

// What an argument is; roads.py writes them.
enum { role_array = 'a', role_option = 'o', role_value = 'v', role_out = 'w', role_stream = 's' };

// How the arrays of a type are read.
enum { by_exchange_api, by_cupy_attributes, by_device_array_attributes, by_numba_attributes, by_numpy_attributes };

typedef struct {
  PyTypeObject *type;
  int way;
  const ExchangeApi *api;  // by_exchange_api
  bool is_watched;         // by torch: `torch_gates`
  PyObject *of_framework;  // by_cupy_attributes: cupy.cuda.get_current_stream; by_numba_attributes: OwnedPointer
} ArrayType;

// What torch must see is not for this road: pyflowk/_torch/gate.py has the meaning.
typedef struct {
  PyObject *watchers[max_watchers];  // each called without arguments, true where torch watches all calls
  int num_watchers;
  PyObject *is_autocast_enabled;  // called without arguments
  PyObject *forward_mode;         // the module with _current_level, which is -1 outside forward mode
  PyObject *is_grad_enabled;      // called without arguments
  PyObject *is_neg;               // called with a tensor, as are
  PyObject *is_conj;
  PyObject *increment_version;  // called with a tuple of tensors
  PyObject *get_default_dtype;  // called without arguments
} TorchGates;

typedef struct {
  uint64_t key[max_key_words];
  void *pointers[max_pointers];  // of the arrays in turn, and of outs
  double numbers[max_numbers];   // of the floats in turn
  int num_key_words, num_pointers, num_numbers, num_outs;
  PyObject *outs[max_outs];  // NULL: not given
  PyObject *first;           // the first array
  const ArrayType *first_type;
  DLDevice device;
  void *stream;
  int64_t stream_of_array;  // of DeviceArrays
  bool has_stream_of_array, has_stream;
  bool is_watched;
  int is_grad_enabled;  // -1: not asked
} Reading;

extern TorchGates torch_gates;

// Adds a type whose arrays this road takes; a type whose objects never change, dtypes for example. False where there is
// no room.
bool make_type_known(const ArrayType *type);
bool make_constant(PyTypeObject *type);

// Reads the arguments of a function with these roles. False where the call is not for this road; no exception is set.
// `is_kernel`: it is the call of a kernel, which autograd and autocast have seen.
bool read_arguments(Reading *reading, const char *roles, PyObject *const *arguments, Py_ssize_t num_arguments,
                    bool is_kernel);

// Is the call's stream the one on which new arrays are allocated? If not, a call that needs some is Python's.
bool is_on_current_stream(const Reading *reading);

// The address of an array's first element; NULL where it cannot be read.
void *address_of(PyObject *array);

#endif
