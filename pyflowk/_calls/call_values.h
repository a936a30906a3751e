// SPDX-License-Identifier: Apache-2.0
// The arguments of a call as C values, and the key that says which calls have the same plan.
#ifndef PYFLOWK_CALLS_CALL_VALUES_H
#define PYFLOWK_CALLS_CALL_VALUES_H

#include "array_view.h"
#include "c_call.h"

enum { max_key_words = 256, max_watchers = 8, max_outs = 3 };

// What an argument is; call_path.py writes them. An operand is an array or a number; an int of role_array is in the
// key.
enum { role_array = 'a', role_operand = 'n', role_option = 'o', role_value = 'v', role_out = 'w', role_stream = 's' };

// Python's functions that tell whether torch must see a call: pyflowk/_torch/gate.py has the meaning. All are called
// without arguments if nothing else is said.
typedef struct {
  PyObject *watchers[max_watchers];  // true if torch watches all calls
  int num_watchers;
  PyObject *is_autocast_enabled;
  PyObject *forward_mode;  // the module with _current_level, which is -1 outside forward mode
  PyObject *is_grad_enabled;
  PyObject *is_neg, *is_conj;   // called with a tensor
  PyObject *increment_version;  // called with a tuple of tensors
  PyObject *get_default_dtype;
  PyObject *autocast_operators;  // no function: the names of the operators whose types autocast may choose, a set
} TorchGates;

typedef struct {
  uint64_t key[max_key_words];
  void *pointers[max_pointers];  // of the arrays in turn, and of outs
  Number numbers[max_numbers];   // those that are not in the key, in turn
  int num_key_words, num_pointers, num_numbers, num_outs;
  PyObject *outs[max_outs];  // NULL: not given
  PyObject *first;           // the first array
  const ArrayType *first_type;
  DLDevice device;
  void *stream;
  int64_t stream_of_array;  // of DeviceArrays
  bool has_stream_of_array, has_stream;
  bool is_watched;
  int asked;            // of torch
  bool is_mixed;        // an array is not torch's
  bool requires_grad;   // one of torch's tensors, while autograd is on
  int is_grad_enabled;  // -1: not asked
  bool by_operator;     // torch sees the call
} CallValues;

extern TorchGates torch_gates;

// Adds a type whose objects never change, a dtype's for example; false if there is no room.
bool register_constant_type(PyTypeObject *type);

// What a call asks of torch: a kernel does not ask for what the dispatcher has done before it. ask_watchers also asks
// whether tensors are lazily negated or conjugated.
enum { ask_autograd = 1, ask_autocast = 2, ask_watchers = 4 };

// Reads the arguments of a function that has these roles; those that are left out at the end are None. False if the
// fast path does not take the call; no exception is set.
bool read_arguments(CallValues *values, const char *roles, PyObject *const *arguments, Py_ssize_t num_arguments,
                    int asked);

// Is torch's autocast on?
bool is_autocast_enabled(void);

// Is the call's stream the one on which new arrays are allocated? If not, a call that needs some runs in Python.
bool is_on_current_stream(const CallValues *values);

#endif
