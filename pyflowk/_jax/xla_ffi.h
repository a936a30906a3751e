/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs of XLA's FFI that the handlers read, as in xla/ffi/api/c_api.h of API version 0.1: later versions of 0
 * add members at the end. tests/python/jax/test_jax_layout.py compares them with the header of the jaxlib that is
 * there. */
#ifndef FLOWK_XLA_FFI_H_
#define FLOWK_XLA_FFI_H_

#include <stddef.h>
#include <stdint.h>

typedef struct FfiError FfiError;
typedef struct FfiContext FfiContext;

enum { FFI_EXTENSION_METADATA = 1 };

typedef struct FfiExtension {
  size_t struct_size;
  int type;
  struct FfiExtension *next;
} FfiExtension;

typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  int major_version, minor_version;
} FfiApiVersion;

/* absl::StatusCode. */
enum { FFI_INVALID_ARGUMENT = 3, FFI_FAILED_PRECONDITION = 9, FFI_INTERNAL = 13 };

typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  const char *message;
  int code;
} FfiErrorCreateArgs;

/* xla::PrimitiveType: the types that flowk has too. */
enum {
  FFI_PRED = 1,
  FFI_S8 = 2,
  FFI_S16 = 3,
  FFI_S32 = 4,
  FFI_S64 = 5,
  FFI_U8 = 6,
  FFI_U16 = 7,
  FFI_U32 = 8,
  FFI_U64 = 9,
  FFI_F16 = 10,
  FFI_F32 = 11,
  FFI_F64 = 12,
  FFI_C64 = 15,
  FFI_BF16 = 16,
  FFI_C128 = 18,
  FFI_F8E5M2 = 19,
  FFI_F8E4M3FN = 20
};

typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} FfiBuffer;

enum { FFI_BUFFER = 1, FFI_ATTRIBUTE_ARRAY = 1, FFI_ATTRIBUTE_SCALAR = 3 };

typedef struct {
  const char *ptr;
  size_t len;
} FfiByteSpan;

typedef struct {
  int dtype;
  void *value;
} FfiScalar;

typedef struct {
  int dtype;
  size_t size;
  void *data;
} FfiArray;

/* The arguments, or the results. */
typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  int64_t size;
  int *types;
  void **values;
} FfiBuffers;

typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  int64_t size;
  int *types;
  FfiByteSpan **names;
  void **values;
} FfiAttributes;

typedef struct FfiApi FfiApi;

typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  const FfiApi *api;
  FfiContext *context;
  int stage;
  FfiBuffers arguments, results;
  FfiAttributes attributes;
} FfiCallFrame;

enum { FFI_COMMAND_BUFFER_COMPATIBLE = 1 };

typedef struct {
  size_t struct_size;
  FfiApiVersion api_version;
  uint32_t traits;
} FfiMetadata;

typedef struct {
  FfiExtension base;
  FfiMetadata *metadata;
} FfiMetadataExtension;

typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  FfiContext *context;
  void *stream;
} FfiStreamArgs;

typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  FfiContext *context;
  size_t size, alignment;
  void *data;
} FfiAllocateArgs;

typedef struct {
  size_t struct_size;
  FfiExtension *extension_start;
  FfiError *error;
} FfiErrorDestroyArgs;

struct FfiApi {
  size_t struct_size;
  FfiExtension *extension_start;
  FfiApiVersion api_version;
  const void *internal_api;
  FfiError *(*create_error)(FfiErrorCreateArgs *);
  void (*get_error_message)(void);
  void (*destroy_error)(FfiErrorDestroyArgs *);
  void (*register_handler)(void);
  FfiError *(*get_stream)(FfiStreamArgs *);
  void (*register_type)(void);
  void (*get_execution_context)(void);
  void (*set_state)(void);
  void (*get_state)(void);
  FfiError *(*allocate)(FfiAllocateArgs *);
};

#endif /* FLOWK_XLA_FFI_H_ */
