// SPDX-License-Identifier: Apache-2.0
// The C road of a call, for arrays whose types are known (reading.h): one object of Python's per public function.
//
//   read the arguments -> find the plan by their key -> make the result -> call the C function -> give the result back
//
// A call without a plan is Python's: it runs there, and where its arguments come a second time Python gives the plan.
// Whatever is not plain is Python's too, an error of the library included: `call` raises it again, with its text.
//
// All of it runs under the GIL, which only run_planned_call() gives up: the plan in use is kept until it returns.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "reading.h"

#define EXPORT __attribute__((visibility("default")))

Python python;

typedef struct {
  PyMethod method;  // its text is this road's own
  PyObject *call;   // what Python does, with the same arguments
  PyObject *learn;  // called with the arguments as a tuple: the plan as one, or None
  intptr_t num_arguments;
  char roles[max_arguments + 1];
  PlannedCall planned;  // of a prepared call
  PyObject *kept;
} Road;

typedef struct {
  const Road *road;
  uint64_t hash;
  int num_users;  // the cache, and the calls that are under way
  bool is_plain;  // false: the call stays Python's
  PlannedCall call;
  PyObject *make;            // makes a new result; NULL: the exchange API does, by `like`
  PyObject *make_arguments;  // NULL: the first array
  PyObject *make_options;
  PyObject *kept;       // what `call` points to
  const int64_t *like;  // rank, shape and strides of a result that the exchange API makes
  int num_key_words;
  uint64_t key[];
} Plan;

// ---- the cache of plans ---------------------------------------------------------------------------------------------

// About 1 KB per plan; the oldest of a set makes room.
enum { num_sets = 1024, plans_per_set = 4, num_seen = 4096 };
static Plan *plans[num_sets][plans_per_set];
static uint32_t seen[num_seen];           // the upper halves of hashes of calls without a plan
static int (*get_current_device)(int *);  // cuCtxGetDevice, where there are several GPUs

static void let_go(Plan *plan) {
  if (!plan || --plan->num_users > 0) return;
  PyObject *held[] = {plan->make, plan->make_arguments, plan->make_options, plan->kept};
  for (int i = 0; i < 4; ++i)
    if (held[i]) python.Py_DecRef(held[i]);
  free(plan);
}

static uint64_t hash_of(const Road *road, const Reading *reading) {
  uint64_t hash = (uint64_t)(uintptr_t)road;
  for (int i = 0; i < reading->num_key_words; ++i) {
    hash = (hash ^ reading->key[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

static Plan *find_plan(const Road *road, const Reading *reading, uint64_t hash) {
  Plan **set = plans[hash % num_sets];
  for (int i = 0; i < plans_per_set && set[i]; ++i) {
    Plan *plan = set[i];
    if (plan->hash != hash || plan->road != road || plan->num_key_words != reading->num_key_words) continue;
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

// ---- learning -------------------------------------------------------------------------------------------------------

static int64_t integer_at(PyObject *tuple, intptr_t index) {
  return python.PyLong_AsLongLong(python.PyTuple_GetItem(tuple, index));
}

static PyObject *object_at(PyObject *tuple, intptr_t index) {
  PyObject *object = python.PyTuple_GetItem(tuple, index);
  if (object == python._Py_NoneStruct) return NULL;
  python.Py_IncRef(object);
  return object;
}

// The C call in (function, address, words, kept, ...), a tuple of recorded.py's.
static PlannedCall planned_call(PyObject *tuple) {
  PlannedCall call = {.function = (int)integer_at(tuple, 0), .address = (void *)(intptr_t)integer_at(tuple, 1)};
  PyObject *words = python.PyTuple_GetItem(tuple, 2);
  const size_t num_bytes = (size_t)python.PyBytes_Size(words);
  if (num_bytes > sizeof call.words) return (PlannedCall){.function = -1};
  call.num_words = (int)(num_bytes / sizeof *call.words);
  memcpy(call.words, python.PyBytes_AsString(words), num_bytes);
  return call;
}

// `learned` is None or (function, address, words, kept, make, arguments, options, like): what makes a new result, or
// the address of its rank, shape and strides.
static Plan *plan_of(const Road *road, const Reading *reading, uint64_t hash, PyObject *learned) {
  const size_t key_bytes = (size_t)reading->num_key_words * sizeof *reading->key;
  Plan *plan = calloc(1, sizeof *plan + key_bytes);
  if (!plan) return NULL;
  plan->road = road;
  plan->hash = hash;
  plan->num_users = 1;
  plan->num_key_words = reading->num_key_words;
  memcpy(plan->key, reading->key, key_bytes);
  if (learned == python._Py_NoneStruct) return plan;
  plan->is_plain = true;
  plan->call = planned_call(learned);
  plan->kept = object_at(learned, 3);
  plan->make = object_at(learned, 4);
  plan->make_arguments = object_at(learned, 5);
  plan->make_options = object_at(learned, 6);
  plan->like = (const int64_t *)(intptr_t)integer_at(learned, 7);
  return plan;
}

static PyObject *tuple_of(PyObject *const *objects, intptr_t num_objects) {
  PyObject *tuple = python.PyTuple_New(num_objects);
  for (intptr_t i = 0; tuple && i < num_objects; ++i) {
    python.Py_IncRef(objects[i]);
    python.PyTuple_SetItem(tuple, i, objects[i]);
  }
  return tuple;
}

static PyObject *call_python(const Road *road, PyObject *const *arguments, intptr_t num_arguments) {
  PyObject *tuple = tuple_of(arguments, num_arguments);
  PyObject *result = tuple ? python.PyObject_Call(road->call, tuple, NULL) : NULL;
  if (tuple) python.Py_DecRef(tuple);
  return result;
}

// Python's call; its plan is added where the same arguments come a second time.
static PyObject *call_and_learn(const Road *road, PyObject *const *arguments, const Reading *reading, uint64_t hash) {
  PyObject *result = call_python(road, arguments, road->num_arguments);
  uint32_t *place = &seen[hash % num_seen];
  const uint32_t tag = (uint32_t)(hash >> 32) | 1;
  const bool is_second = *place == tag;
  *place = tag;
  if (!result || !is_second) return result;
  PyObject *tuple = tuple_of(arguments, road->num_arguments);
  PyObject *learned = tuple ? python.PyObject_CallFunctionObjArgs(road->learn, tuple, NULL) : NULL;
  if (tuple) python.Py_DecRef(tuple);
  if (!learned) {
    python.Py_DecRef(result);
    return NULL;
  }
  Plan *plan = find_plan(road, reading, hash) ? NULL : plan_of(road, reading, hash, learned);
  python.Py_DecRef(learned);
  if (plan) add_plan(plan);
  return result;
}

// ---- a call ---------------------------------------------------------------------------------------------------------

static void ignore_error(void *context, const char *kind, const char *text) { (void)context, (void)kind, (void)text; }

// A new array for the result of the plan; NULL where none can be made, without an exception.
static PyObject *make_result(const Plan *plan, Reading *reading) {
  PyObject *result = NULL;
  if (plan->make_arguments) {
    result = python.PyObject_Call(plan->make, plan->make_arguments, plan->make_options);
  } else if (plan->make) {
    result = python.PyObject_CallFunctionObjArgs(plan->make, reading->first, NULL);
  } else {
    ManagedTensor *made = NULL;
    DLTensor like;
    const ExchangeApi *api = reading->first_type->api;
    if (!api->tensor_from_object(reading->first, &like)) {
      like.rank = (int32_t)plan->like[0];
      like.shape = (int64_t *)plan->like + 1;
      like.strides = like.shape + like.rank;
      if (!api->allocate(&like, &made, NULL, ignore_error)) api->object_from_managed(made, (void **)&result);
    }
  }
  if (!result) python.PyErr_Clear();
  return result;
}

static bool mark_written(PyObject *out) {
  PyObject *tuple = python.PyTuple_Pack(1, out);
  PyObject *done = tuple ? python.PyObject_CallFunctionObjArgs(torch_gates.increment_version, tuple, NULL) : NULL;
  if (tuple) python.Py_DecRef(tuple);
  if (done) python.Py_DecRef(done);
  return done != NULL;
}

static PyObject *enter(PyObject *self, PyObject *const *arguments, intptr_t num_arguments) {
  const Road *road = python.PyCapsule_GetPointer(self, NULL);
  Reading reading;
  int device;
  if (num_arguments != road->num_arguments || !read_arguments(&reading, road->roles, arguments, num_arguments))
    return call_python(road, arguments, num_arguments);
  const uint64_t hash = hash_of(road, &reading);
  Plan *plan = find_plan(road, &reading, hash);
  if (!plan) return call_and_learn(road, arguments, &reading, hash);
  if (!plan->is_plain) return call_python(road, arguments, num_arguments);
  if (get_current_device && reading.device.type == dl_cuda &&
      (get_current_device(&device) != 0 || device != reading.device.ordinal))
    return call_python(road, arguments, num_arguments);

  ++plan->num_users;
  PyObject *result = reading.out;
  if (result) {
    python.Py_IncRef(result);
  } else {
    result = make_result(plan, &reading);
    reading.pointers[reading.num_pointers - 1] = result ? address_of(result) : NULL;
  }
  const bool is_done = result && run_planned_call(&plan->call, reading.pointers, reading.numbers, reading.stream) == 0;
  let_go(plan);
  if (!is_done) {
    if (result) python.Py_DecRef(result);
    return call_python(road, arguments, num_arguments);
  }
  if (reading.out && reading.is_watched && !mark_written(reading.out)) python.PyErr_Clear();
  return result;
}

// A prepared call: addresses, and the stream.
static PyObject *run_prepared(PyObject *self, PyObject *const *arguments, intptr_t num_arguments) {
  const Road *road = python.PyCapsule_GetPointer(self, NULL);
  void *pointers[max_pointers + 1] = {0};
  if (num_arguments != road->num_arguments) return call_python(road, arguments, num_arguments);
  for (intptr_t i = 0; i < num_arguments; ++i) {
    if (arguments[i]->type != python.PyLong_Type) return call_python(road, arguments, num_arguments);
    const unsigned long long address = python.PyLong_AsUnsignedLongLong(arguments[i]);
    if (address == UINT64_MAX) {  // or an exception
      python.PyErr_Clear();
      return call_python(road, arguments, num_arguments);
    }
    pointers[i] = (void *)(uintptr_t)address;
  }
  if (run_planned_call(&road->planned, pointers, NULL, pointers[num_arguments - 1]) != 0)
    return call_python(road, arguments, num_arguments);
  python.Py_IncRef(python._Py_NoneStruct);
  return python._Py_NoneStruct;
}

static void delete_road(PyObject *capsule) {
  Road *road = python.PyCapsule_GetPointer(capsule, NULL);
  PyObject *held[] = {road->call, road->learn, road->kept};
  for (int i = 0; i < 3; ++i)
    if (held[i]) python.Py_DecRef(held[i]);
  free((char *)road->method.text);
  free(road);
}

static PyObject *function_of(Road *road, const char *name, FastCall function, const char *text) {
  road->method = (PyMethod){name, function, method_fastcall, strdup(text)};
  PyObject *capsule = python.PyCapsule_New(road, NULL, delete_road);
  PyObject *made = capsule ? python.PyCFunction_NewEx(&road->method, capsule, NULL) : NULL;
  if (capsule) python.Py_DecRef(capsule);
  return made;
}

// ---- for roads.py, which holds the GIL (ctypes.PyDLL) ---------------------------------------------------------------

// False where a function of Python's is not found.
EXPORT int flowk_calls_open(void) {
  bool is_whole = true;
#define FIND(result, name, parameters) is_whole &= (*(void **)&python.name = dlsym(RTLD_DEFAULT, #name)) != NULL;
  PYTHON_FUNCTIONS(FIND)
#undef FIND
#define FIND(name) is_whole &= (python.name = dlsym(RTLD_DEFAULT, #name)) != NULL;
  PYTHON_OBJECTS(FIND)
#undef FIND
  return is_whole;
}

// A function that takes arguments with these roles. NULL with an exception.
EXPORT PyObject *flowk_calls_road(const char *text, const char *roles, PyObject *call, PyObject *learn) {
  Road *road = calloc(1, sizeof *road);
  if (!road) return NULL;
  road->num_arguments = (intptr_t)strlen(roles);
  memcpy(road->roles, roles, (size_t)road->num_arguments);
  python.Py_IncRef(road->call = call);
  python.Py_IncRef(road->learn = learn);
  return function_of(road, "enter", enter, text);
}

// A function that takes `num_arguments` addresses, the last one a stream, for the call (function, address, words,
// kept).
EXPORT PyObject *flowk_calls_prepared(const char *text, int num_arguments, PyObject *planned, PyObject *call) {
  Road *road = calloc(1, sizeof *road);
  if (!road) return NULL;
  road->num_arguments = num_arguments;
  road->planned = planned_call(planned);
  road->kept = object_at(planned, 3);
  python.Py_IncRef(road->call = call);
  return function_of(road, "run", run_prepared, text);
}

EXPORT int flowk_calls_add_type(PyObject *type, int way, const ExchangeApi *api, int is_watched,
                                PyObject *of_framework) {
  const ArrayType known = {type, way, api, is_watched, of_framework};
  python.Py_IncRef(type);
  python.Py_IncRef(of_framework);
  return make_type_known(&known);
}

EXPORT int flowk_calls_add_constant(PyObject *type) {
  python.Py_IncRef(type);
  return make_constant(type);
}

// `gates` are the fields of TorchGates after the watchers, in order.
EXPORT void flowk_calls_watch(PyObject *watchers, PyObject *gates) {
  const intptr_t num_watchers = python.PyTuple_Size(watchers);
  for (intptr_t i = 0; i < num_watchers && i < max_watchers; ++i) torch_gates.watchers[i] = object_at(watchers, i);
  torch_gates.num_watchers = (int)num_watchers;
  torch_gates.forward_mode = object_at(gates, 0);
  torch_gates.is_grad_enabled = object_at(gates, 1);
  torch_gates.is_neg = object_at(gates, 2);
  torch_gates.is_conj = object_at(gates, 3);
  torch_gates.increment_version = object_at(gates, 4);
}

// Where there are several GPUs: a call is plain where its arrays' is the current one.
EXPORT void flowk_calls_check_device(void *cu_ctx_get_device) { *(void **)&get_current_device = cu_ctx_get_device; }

// How many calls this road takes.
EXPORT int flowk_calls_num_plans(void) {
  int num_plans = 0;
  for (int i = 0; i < num_sets; ++i)
    for (int j = 0; j < plans_per_set; ++j) num_plans += plans[i][j] && plans[i][j]->is_plain;
  return num_plans;
}

EXPORT void flowk_calls_forget(void) {
  for (int i = 0; i < num_sets; ++i)
    for (int j = 0; j < plans_per_set; ++j) {
      Plan *plan = plans[i][j];
      plans[i][j] = NULL;
      let_go(plan);
    }
}
