/* SPDX-License-Identifier: Apache-2.0 */
/* Finds PyTorch's functions, registers kernels, and what all kernels share. */
#define _GNU_SOURCE
#include "torch_shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { max_torch_dtypes = 64 };

Shim shim;
static FlowkFunctions libraries[2]; /* of the host; of CUDA devices */
static flowk_dtype flowk_of_torch[max_torch_dtypes];
static int32_t torch_of_flowk[FLOWK_COMPLEX128 + 1];

static const struct {
  const char *name; /* of the function that gives PyTorch's number */
  flowk_dtype dtype;
} dtypes[] = {
    {"bool", FLOWK_BOOL},
    {"int8", FLOWK_INT8},
    {"int16", FLOWK_INT16},
    {"int32", FLOWK_INT32},
    {"int64", FLOWK_INT64},
    {"uint8", FLOWK_UINT8},
    {"uint16", FLOWK_UINT16},
    {"uint32", FLOWK_UINT32},
    {"uint64", FLOWK_UINT64},
    {"float16", FLOWK_FLOAT16},
    {"bfloat16", FLOWK_BFLOAT16},
    {"float32", FLOWK_FLOAT32},
    {"float64", FLOWK_FLOAT64},
    {"float8_e4m3fn", FLOWK_FLOAT8_E4M3},
    {"complex64", FLOWK_COMPLEX64},
    {"float8_e5m2", FLOWK_FLOAT8_E5M2},
    {"complex128", FLOWK_COMPLEX128},
};

/* Finds what the kernels need in the PyTorch whose extension module is the file `torch`. NULL, or the function that it
   lacks. */
EXPORT const char *pyflowk_torch_find(const char *torch) {
  void *module = dlopen(torch, RTLD_NOLOAD | RTLD_LAZY);
  if (module == NULL) return "torch._C";
#define FIND(result, name, parameters) *(void **)&shim.name = dlsym(module, #name);
  PYFLOWK_TORCH_SHIM(FIND)
  PYFLOWK_TORCH_OPTIONAL_SHIM(FIND)
#undef FIND
#define CHECK(result, name, parameters) \
  if (shim.name == NULL) return #name;
  PYFLOWK_TORCH_SHIM(CHECK)
#undef CHECK
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; ++i) {
    static char name[64];
    snprintf(name, sizeof name, "aoti_torch_dtype_%s", dtypes[i].name);
    int32_t (*number)(void);
    *(void **)&number = dlsym(module, name);
    if (number == NULL || number() < 0 || number() >= max_torch_dtypes) return name;
    flowk_of_torch[number()] = dtypes[i].dtype;
    torch_of_flowk[dtypes[i].dtype] = number();
  }
  return NULL;
}

/* Gives the functions of a library. */
EXPORT void pyflowk_torch_use(int32_t on_cuda, const FlowkFunctions *functions) {
  libraries[on_cuda != 0] = *functions;
}

/* Registers the kernel of an operator for a dispatch key; 1: there is one, 0: there is none, -1: PyTorch refuses it. */
EXPORT int32_t pyflowk_torch_register(const char *name, const char *key) {
  Kernel kernel = find_elementwise_kernel(name);
  if (kernel == NULL) kernel = find_kernel(name);
  if (kernel == NULL) return 0;
  if (strcmp(key, "CUDA") == 0 && shim.aoti_torch_get_current_cuda_stream == NULL) return 0;
  Library library = NULL; /* never deleted: with it the kernel would go */
  if (shim.aoti_torch_library_init_impl("flowk", key, __FILE__, __LINE__, &library) != 0) return -1;
  return shim.torch_library_impl(library, name, kernel, shim.aoti_torch_abi_version()) == 0 ? 1 : -1;
}

/* ---- what kernels share ------------------------------------------------------------------------------------------ */

View view_of(uint64_t argument) {
  View view = {.handle = (Tensor)(uintptr_t)argument};
  Tensor handle = view.handle;
  shim.aoti_torch_get_dim(handle, &view.rank);
  shim.aoti_torch_get_sizes(handle, &view.shape);
  shim.aoti_torch_get_strides(handle, &view.strides);
  shim.aoti_torch_get_data_ptr(handle, &view.data);
  shim.aoti_torch_get_dtype(handle, &view.torch_dtype);
  shim.aoti_torch_get_device_type(handle, &view.device_type);
  shim.aoti_torch_get_device_index(handle, &view.device_index);
  view.dtype = flowk_dtype_of((uint64_t)view.torch_dtype);
  return view;
}

int32_t torch_dtype_of(flowk_dtype dtype) { return torch_of_flowk[dtype]; }

flowk_dtype flowk_dtype_of(uint64_t torch_dtype) {
  return torch_dtype < max_torch_dtypes ? flowk_of_torch[torch_dtype] : (flowk_dtype)0;
}

void contiguous_strides(int64_t rank, const int64_t *shape, int64_t *strides) {
  int64_t stride = 1;
  for (int64_t d = rank - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= shape[d] > 1 ? shape[d] : 1;
  }
}

Tensor new_tensor(const View *like, int64_t rank, const int64_t *shape, const int64_t *strides, flowk_dtype dtype) {
  Tensor result = NULL;
  shim.aoti_torch_empty_strided(rank, shape, strides, torch_dtype_of(dtype), like->device_type, like->device_index,
                                &result);
  return result;
}

static bool is_on_host(const View *x) { return x->device_type == shim.aoti_torch_device_type_cpu(); }

bool has_library(const View *x) { return libraries[!is_on_host(x)].flowk_unary != NULL; }

Place enter(const View *x) {
  Place place = {.flowk = &libraries[!is_on_host(x)]};
  if (is_on_host(x)) return place;
  int32_t current = x->device_index;
  shim.aoti_torch_get_current_device_index(&current);
  if (current != x->device_index) shim.aoti_torch_create_device_guard(x->device_index, &place.guard);
  shim.aoti_torch_get_current_cuda_stream(x->device_index, (void **)&place.stream);
  return place;
}

bool leave(Place place, flowk_status status, const char *name, View *views, int num_views, Tensor result,
           uint64_t *stack) {
  if (place.guard != NULL) shim.aoti_torch_delete_device_guard(place.guard);
  if (result == NULL || status != FLOWK_STATUS_SUCCESS) {
    if (result != NULL) shim.aoti_torch_delete_tensor_object(result);
    call_python(name, stack);
    return false;
  }
  for (int i = 0; i < num_views; ++i) shim.aoti_torch_delete_tensor_object(views[i].handle);
  stack[0] = (uint64_t)(uintptr_t)result;
  return true;
}

static _Thread_local char error_text[768]; /* of the kernel in Python: PyTorch passes no exception on */

EXPORT void pyflowk_torch_keep_error(const char *text) { snprintf(error_text, sizeof error_text, "%s", text); }

void call_python(const char *name, uint64_t *stack) {
  char operator_name[64], text[1024];
  snprintf(operator_name, sizeof operator_name, "flowk::_%s", name);
  error_text[0] = 0;
  if (shim.torch_call_dispatcher(operator_name, "", stack, shim.aoti_torch_abi_version()) == 0) return;
  snprintf(text, sizeof text, "flowk::%s: %s", name, error_text[0] != 0 ? error_text : "PyTorch has logged why");
  shim.aoti_torch_check(false, name, __FILE__, __LINE__, text);
}
