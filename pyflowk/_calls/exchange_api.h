// SPDX-License-Identifier: Apache-2.0
// DLPack 1.3's tensor and its C exchange API, a table of functions that an array's type has in the attribute
// `__dlpack_c_exchange_api__`: https://github.com/dmlc/dlpack/blob/v1.3/include/dlpack/dlpack.h
#ifndef PYFLOWK_CALLS_EXCHANGE_API_H
#define PYFLOWK_CALLS_EXCHANGE_API_H

#include <stdint.h>

enum { dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3 };

typedef struct {
  int32_t type;
  int32_t ordinal;
} DLDevice;

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void *data;
  DLDevice device;
  int32_t rank;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;  // in elements; NULL is C order
  uint64_t byte_offset;
} DLTensor;

typedef struct ManagedTensor {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct ManagedTensor *self);
  uint64_t flags;
  DLTensor tensor;
} ManagedTensor;

typedef void (*SetError)(void *context, const char *kind, const char *message);

typedef struct {
  uint32_t major, minor;
  void *older;
  int (*allocate)(DLTensor *prototype, ManagedTensor **out, void *context, SetError set_error);
  int (*managed_from_object)(void *object, ManagedTensor **out);
  int (*object_from_managed)(ManagedTensor *tensor, void **object);
  int (*tensor_from_object)(void *object, DLTensor *out);  // the tensor stays the object's; may be NULL
  int (*current_stream)(int32_t device_type, int32_t ordinal, void **stream);
} ExchangeApi;

#endif
