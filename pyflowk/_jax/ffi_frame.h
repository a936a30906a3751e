/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a call of XLA's: its buffers and attributes. A reader that fails writes why to `call->message` and returns
 * false. */
#ifndef FLOWK_FFI_FRAME_H_
#define FLOWK_FFI_FRAME_H_

#include <stdbool.h>

#include "../_native/c_functions.h"
#include "xla_ffi.h"

/* One flowk library: libflowk or libflowk_simt. */
typedef struct {
  FlowkFunctions functions;
  bool is_on_host;
  char why_none[400]; /* where the functions are NULL */
} Library;

typedef struct {
  FfiCallFrame *frame;
  const Library *library;
  const FlowkFunctions *flowk; /* the library's */
  flowk_stream stream;
  char message[512];
} Call;

/* An array in C order. */
typedef struct {
  void *data;
  flowk_dtype dtype;
  int32_t rank;
  const int64_t *dims;
} Tensor;

bool fail(Call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool read_argument(Call *call, int64_t index, Tensor *tensor);
bool read_result(Call *call, int64_t index, Tensor *tensor);

/* Whether the call has so many arguments and results. */
bool has_sizes(Call *call, int64_t num_arguments, int64_t num_results);
bool has_dims(Call *call, const char *name, const Tensor *tensor, const Tensor *other);

/* The strides of `tensor` over the first `rank` extents of `out`, 0 where it has an extent of 1. */
bool broadcast_strides(Call *call, const char *name, const Tensor *tensor, const Tensor *out, int32_t rank,
                       int64_t *strides);

bool read_int64(Call *call, const char *name, int64_t *value);
bool read_double(Call *call, const char *name, double *value);
/* An array of `size` numbers. */
bool read_int32s(Call *call, const char *name, size_t size, const int32_t **values);
bool read_int64s(Call *call, const char *name, size_t size, const int64_t **values);

#endif /* FLOWK_FFI_FRAME_H_ */
