/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of torch.ops.flowk use of PyTorch: functions of its stable C interface
 * (torch/csrc/inductor/aoti_torch/c/shim.h, torch/csrc/stable/c/shim.h), found in the process when the operators are
 * registered. Nothing of PyTorch is included or linked.
 *
 * A kernel gets a stack of 64-bit values, its arguments, and leaves its result in place of the first. Tensors and lists
 * arrive owned.
 */
#ifndef PYFLOWK_TORCH_SHIM_H
#define PYFLOWK_TORCH_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../_native/c_functions.h"

typedef struct AtenTensorOpaque *Tensor;
typedef struct TorchLibraryOpaque *Library;
typedef void (*Kernel)(uint64_t *stack, uint64_t num_arguments, uint64_t num_results);

/* SHIM(result, name, parameters); those that return int32_t return 0 for success, unless they name a number. */
#define PYFLOWK_TORCH_SHIM(SHIM)                                                                               \
  SHIM(uint64_t, aoti_torch_abi_version, (void))                                                               \
  SHIM(int32_t, aoti_torch_device_type_cpu, (void))                                                            \
  SHIM(int32_t, aoti_torch_get_dim, (Tensor, int64_t *))                                                       \
  SHIM(int32_t, aoti_torch_get_sizes, (Tensor, int64_t **))                                                    \
  SHIM(int32_t, aoti_torch_get_strides, (Tensor, int64_t **))                                                  \
  SHIM(int32_t, aoti_torch_get_data_ptr, (Tensor, void **))                                                    \
  SHIM(int32_t, aoti_torch_get_dtype, (Tensor, int32_t *))                                                     \
  SHIM(int32_t, aoti_torch_get_device_type, (Tensor, int32_t *))                                               \
  SHIM(int32_t, aoti_torch_get_device_index, (Tensor, int32_t *))                                              \
  SHIM(int32_t, aoti_torch_delete_tensor_object, (Tensor))                                                     \
  SHIM(int32_t, aoti_torch_empty_strided,                                                                      \
       (int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, Tensor *))                       \
  SHIM(int32_t, aoti_torch_get_current_device_index, (int32_t *))                                              \
  SHIM(int32_t, aoti_torch_create_device_guard, (int32_t, void **))                                            \
  SHIM(int32_t, aoti_torch_delete_device_guard, (void *))                                                      \
  SHIM(int32_t, aoti_torch_library_init_impl, (const char *, const char *, const char *, uint32_t, Library *)) \
  SHIM(int32_t, torch_library_impl, (Library, const char *, Kernel, uint64_t))                                 \
  SHIM(int32_t, torch_call_dispatcher, (const char *, const char *, uint64_t *, uint64_t))                     \
  SHIM(int32_t, torch_list_size, (void *, size_t *))                                                           \
  SHIM(int32_t, torch_list_get_item, (void *, size_t, uint64_t *))                                             \
  SHIM(int32_t, torch_delete_list, (void *))                                                                   \
  SHIM(void, aoti_torch_check, (bool, const char *, const char *, uint32_t, const char *))
/* What a PyTorch without CUDA lacks. */
#define PYFLOWK_TORCH_OPTIONAL_SHIM(SHIM) SHIM(int32_t, aoti_torch_get_current_cuda_stream, (int32_t, void **))

typedef struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
  PYFLOWK_TORCH_SHIM(MEMBER)
  PYFLOWK_TORCH_OPTIONAL_SHIM(MEMBER)
#undef MEMBER
} Shim;

typedef struct {
  Tensor handle;
  void *data;
  int64_t rank;
  int64_t *shape, *strides;
  int32_t torch_dtype, device_type, device_index;
  flowk_dtype dtype; /* 0: flowk has none */
} View;

/* The work of a kernel on a device: which library, on which stream. */
typedef struct {
  const FlowkFunctions *flowk;
  flowk_stream stream;
  void *guard;
} Place;

extern Shim shim;

View view_of(uint64_t argument);
int32_t torch_dtype_of(flowk_dtype dtype);
flowk_dtype flowk_dtype_of(uint64_t torch_dtype);
/* The strides of a contiguous tensor. */
void contiguous_strides(int64_t rank, const int64_t *shape, int64_t *strides);
Tensor new_tensor(const View *like, int64_t rank, const int64_t *shape, const int64_t *strides, flowk_dtype dtype);
/* Has this device's library been given? */
bool has_library(const View *x);
Place enter(const View *x);
/* Ends a kernel: deletes its tensors and leaves `result` on the stack. False without a result: Python has made the call
   again, and its error is the one that is raised. */
bool leave(Place place, flowk_status status, const char *name, View *views, int num_views, Tensor result,
           uint64_t *stack);
/* Runs a call that no kernel here takes by the operator flowk::_NAME, whose kernel is in Python. */
void call_python(const char *name, uint64_t *stack);

/* The kernel of an operator; NULL where there is none. */
Kernel find_elementwise_kernel(const char *name);
Kernel find_kernel(const char *name);

#endif
