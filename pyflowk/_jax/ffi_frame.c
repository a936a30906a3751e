/* SPDX-License-Identifier: Apache-2.0 */
#include "ffi_frame.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool fail(Call *call, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(call->message, sizeof(call->message), format, values);
  va_end(values);
  return false;
}

static flowk_dtype dtype_of(int dtype) {
  switch (dtype) {
    case FFI_PRED: return FLOWK_BOOL;
    case FFI_S8: return FLOWK_INT8;
    case FFI_S16: return FLOWK_INT16;
    case FFI_S32: return FLOWK_INT32;
    case FFI_S64: return FLOWK_INT64;
    case FFI_U8: return FLOWK_UINT8;
    case FFI_U16: return FLOWK_UINT16;
    case FFI_U32: return FLOWK_UINT32;
    case FFI_U64: return FLOWK_UINT64;
    case FFI_F16: return FLOWK_FLOAT16;
    case FFI_BF16: return FLOWK_BFLOAT16;
    case FFI_F32: return FLOWK_FLOAT32;
    case FFI_F64: return FLOWK_FLOAT64;
    case FFI_F8E4M3FN: return FLOWK_FLOAT8_E4M3;
    case FFI_F8E5M2: return FLOWK_FLOAT8_E5M2;
    case FFI_C64: return FLOWK_COMPLEX64;
    case FFI_C128: return FLOWK_COMPLEX128;
    default: return 0;
  }
}

static bool read_buffer(Call *call, const char *kind, const FfiBuffers *buffers, int64_t index, Tensor *tensor) {
  if (index >= buffers->size || buffers->types[index] != FFI_BUFFER) {
    return fail(call, "%s %lld is no buffer", kind, (long long)index);
  }
  const FfiBuffer *buffer = buffers->values[index];
  if (buffer->rank > FLOWK_MAX_RANK) {
    return fail(call, "%s %lld has %lld dimensions, must have <= %d", kind, (long long)index, (long long)buffer->rank,
                FLOWK_MAX_RANK);
  }
  tensor->data = buffer->data;
  tensor->dtype = dtype_of(buffer->dtype);
  tensor->rank = (int32_t)buffer->rank;
  tensor->dims = buffer->dims;
  if (tensor->dtype == 0) {
    return fail(call, "%s %lld has XLA's type %d, which flowk does not have", kind, (long long)index, buffer->dtype);
  }
  return true;
}

bool read_argument(Call *call, int64_t index, Tensor *tensor) {
  return read_buffer(call, "argument", &call->frame->arguments, index, tensor);
}

bool read_result(Call *call, int64_t index, Tensor *tensor) {
  return read_buffer(call, "result", &call->frame->results, index, tensor);
}

bool has_sizes(Call *call, int64_t num_arguments, int64_t num_results) {
  int64_t arguments = call->frame->arguments.size, results = call->frame->results.size;
  if (arguments == num_arguments && results == num_results) return true;
  return fail(call, "%lld arguments and %lld results, must be %lld and %lld", (long long)arguments, (long long)results,
              (long long)num_arguments, (long long)num_results);
}

bool has_dims(Call *call, const char *name, const Tensor *tensor, const Tensor *other) {
  if (tensor->rank != other->rank) {
    return fail(call, "%s has %d dimensions, must have %d", name, tensor->rank, other->rank);
  }
  for (int32_t d = 0; d < tensor->rank; ++d) {
    if (tensor->dims[d] != other->dims[d]) {
      return fail(call, "%s has %lld elements along dimension %d, must have %lld", name, (long long)tensor->dims[d], d,
                  (long long)other->dims[d]);
    }
  }
  return true;
}

bool broadcast_strides(Call *call, const char *name, const Tensor *tensor, const Tensor *out, int32_t rank,
                       int64_t *strides) {
  if (tensor->rank != rank) return fail(call, "%s has %d dimensions, must have %d", name, tensor->rank, rank);
  int64_t stride = 1;
  for (int32_t d = rank - 1; d >= 0; --d) {
    int64_t extent = tensor->dims[d];
    if (extent != 1 && extent != out->dims[d]) {
      return fail(call, "%s has %lld elements along dimension %d, must have 1 or %lld", name, (long long)extent, d,
                  (long long)out->dims[d]);
    }
    strides[d] = extent == 1 ? 0 : stride;
    stride *= extent;
  }
  return true;
}

static const void *find_attribute(Call *call, const char *name, int type) {
  const FfiAttributes *attributes = &call->frame->attributes;
  size_t length = strlen(name);
  for (int64_t i = 0; i < attributes->size; ++i) {
    const FfiByteSpan *found = attributes->names[i];
    if (found->len == length && memcmp(found->ptr, name, length) == 0 && attributes->types[i] == type) {
      return attributes->values[i];
    }
  }
  fail(call, "the call has no attribute %s of the type that this pyflowk takes", name);
  return NULL;
}

static bool read_scalar(Call *call, const char *name, int dtype, void *value) {
  const FfiScalar *scalar = find_attribute(call, name, FFI_ATTRIBUTE_SCALAR);
  if (scalar == NULL) return false;
  if (scalar->dtype != dtype)
    return fail(call, "attribute %s has XLA's type %d, must be %d", name, scalar->dtype, dtype);
  memcpy(value, scalar->value, 8);
  return true;
}

bool read_int64(Call *call, const char *name, int64_t *value) { return read_scalar(call, name, FFI_S64, value); }

bool read_double(Call *call, const char *name, double *value) { return read_scalar(call, name, FFI_F64, value); }

static const void *read_array(Call *call, const char *name, int dtype, size_t size) {
  const FfiArray *array = find_attribute(call, name, FFI_ATTRIBUTE_ARRAY);
  if (array == NULL || (array->dtype == dtype && array->size == size)) return array == NULL ? NULL : array->data;
  fail(call, "attribute %s has %zu entries of XLA's type %d, must have %zu of %d", name, array->size, array->dtype,
       size, dtype);
  return NULL;
}

bool read_int32s(Call *call, const char *name, size_t size, const int32_t **values) {
  *values = read_array(call, name, FFI_S32, size);
  return *values != NULL;
}

bool read_int64s(Call *call, const char *name, size_t size, const int64_t **values) {
  *values = read_array(call, name, FFI_S64, size);
  return *values != NULL;
}
