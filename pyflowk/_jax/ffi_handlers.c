/* SPDX-License-Identifier: Apache-2.0
 *
 * XLA's custom calls of flowk: one handler per C function and platform. XLA gives arrays in C order and compares no
 * shapes, so the handlers do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ffi_frame.h"

/* What a handler's body returns: the status of the C function, or NOT_CALLED where the call itself is wrong. */
enum { NOT_CALLED = -1 };

static flowk_status elementwise(Call *call, int num_operands) {
  Tensor out, operands[3];
  int64_t op, strides[3][FLOWK_MAX_RANK];
  double a, b;
  if (!has_sizes(call, num_operands, 1) || !read_result(call, 0, &out) || !read_int64(call, "op", &op) ||
      !read_double(call, "a", &a) || !read_double(call, "b", &b)) {
    return NOT_CALLED;
  }
  for (int i = 0; i < num_operands; ++i) {
    static const char *const names[] = {"x", "y", "z"};
    if (!read_argument(call, i, &operands[i]) ||
        !broadcast_strides(call, names[i], &operands[i], &out, out.rank, strides[i])) {
      return NOT_CALLED;
    }
  }
  const Tensor *x = &operands[0], *y = &operands[1], *z = &operands[2];
  int32_t code = (int32_t)op;
  if (num_operands == 1) {
    return call->flowk->flowk_unary(code, x->data, strides[0], x->dtype, out.data, NULL, out.dtype, out.rank, out.dims,
                                    a, b, call->stream);
  }
  if (num_operands == 2) {
    return call->flowk->flowk_binary(code, x->data, strides[0], x->dtype, y->data, strides[1], y->dtype, out.data, NULL,
                                     out.dtype, out.rank, out.dims, call->stream);
  }
  return call->flowk->flowk_ternary(code, x->data, strides[0], x->dtype, y->data, strides[1], y->dtype, z->data,
                                    strides[2], z->dtype, out.data, NULL, out.dtype, out.rank, out.dims, a,
                                    call->stream);
}

static flowk_status unary(Call *call) { return elementwise(call, 1); }
static flowk_status binary(Call *call) { return elementwise(call, 2); }
static flowk_status ternary(Call *call) { return elementwise(call, 3); }

/* Attribute axes; the extents of dst are those of src in that order. */
static bool read_permute(Call *call, Tensor *src, Tensor *dst, const int32_t **axes) {
  if (!has_sizes(call, 1, 1) || !read_argument(call, 0, src) || !read_result(call, 0, dst) ||
      !read_int32s(call, "axes", (size_t)src->rank, axes)) {
    return false;
  }
  if (src->rank != dst->rank) return fail(call, "out has %d dimensions, must have %d", dst->rank, src->rank);
  for (int32_t d = 0; d < dst->rank; ++d) {
    int32_t axis = (*axes)[d];
    if (axis < 0 || axis >= src->rank) return fail(call, "axes[%d] = %d, must be in 0 ... %d", d, axis, src->rank - 1);
    if (dst->dims[d] != src->dims[axis]) {
      return fail(call, "out has %lld elements along dimension %d, must have %lld", (long long)dst->dims[d], d,
                  (long long)src->dims[axis]);
    }
  }
  return true;
}

static flowk_status permute(Call *call) {
  Tensor src, dst;
  const int32_t *axes;
  if (!read_permute(call, &src, &dst, &axes)) return NOT_CALLED;
  if (src.dtype != dst.dtype) {
    fail(call, "out is of another type than x");
    return NOT_CALLED;
  }
  return call->flowk->flowk_permute(src.data, NULL, dst.data, NULL, src.rank, src.dims, axes, src.dtype, call->stream);
}

static flowk_status permute_convert(Call *call) {
  Tensor src, dst;
  const int32_t *axes;
  double scale;
  if (!read_permute(call, &src, &dst, &axes) || !read_double(call, "scale", &scale)) return NOT_CALLED;
  return call->flowk->flowk_permute_convert(src.data, NULL, src.dtype, dst.data, NULL, dst.dtype, src.rank, src.dims,
                                            axes, scale, call->stream);
}

typedef struct {
  int64_t outer, channels, inner;
} PreluSizes;

/* Attribute axis: the dimension of x that alpha runs along, -1 where alpha has one element. */
static bool read_prelu_sizes(Call *call, const Tensor *x, const Tensor *alpha, PreluSizes *sizes) {
  int64_t axis;
  if (!read_int64(call, "axis", &axis)) return false;
  if (axis < -1 || axis >= x->rank)
    return fail(call, "axis = %lld, must be in -1 ... %d", (long long)axis, x->rank - 1);
  *sizes = (PreluSizes){1, axis < 0 ? 1 : x->dims[axis], 1};
  for (int64_t d = 0; d < x->rank; ++d) *(d < axis ? &sizes->outer : &sizes->inner) *= d == axis ? 1 : x->dims[d];
  if (alpha->rank == 1 && alpha->dims[0] == sizes->channels) return true;
  return fail(call, "alpha must have one dimension of %lld elements", (long long)sizes->channels);
}

static flowk_status prelu(Call *call) {
  Tensor x, alpha, y;
  PreluSizes sizes;
  if (!has_sizes(call, 2, 1) || !read_argument(call, 0, &x) || !read_argument(call, 1, &alpha) ||
      !read_result(call, 0, &y) || !has_dims(call, "out", &y, &x) || !read_prelu_sizes(call, &x, &alpha, &sizes)) {
    return NOT_CALLED;
  }
  return call->flowk->flowk_prelu(x.data, alpha.data, y.data, sizes.outer, sizes.channels, sizes.inner, x.dtype,
                                  alpha.dtype, call->stream);
}

/* Scratch memory of the call, aligned to what flowk_prelu_backward() asks for and XLA takes; on the host the caller
 * frees it. */
enum { workspace_alignment = 16 };
static void *scratch(Call *call, size_t num_bytes) {
  if (call->library->is_on_host) return malloc(num_bytes);
  FfiAllocateArgs args = {sizeof(args), NULL, call->frame->context, num_bytes, workspace_alignment, NULL};
  FfiError *error = call->frame->api->allocate(&args);
  if (error == NULL) return args.data;
  FfiErrorDestroyArgs destroyed = {sizeof(destroyed), NULL, error};
  call->frame->api->destroy_error(&destroyed);
  return NULL;
}

/* dy, x, alpha -> dx, and dalpha if there is a second result. */
static flowk_status prelu_backward(Call *call) {
  Tensor dy, x, alpha, dx, dalpha = {0};
  PreluSizes sizes;
  bool need_dalpha = call->frame->results.size > 1;
  if (!has_sizes(call, 3, need_dalpha ? 2 : 1) || !read_argument(call, 0, &dy) || !read_argument(call, 1, &x) ||
      !read_argument(call, 2, &alpha) || !read_result(call, 0, &dx) || !has_dims(call, "dy", &dy, &x) ||
      !has_dims(call, "dx", &dx, &x) || !read_prelu_sizes(call, &x, &alpha, &sizes)) {
    return NOT_CALLED;
  }
  if (need_dalpha && !(read_result(call, 1, &dalpha) && has_dims(call, "dalpha", &dalpha, &alpha))) return NOT_CALLED;
  size_t num_bytes = 0;
  void *workspace = NULL;
  flowk_status status;
  if (need_dalpha) {
    status = call->flowk->flowk_prelu_backward_workspace_bytes(sizes.outer, sizes.channels, sizes.inner, x.dtype,
                                                               alpha.dtype, &num_bytes);
    if (status != FLOWK_STATUS_SUCCESS) return status;
  }
  if (num_bytes > 0 && (workspace = scratch(call, num_bytes)) == NULL) {
    fail(call, "no memory for a workspace of %zu bytes", num_bytes);
    return NOT_CALLED;
  }
  status =
      call->flowk->flowk_prelu_backward(dy.data, x.data, alpha.data, dx.data, dalpha.data, sizes.outer, sizes.channels,
                                        sizes.inner, x.dtype, alpha.dtype, workspace, num_bytes, call->stream);
  if (call->library->is_on_host) free(workspace);
  return status;
}

typedef struct {
  flowk_softmax_mask mask;
  int64_t dense_strides[FLOWK_MAX_RANK], lengths_strides[FLOWK_MAX_RANK], bias_strides[FLOWK_MAX_RANK];
  double scale;
  int64_t log;
} SoftmaxArguments;

/* Attribute mask is a flowk_softmax_mask that has 1 in place of the address of each array that is an operand. */
static bool read_softmax(Call *call, int64_t num_first, const Tensor *x, SoftmaxArguments *softmax) {
  flowk_softmax_mask *mask = &softmax->mask;
  const int64_t *words;
  if (!read_int64s(call, "mask", sizeof(*mask) / sizeof(*words), &words) || !read_int64(call, "log", &softmax->log) ||
      !read_double(call, "scale", &softmax->scale)) {
    return false;
  }
  memcpy(mask, words, sizeof(*mask));
  Tensor tensor;
  int64_t index = num_first;
  if (mask->dense != NULL) {
    if (!read_argument(call, index++, &tensor) ||
        !broadcast_strides(call, "mask", &tensor, x, x->rank, softmax->dense_strides)) {
      return false;
    }
    if (tensor.dtype != FLOWK_BOOL && tensor.dtype != FLOWK_UINT8) return fail(call, "mask must be of bool or uint8");
    if (tensor.dims[x->rank - 1] != x->dims[x->rank - 1]) return fail(call, "mask must not broadcast over the row");
    mask->dense = tensor.data;
    mask->dense_strides = softmax->dense_strides;
  }
  if (mask->lengths != NULL) {
    if (!read_argument(call, index++, &tensor) ||
        !broadcast_strides(call, "lengths", &tensor, x, x->rank - 1, softmax->lengths_strides)) {
      return false;
    }
    mask->lengths = tensor.data;
    mask->lengths_strides = softmax->lengths_strides;
    mask->lengths_dtype = tensor.dtype;
  }
  if (mask->bias != NULL) {
    if (!read_argument(call, index++, &tensor) ||
        !broadcast_strides(call, "bias", &tensor, x, x->rank, softmax->bias_strides)) {
      return false;
    }
    if (tensor.dims[x->rank - 1] != x->dims[x->rank - 1]) return fail(call, "bias must not broadcast over the row");
    mask->bias = tensor.data;
    mask->bias_strides = softmax->bias_strides;
    mask->bias_dtype = tensor.dtype;
  }
  return has_sizes(call, index, 1);
}

static bool c_strides(Call *call, const Tensor *tensor, int64_t *strides) {
  if (tensor->rank < 1) return fail(call, "x has no dimensions, must have >= 1");
  int64_t stride = 1;
  for (int32_t d = tensor->rank - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= tensor->dims[d];
  }
  return true;
}

static flowk_status masked_softmax(Call *call) {
  Tensor x, y;
  SoftmaxArguments softmax;
  int64_t strides[FLOWK_MAX_RANK];
  if (!read_argument(call, 0, &x) || !read_result(call, 0, &y) || !has_dims(call, "out", &y, &x) ||
      !c_strides(call, &x, strides) || !read_softmax(call, 1, &x, &softmax)) {
    return NOT_CALLED;
  }
  return call->flowk->flowk_masked_softmax(x.data, strides, x.dtype, y.data, strides, y.dtype, x.rank, x.dims,
                                           softmax.scale, &softmax.mask, (int32_t)softmax.log, call->stream);
}

static flowk_status masked_softmax_backward(Call *call) {
  Tensor dy, y, dx;
  SoftmaxArguments softmax;
  int64_t strides[FLOWK_MAX_RANK];
  if (!read_argument(call, 0, &dy) || !read_argument(call, 1, &y) || !read_result(call, 0, &dx) ||
      !has_dims(call, "y", &y, &dy) || !has_dims(call, "out", &dx, &dy) || !c_strides(call, &dy, strides) ||
      !read_softmax(call, 2, &dy, &softmax)) {
    return NOT_CALLED;
  }
  if (dy.dtype != y.dtype) {
    fail(call, "y is of another type than dy");
    return NOT_CALLED;
  }
  return call->flowk->flowk_masked_softmax_backward(dy.data, strides, y.data, strides, y.dtype, dx.data, strides,
                                                    dx.dtype, dy.rank, dy.dims, softmax.scale, &softmax.mask,
                                                    (int32_t)softmax.log, call->stream);
}

/* ---- platforms ---------------------------------------------------------------------------------------------------*/

static Library libraries[2] = {{.is_on_host = true}, {.is_on_host = false}}; /* of the platforms cpu and CUDA */

/* The functions of the library for platform 0 (cpu) or 1 (CUDA), or NULL and why there is none. */
FLOWK_API void flowk_jax_set_library(int32_t platform, const FlowkFunctions *functions, const char *why_none);
void flowk_jax_set_library(int32_t platform, const FlowkFunctions *functions, const char *why_none) {
  Library *library = &libraries[platform];
  if (functions != NULL) {
    library->functions = *functions;
  } else {
    snprintf(library->why_none, sizeof(library->why_none), "%s", why_none);
  }
}

static FfiError *error_of(Call *call, const char *name, flowk_status status) {
  const char *message = status == NOT_CALLED ? call->message : call->flowk->flowk_last_error();
  char text[1024];
  snprintf(text, sizeof(text), "flowk_%s: %s", name, message);
  int code = status == FLOWK_STATUS_NO_DEVICE  ? FFI_FAILED_PRECONDITION
             : status < FLOWK_STATUS_NO_DEVICE ? FFI_INVALID_ARGUMENT
                                               : FFI_INTERNAL;
  FfiErrorCreateArgs args = {sizeof(args), NULL, text, code};
  return call->frame->api->create_error(&args);
}

static FfiError *handle(FfiCallFrame *frame, int platform, const char *name, flowk_status (*body)(Call *),
                        uint32_t traits) {
  FfiExtension *extension = frame->extension_start;
  if (extension != NULL && extension->type == FFI_EXTENSION_METADATA) {
    FfiMetadata *metadata = ((FfiMetadataExtension *)extension)->metadata;
    metadata->api_version.major_version = 0;
    metadata->api_version.minor_version = 1;
    metadata->traits = traits;
    return NULL;
  }
  const Library *library = &libraries[platform];
  Call call = {frame, library, &library->functions, NULL, ""};
  if (call.flowk->flowk_unary == NULL) {
    fail(&call, "no library for this platform: %s", library->why_none);
    return error_of(&call, name, NOT_CALLED);
  }
  if (!library->is_on_host) {
    FfiStreamArgs args = {sizeof(args), NULL, frame->context, NULL};
    FfiError *error = frame->api->get_stream(&args);
    if (error != NULL) return error;
    call.stream = args.stream;
  }
  flowk_status status = body(&call);
  return status == FLOWK_STATUS_SUCCESS ? NULL : error_of(&call, name, status);
}

#define FLOWK_JAX_HANDLER(name, traits)                                                                 \
  FLOWK_API FfiError *flowk_jax_cpu_##name(FfiCallFrame *frame);                                        \
  FfiError *flowk_jax_cpu_##name(FfiCallFrame *frame) { return handle(frame, 0, #name, name, traits); } \
  FLOWK_API FfiError *flowk_jax_cuda_##name(FfiCallFrame *frame);                                       \
  FfiError *flowk_jax_cuda_##name(FfiCallFrame *frame) { return handle(frame, 1, #name, name, traits); }

FLOWK_JAX_HANDLER(unary, FFI_COMMAND_BUFFER_COMPATIBLE)
FLOWK_JAX_HANDLER(binary, FFI_COMMAND_BUFFER_COMPATIBLE)
FLOWK_JAX_HANDLER(ternary, FFI_COMMAND_BUFFER_COMPATIBLE)
FLOWK_JAX_HANDLER(permute, FFI_COMMAND_BUFFER_COMPATIBLE)
FLOWK_JAX_HANDLER(permute_convert, FFI_COMMAND_BUFFER_COMPATIBLE)
FLOWK_JAX_HANDLER(prelu, FFI_COMMAND_BUFFER_COMPATIBLE)
/* Not in a command buffer: its scratch memory belongs to one execution, and a replayed graph would use it later. */
FLOWK_JAX_HANDLER(prelu_backward, 0)
FLOWK_JAX_HANDLER(masked_softmax, FFI_COMMAND_BUFFER_COMPATIBLE)
FLOWK_JAX_HANDLER(masked_softmax_backward, FFI_COMMAND_BUFFER_COMPATIBLE)
