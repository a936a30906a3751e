/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a call of XLA's: its buffers and attributes. A function that reads or checks writes why it fails to
 * `call->message` and returns false. */
#ifndef FLOWK_FFI_FRAME_H_
#define FLOWK_FFI_FRAME_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../_native/c_functions.h"
#include "xla_ffi.h"

/* Of flowk_masked_softmax_backward(), if every array is given, and of flowk_cross_entropy(). */
enum { max_arguments = 9, max_results = 3 };

/* One flowk library: libflowk or libflowk_simt. */
typedef struct {
  FlowkFunctions functions;
  bool is_on_host;
  char why_none[400]; /* if the functions are NULL */
} Library;

/* An array in C order; the strides are in elements, 0 once the array is broadcast along a dimension. */
typedef struct {
  void *data;
  flowk_dtype dtype;
  int32_t rank;
  const int64_t *dims;
  int64_t strides[FLOWK_MAX_RANK];
} Tensor;

typedef struct {
  FfiCallFrame *frame;
  const Library *library;
  const FlowkFunctions *flowk; /* the library's */
  flowk_stream stream;
  void *workspace;
  Tensor arguments[max_arguments], results[max_results];
  char message[512];
} Call;

__attribute__((format(printf, 2, 3))) static bool fail(Call *call, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(call->message, sizeof(call->message), format, values);
  va_end(values);
  return false;
}

/* "s" after a count of things, but not after 1. */
static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

static const uint8_t dtypes[] = {
    [FFI_PRED] = FLOWK_BOOL,          [FFI_S8] = FLOWK_INT8,
    [FFI_S16] = FLOWK_INT16,          [FFI_S32] = FLOWK_INT32,
    [FFI_S64] = FLOWK_INT64,          [FFI_U8] = FLOWK_UINT8,
    [FFI_U16] = FLOWK_UINT16,         [FFI_U32] = FLOWK_UINT32,
    [FFI_U64] = FLOWK_UINT64,         [FFI_F16] = FLOWK_FLOAT16,
    [FFI_BF16] = FLOWK_BFLOAT16,      [FFI_F32] = FLOWK_FLOAT32,
    [FFI_F64] = FLOWK_FLOAT64,        [FFI_C64] = FLOWK_COMPLEX64,
    [FFI_C128] = FLOWK_COMPLEX128,    [FFI_F8E4M3FN] = FLOWK_FLOAT8_E4M3,
    [FFI_F8E5M2] = FLOWK_FLOAT8_E5M2,
};

static bool read_buffers(Call *call, const char *kind, const FfiBuffers *buffers, Tensor *tensors) {
  for (int index = 0; index < buffers->size; ++index) {
    if (buffers->types[index] != FFI_BUFFER) return fail(call, "%s %d is no buffer", kind, index);
    const FfiBuffer *buffer = buffers->values[index];
    if (buffer->rank > FLOWK_MAX_RANK) {
      return fail(call, "%s %d has %lld dimensions, must have <= %d", kind, index, (long long)buffer->rank,
                  FLOWK_MAX_RANK);
    }
    bool is_known = buffer->dtype >= 0 && buffer->dtype < (int)sizeof(dtypes) && dtypes[buffer->dtype] != 0;
    if (!is_known) {
      return fail(call, "%s %d has XLA's type %d, which flowk does not have", kind, index, buffer->dtype);
    }
    Tensor *tensor = &tensors[index];
    tensor->data = buffer->data;
    tensor->dtype = (flowk_dtype)dtypes[buffer->dtype];
    tensor->rank = (int32_t)buffer->rank;
    tensor->dims = buffer->dims;
    int64_t stride = 1;
    for (int32_t d = tensor->rank - 1; d >= 0; stride *= buffer->dims[d--]) tensor->strides[d] = stride;
  }
  return true;
}

/* Fills in call->arguments and call->results. */
static bool read_arrays(Call *call, int num_arguments, int num_results) {
  const FfiBuffers *arguments = &call->frame->arguments, *results = &call->frame->results;
  if (arguments->size != num_arguments || results->size != num_results) {
    return fail(call, "%lld argument%s and %lld result%s, must be %d and %d", (long long)arguments->size,
                plural(arguments->size), (long long)results->size, plural(results->size), num_arguments, num_results);
  }
  return read_buffers(call, "argument", arguments, call->arguments) &&
         read_buffers(call, "result", results, call->results);
}

static bool has_rank(Call *call, const char *name, const Tensor *tensor, int32_t rank) {
  return tensor->rank == rank ||
         fail(call, "%s has %d dimension%s, must have %d", name, tensor->rank, plural(tensor->rank), rank);
}

static bool has_extent(Call *call, const char *name, const Tensor *tensor, int32_t d, int64_t extent) {
  return tensor->dims[d] == extent || fail(call, "%s has %lld element%s along dimension %d, must have %lld", name,
                                           (long long)tensor->dims[d], plural(tensor->dims[d]), d, (long long)extent);
}

/* After its `first` dimensions the tensor has the first `count` extents of `other`, and no more. */
static bool has_extents(Call *call, const char *name, const Tensor *tensor, int32_t first, const Tensor *other,
                        int32_t count) {
  if (!has_rank(call, name, tensor, first + count)) return false;
  for (int32_t d = 0; d < count; ++d) {
    if (!has_extent(call, name, tensor, first + d, other->dims[d])) return false;
  }
  return true;
}

static bool has_dims(Call *call, const char *name, const Tensor *tensor, const Tensor *other) {
  return has_extents(call, name, tensor, 0, other, other->rank);
}

/* Broadcasts the tensor to the first `rank` extents of `out`. */
static bool broadcast(Call *call, const char *name, Tensor *tensor, const Tensor *out, int32_t rank) {
  if (!has_rank(call, name, tensor, rank)) return false;
  for (int32_t d = 0; d < rank; ++d) {
    if (tensor->dims[d] == 1) {
      tensor->strides[d] = 0;
    } else if (tensor->dims[d] != out->dims[d]) {
      return fail(call, "%s has %lld element%s along dimension %d, must have 1 or %lld", name,
                  (long long)tensor->dims[d], plural(tensor->dims[d]), d, (long long)out->dims[d]);
    }
  }
  return true;
}

static const void *find_attribute(Call *call, const char *name, int type) {
  const FfiAttributes *attributes = &call->frame->attributes;
  size_t length = strlen(name);
  for (int64_t i = 0; i < attributes->size; ++i) {
    const FfiByteSpan *span = attributes->names[i];
    if (span->len == length && memcmp(span->ptr, name, length) == 0 && attributes->types[i] == type) {
      return attributes->values[i];
    }
  }
  fail(call, "the call has no attribute %s of the type that this pyflowk takes", name);
  return NULL;
}

/* A number of 64 bits. */
static bool read_number(Call *call, const char *name, int dtype, void *value) {
  const FfiScalar *scalar = find_attribute(call, name, FFI_ATTRIBUTE_SCALAR);
  if (scalar == NULL) return false;
  if (scalar->dtype != dtype) {
    return fail(call, "attribute %s has XLA's type %d, must be %d", name, scalar->dtype, dtype);
  }
  memcpy(value, scalar->value, 8);
  return true;
}

static bool read_int64(Call *call, const char *name, int64_t *value) { return read_number(call, name, FFI_S64, value); }

static bool read_double(Call *call, const char *name, double *value) { return read_number(call, name, FFI_F64, value); }

/* `size` numbers; NULL if the attribute has others. */
static const void *read_array(Call *call, const char *name, int dtype, size_t size) {
  const FfiArray *array = find_attribute(call, name, FFI_ATTRIBUTE_ARRAY);
  if (array == NULL || (array->dtype == dtype && array->size == size)) return array == NULL ? NULL : array->data;
  fail(call, "attribute %s has %zu %s of XLA's type %d, must have %zu of %d", name, array->size,
       array->size == 1 ? "entry" : "entries", array->dtype, size, dtype);
  return NULL;
}

/* A C struct, as numbers of 64 bits. */
static bool read_struct(Call *call, const char *name, void *value, size_t num_bytes) {
  const void *words = read_array(call, name, FFI_S64, num_bytes / sizeof(int64_t));
  if (words != NULL) memcpy(value, words, num_bytes);
  return words != NULL;
}

#endif /* FLOWK_FFI_FRAME_H_ */
