/* SPDX-License-Identifier: Apache-2.0
 *
 * XLA's custom calls of flowk: one handler per C function and platform. XLA gives arrays in C order and compares no
 * shapes, so the handlers do. */
#include <stdlib.h>

#include "ffi_frame.h"

/* What a handler's body returns: the status of the C function, or NOT_CALLED if the call itself is wrong. */
enum { NOT_CALLED = -1 };

static flowk_status elementwise(Call *call, int num_operands) {
  static const char *const names[] = {"x", "y", "z"};
  Tensor *x = &call->arguments[0], *y = &call->arguments[1], *z = &call->arguments[2], *out = &call->results[0];
  int64_t op = 0;
  double a, b;
  if (!read_arrays(call, num_operands, 1) || !read_int64(call, "op", &op) || !read_double(call, "a", &a) ||
      !read_double(call, "b", &b)) {
    return NOT_CALLED;
  }
  for (int i = 0; i < num_operands; ++i) {
    if (!broadcast(call, names[i], &call->arguments[i], out, out->rank)) return NOT_CALLED;
  }
  int32_t code = (int32_t)op;
  if (num_operands == 1) {
    return call->flowk->flowk_unary(code, x->data, x->strides, x->dtype, out->data, NULL, out->dtype, out->rank,
                                    out->dims, a, b, call->stream);
  }
  if (num_operands == 2) {
    return call->flowk->flowk_binary(code, x->data, x->strides, x->dtype, y->data, y->strides, y->dtype, out->data,
                                     NULL, out->dtype, out->rank, out->dims, call->stream);
  }
  return call->flowk->flowk_ternary(code, x->data, x->strides, x->dtype, y->data, y->strides, y->dtype, z->data,
                                    z->strides, z->dtype, out->data, NULL, out->dtype, out->rank, out->dims, a,
                                    call->stream);
}

static flowk_status unary(Call *call) { return elementwise(call, 1); }
static flowk_status binary(Call *call) { return elementwise(call, 2); }
static flowk_status ternary(Call *call) { return elementwise(call, 3); }

/* Attribute axes; the extents of dst are those of src in that order. NULL if the call is wrong. */
static const int32_t *read_axes(Call *call) {
  const Tensor *src = &call->arguments[0], *dst = &call->results[0];
  const int32_t *axes = NULL;
  if (!read_arrays(call, 1, 1) || (axes = read_array(call, "axes", FFI_S32, (size_t)src->rank)) == NULL ||
      !has_rank(call, "out", dst, src->rank)) {
    return NULL;
  }
  for (int32_t d = 0; d < dst->rank; ++d) {
    if (axes[d] < 0 || axes[d] >= src->rank) {
      fail(call, "axes[%d] = %d, must be in 0 ... %d", d, axes[d], src->rank - 1);
      return NULL;
    }
    if (!has_extent(call, "out", dst, d, src->dims[axes[d]])) return NULL;
  }
  return axes;
}

static flowk_status permute(Call *call) {
  const Tensor *src = &call->arguments[0], *dst = &call->results[0];
  const int32_t *axes = read_axes(call);
  if (axes == NULL) return NOT_CALLED;
  if (src->dtype != dst->dtype) return fail(call, "out is of another type than x"), NOT_CALLED;
  return call->flowk->flowk_permute(src->data, NULL, dst->data, NULL, src->rank, src->dims, axes, src->dtype,
                                    call->stream);
}

static flowk_status permute_convert(Call *call) {
  const Tensor *src = &call->arguments[0], *dst = &call->results[0];
  const int32_t *axes = read_axes(call);
  double scale;
  if (axes == NULL || !read_double(call, "scale", &scale)) return NOT_CALLED;
  return call->flowk->flowk_permute_convert(src->data, NULL, src->dtype, dst->data, NULL, dst->dtype, src->rank,
                                            src->dims, axes, scale, call->stream);
}

typedef struct {
  int64_t outer, channels, inner;
} PreluSizes;

/* Attribute axis: the dimension of x that alpha runs along, -1 if alpha has one element. */
static bool read_prelu_sizes(Call *call, const Tensor *x, const Tensor *alpha, PreluSizes *sizes) {
  int64_t axis = -1;
  if (!read_int64(call, "axis", &axis)) return false;
  if (axis < -1 || axis >= x->rank) {
    return fail(call, "axis = %lld, must be in -1 ... %d", (long long)axis, x->rank - 1);
  }
  *sizes = (PreluSizes){1, axis < 0 ? 1 : x->dims[axis], 1};
  for (int64_t d = 0; d < x->rank; ++d) *(d < axis ? &sizes->outer : &sizes->inner) *= d == axis ? 1 : x->dims[d];
  if (alpha->rank == 1 && alpha->dims[0] == sizes->channels) return true;
  return fail(call, "alpha must have one dimension of %lld element%s", (long long)sizes->channels,
              plural(sizes->channels));
}

static flowk_status prelu(Call *call) {
  const Tensor *x = &call->arguments[0], *alpha = &call->arguments[1], *y = &call->results[0];
  PreluSizes sizes;
  if (!read_arrays(call, 2, 1) || !has_dims(call, "out", y, x) || !read_prelu_sizes(call, x, alpha, &sizes)) {
    return NOT_CALLED;
  }
  return call->flowk->flowk_prelu(x->data, alpha->data, y->data, sizes.outer, sizes.channels, sizes.inner, x->dtype,
                                  alpha->dtype, call->stream);
}

/* Makes call->workspace, aligned to what the C functions ask for and XLA takes. On the host, handle() frees it. */
static bool allocate_workspace(Call *call, size_t num_bytes) {
  enum { alignment = 16 };
  if (num_bytes == 0) return true;
  if (call->library->is_on_host) {
    call->workspace = malloc(num_bytes);
  } else {
    FfiAllocateArgs args = {sizeof(args), NULL, call->frame->context, num_bytes, alignment, NULL};
    FfiErrorDestroyArgs failed = {sizeof(failed), NULL, call->frame->api->allocate(&args)};
    call->workspace = failed.error == NULL ? args.data : NULL;
    if (failed.error != NULL) call->frame->api->destroy_error(&failed);
  }
  return call->workspace != NULL || fail(call, "no memory for a workspace of %zu bytes", num_bytes);
}

/* dy, x, alpha -> dx, and dalpha if there is a second result. */
static flowk_status prelu_backward(Call *call) {
  const Tensor *dy = &call->arguments[0], *x = &call->arguments[1], *alpha = &call->arguments[2];
  const Tensor *dx = &call->results[0], *dalpha = &call->results[1];
  const bool need_dalpha = call->frame->results.size > 1;
  PreluSizes sizes;
  if (!read_arrays(call, 3, need_dalpha ? 2 : 1) || !has_dims(call, "dy", dy, x) || !has_dims(call, "dx", dx, x) ||
      !read_prelu_sizes(call, x, alpha, &sizes) || (need_dalpha && !has_dims(call, "dalpha", dalpha, alpha))) {
    return NOT_CALLED;
  }
  size_t num_bytes = 0;
  if (need_dalpha) {
    flowk_status status = call->flowk->flowk_prelu_backward_workspace_bytes(sizes.outer, sizes.channels, sizes.inner,
                                                                            x->dtype, alpha->dtype, &num_bytes);
    if (status != FLOWK_STATUS_SUCCESS) return status;
  }
  if (!allocate_workspace(call, num_bytes)) return NOT_CALLED;
  return call->flowk->flowk_prelu_backward(dy->data, x->data, alpha->data, dx->data, dalpha->data, sizes.outer,
                                           sizes.channels, sizes.inner, x->dtype, alpha->dtype, call->workspace,
                                           num_bytes, call->stream);
}

typedef struct {
  flowk_softmax_mask mask;
  double scale;
  int64_t log;
} SoftmaxArguments;

static bool has_columns(Call *call, const char *name, const Tensor *x) {
  return x->rank >= 1 || fail(call, "%s has no dimensions, must have >= 1", name);
}

/* The tensor has an element per row of x. */
static bool has_rows(Call *call, const char *name, const Tensor *tensor, const Tensor *x) {
  return has_extents(call, name, tensor, 0, x, x->rank - 1);
}

/* The type of the numbers per row: float32, or float64 if x is. */
static bool has_row_type(Call *call, const char *name, const Tensor *tensor, const Tensor *x) {
  return tensor->dtype == (x->dtype == FLOWK_FLOAT64 ? FLOWK_FLOAT64 : FLOWK_FLOAT32) ||
         fail(call, "%s must be of float32, or of float64 if the rows are", name);
}

static bool has_row_numbers(Call *call, const char *name, const Tensor *tensor, const Tensor *x) {
  return has_rows(call, name, tensor, x) && has_row_type(call, name, tensor, x);
}

static bool broadcast_row_numbers(Call *call, const char *name, Tensor *tensor, const Tensor *x) {
  return broadcast(call, name, tensor, x, x->rank - 1) && has_row_type(call, name, tensor, x);
}

/* A mask or a bias, which must have all of x's columns. */
static bool broadcast_rows(Call *call, const char *name, Tensor *tensor, const Tensor *x) {
  if (!broadcast(call, name, tensor, x, x->rank)) return false;
  return tensor->dims[x->rank - 1] == x->dims[x->rank - 1] || fail(call, "%s must not broadcast over the row", name);
}

/* x, or dy and y, and then the other arrays, in the order in which they are read here. Attribute mask is a
 * flowk_softmax_mask that has 1 instead of the address of each array that is an argument, and of lse, which is the
 * second result. */
static bool read_softmax(Call *call, int num_first, int num_results, SoftmaxArguments *softmax) {
  flowk_softmax_mask *mask = &softmax->mask;
  if (!read_struct(call, "mask", mask, sizeof(*mask)) || !read_int64(call, "log", &softmax->log) ||
      !read_double(call, "scale", &softmax->scale)) {
    return false;
  }
  int num_arrays = (mask->dense != NULL) + (mask->lengths != NULL) + (mask->bias != NULL) + (mask->dlse != NULL) +
                   (mask->sinks != NULL) + (mask->row_scale != NULL) + (mask->x != NULL);
  if (!read_arrays(call, num_first + num_arrays, num_results + (mask->lse != NULL))) return false;
  const Tensor *x = &call->arguments[0];
  Tensor *next = &call->arguments[num_first];
  if (!has_columns(call, "x", x) || (num_first > 1 && !has_dims(call, "y", x + 1, x)) ||
      !has_dims(call, "out", &call->results[0], x)) {
    return false;
  }
  if (mask->lse != NULL) {
    if (!has_row_numbers(call, "lse", &call->results[1], x)) return false;
    mask->lse = call->results[1].data;
  }
  if (mask->dlse != NULL) {
    if (!has_row_numbers(call, "dlse", next, x)) return false;
    mask->dlse = next++->data;
  }
  if (mask->dense != NULL) {
    if (!broadcast_rows(call, "mask", next, x)) return false;
    if (next->dtype != FLOWK_BOOL && next->dtype != FLOWK_UINT8) return fail(call, "mask must be of bool or uint8");
    mask->dense = next->data;
    mask->dense_strides = next++->strides;
  }
  if (mask->lengths != NULL) {
    if (!broadcast(call, "lengths", next, x, x->rank - 1)) return false;
    mask->lengths = next->data;
    mask->lengths_dtype = next->dtype;
    mask->lengths_strides = next++->strides;
  }
  if (mask->bias != NULL) {
    if (!broadcast_rows(call, "bias", next, x)) return false;
    mask->bias = next->data;
    mask->bias_dtype = next->dtype;
    mask->bias_strides = next++->strides;
  }
  if (mask->x != NULL) {
    if (!has_dims(call, "scores", next, x)) return false;
    if (next->dtype != x->dtype) return fail(call, "scores is of another type than dy");
    mask->x = next->data;
    mask->x_strides = next++->strides;
  }
  if (mask->sinks != NULL) {
    if (!broadcast_row_numbers(call, "sinks", next, x)) return false;
    mask->sinks = next->data;
    mask->sinks_strides = next++->strides;
  }
  if (mask->row_scale != NULL) {
    if (!broadcast_row_numbers(call, "row_scale", next, x)) return false;
    mask->row_scale = next->data;
    mask->row_scale_strides = next->strides;
  }
  return true;
}

static flowk_status masked_softmax(Call *call) {
  const Tensor *x = &call->arguments[0], *y = &call->results[0];
  SoftmaxArguments softmax;
  if (!read_softmax(call, 1, 1, &softmax)) return NOT_CALLED;
  return call->flowk->flowk_masked_softmax(x->data, x->strides, x->dtype, y->data, y->strides, y->dtype, x->rank,
                                           x->dims, softmax.scale, &softmax.mask, (int32_t)softmax.log, call->stream);
}

static flowk_status masked_softmax_backward(Call *call) {
  const Tensor *dy = &call->arguments[0], *y = &call->arguments[1], *dx = &call->results[0];
  SoftmaxArguments softmax;
  if (!read_softmax(call, 2, 1, &softmax)) return NOT_CALLED;
  if (dy->dtype != y->dtype) return fail(call, "y is of another type than dy"), NOT_CALLED;
  return call->flowk->flowk_masked_softmax_backward(dy->data, dy->strides, y->data, y->strides, y->dtype, dx->data,
                                                    dx->strides, dx->dtype, dy->rank, dy->dims, softmax.scale,
                                                    &softmax.mask, (int32_t)softmax.log, call->stream);
}

/* dy, y and the other arrays -> dx and dbias, which has an extent of 1 where the bias is shared. */
static flowk_status masked_softmax_backward_dbias(Call *call) {
  const Tensor *dy = &call->arguments[0], *y = &call->arguments[1], *dx = &call->results[0];
  Tensor *dbias = &call->results[1];
  SoftmaxArguments softmax;
  if (!read_softmax(call, 2, 2, &softmax) || !broadcast_rows(call, "dbias", dbias, dy)) return NOT_CALLED;
  if (dy->dtype != y->dtype) return fail(call, "y is of another type than dy"), NOT_CALLED;
  size_t num_bytes = 0;
  flowk_status status = call->flowk->flowk_masked_softmax_backward_dbias_workspace_bytes(
      dy->rank, dy->dims, dbias->strides, y->dtype, &num_bytes);
  if (status != FLOWK_STATUS_SUCCESS) return status;
  if (!allocate_workspace(call, num_bytes)) return NOT_CALLED;
  return call->flowk->flowk_masked_softmax_backward_dbias(
      dy->data, dy->strides, y->data, y->strides, y->dtype, dx->data, dx->strides, dx->dtype, dbias->data,
      dbias->strides, dbias->dtype, dy->rank, dy->dims, softmax.scale, &softmax.mask, (int32_t)softmax.log,
      call->workspace, num_bytes, call->stream);
}

/* y1, lse1, y2, lse2 -> y, lse. */
static flowk_status softmax_merge(Call *call) {
  const Tensor *y1 = &call->arguments[0], *lse1 = y1 + 1, *y2 = y1 + 2, *lse2 = y1 + 3;
  const Tensor *y = &call->results[0], *lse = y + 1;
  if (!read_arrays(call, 4, 2) || !has_columns(call, "y1", y1) || !has_dims(call, "y2", y2, y1) ||
      !has_dims(call, "y", y, y1) || !has_row_numbers(call, "lse1", lse1, y1) ||
      !has_row_numbers(call, "lse2", lse2, y1) || !has_row_numbers(call, "lse", lse, y1)) {
    return NOT_CALLED;
  }
  if (y2->dtype != y1->dtype || y->dtype != y1->dtype) return fail(call, "y2 is of another type than y1"), NOT_CALLED;
  int64_t rows = 1;
  for (int32_t d = 0; d < lse1->rank; ++d) rows *= lse1->dims[d];
  return call->flowk->flowk_softmax_merge(y1->data, lse1->data, y2->data, lse2->data, y->data, lse->data, rows,
                                          y1->dims[y1->rank - 1], y1->dtype, call->stream);
}

/* logits, targets -> loss, lse, and the entropy if there is a third result. */
static flowk_status cross_entropy(Call *call) {
  static const char *const names[] = {"loss", "lse", "entropy"};
  const Tensor *logits = &call->arguments[0], *targets = &call->arguments[1], *results = call->results;
  const int num_results = call->frame->results.size == 3 ? 3 : 2;
  flowk_cross_entropy_options options;
  if (!read_arrays(call, 2, num_results) || !read_struct(call, "options", &options, sizeof(options)) ||
      !has_columns(call, "logits", logits) || !has_rows(call, "targets", targets, logits)) {
    return NOT_CALLED;
  }
  for (int i = 0; i < num_results; ++i) {
    if (!has_row_numbers(call, names[i], &results[i], logits)) return NOT_CALLED;
  }
  size_t num_bytes = 0;
  flowk_status status =
      call->flowk->flowk_cross_entropy_workspace_bytes(logits->rank, logits->dims, logits->dtype, &num_bytes);
  if (status != FLOWK_STATUS_SUCCESS) return status;
  if (!allocate_workspace(call, num_bytes)) return NOT_CALLED;
  return call->flowk->flowk_cross_entropy(logits->data, logits->strides, logits->dtype, targets->data, targets->dtype,
                                          results[0].data, results[1].data, results[2].data, NULL, logits->rank,
                                          logits->dims, &options, call->workspace, num_bytes, call->stream);
}

/* The gradients of loss, lse and entropy in the first dimension of d; logits, targets, lse, and the entropy if there is
 * a fifth argument -> dlogits. */
static flowk_status cross_entropy_backward(Call *call) {
  const Tensor *d = &call->arguments[0], *logits = d + 1, *targets = d + 2, *lse = d + 3, *entropy = d + 4;
  const bool has_entropy = call->frame->arguments.size == 5;
  flowk_cross_entropy_options options;
  if (!read_arrays(call, has_entropy ? 5 : 4, 1) || !read_struct(call, "options", &options, sizeof(options)) ||
      !has_columns(call, "logits", logits) || !has_extents(call, "d", d, 1, logits, logits->rank - 1) ||
      !has_extent(call, "d", d, 0, has_entropy ? 3 : 2) || !has_row_type(call, "d", d, logits) ||
      !has_rows(call, "targets", targets, logits) || !has_row_numbers(call, "lse", lse, logits) ||
      !has_dims(call, "dlogits", &call->results[0], logits) ||
      (has_entropy && !has_row_numbers(call, "entropy", entropy, logits))) {
    return NOT_CALLED;
  }
  const char *gradients = d->data;
  const int64_t stride = (int64_t)call->flowk->flowk_dtype_bytes(d->dtype) * d->strides[0];
  return call->flowk->flowk_cross_entropy_backward(
      logits->data, logits->strides, logits->dtype, targets->data, targets->dtype, lse->data, entropy->data, gradients,
      gradients + stride, has_entropy ? gradients + 2 * stride : NULL, call->results[0].data, logits->strides,
      logits->rank, logits->dims, &options, call->stream);
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
  Call call = {.frame = frame, .library = library, .flowk = &library->functions};
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
  if (library->is_on_host) free(call.workspace);
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
/* Not in a command buffer: its workspace belongs to one execution, and a replayed graph would use it later. */
FLOWK_JAX_HANDLER(prelu_backward, 0)
FLOWK_JAX_HANDLER(masked_softmax, FFI_COMMAND_BUFFER_COMPATIBLE)
FLOWK_JAX_HANDLER(masked_softmax_backward, FFI_COMMAND_BUFFER_COMPATIBLE)
FLOWK_JAX_HANDLER(softmax_merge, FFI_COMMAND_BUFFER_COMPATIBLE)
/* As prelu_backward. */
FLOWK_JAX_HANDLER(masked_softmax_backward_dbias, 0)
FLOWK_JAX_HANDLER(cross_entropy, 0)
FLOWK_JAX_HANDLER(cross_entropy_backward, FFI_COMMAND_BUFFER_COMPATIBLE)
