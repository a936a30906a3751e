/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of permute, batch_transpose, prelu, softmax and log_softmax. They take calls without a conversion, and
 * for prelu and softmax contiguous memory; others take the way through Python.
 */
#include <string.h>

#include "torch_shim.h"

static double as_double(uint64_t value) {
  double number;
  memcpy(&number, &value, sizeof number);
  return number;
}

/* Finishes permute and batch_transpose, by the checked axes; the answer is that of leave(). */
static bool run_permute(const char *name, View *x, const int32_t *axes, uint64_t *stack) {
  int64_t shape[FLOWK_MAX_RANK], strides[FLOWK_MAX_RANK];
  for (int64_t d = 0; d < x->rank; ++d) shape[d] = x->shape[axes[d]];
  contiguous_strides(x->rank, shape, strides);
  Place place = enter(x);
  Tensor result = new_tensor(x, x->rank, shape, strides, x->dtype);
  flowk_status status = FLOWK_STATUS_SUCCESS;
  if (result != NULL) {
    const View out = view_of((uint64_t)(uintptr_t)result);
    status = place.flowk->flowk_permute(x->data, x->strides, out.data, strides, (int32_t)x->rank, x->shape, axes,
                                        x->dtype, place.stream);
  }
  return leave(place, status, name, x, 1, result, stack);
}

/* permute(x, axes, dtype, scale) */
static void permute(uint64_t *stack, uint64_t num_arguments, uint64_t num_results) {
  (void)num_arguments, (void)num_results;
  View x = view_of(stack[0]);
  void *list = (void *)(uintptr_t)stack[1];
  size_t count = 0;
  shim.torch_list_size(list, &count);
  int32_t axes[FLOWK_MAX_RANK];
  uint32_t seen = 0;
  bool is_taken = x.dtype != 0 && has_library(&x) && stack[2] == 0 && as_double(stack[3]) == 1 &&
                  x.rank <= FLOWK_MAX_RANK && (int64_t)count == x.rank;
  for (size_t i = 0; is_taken && i < count; ++i) {
    uint64_t item = 0;
    shim.torch_list_get_item(list, i, &item);
    const int64_t axis = (int64_t)item < 0 ? (int64_t)item + x.rank : (int64_t)item;
    is_taken = axis >= 0 && axis < x.rank && (seen & 1u << axis) == 0;
    if (is_taken) {
      seen |= 1u << axis;
      axes[i] = (int32_t)axis;
    }
  }
  if (!is_taken) {
    call_python("permute", stack);
    return;
  }
  if (run_permute("permute", &x, axes, stack)) shim.torch_delete_list(list);
}

/* batch_transpose(x, dtype, scale) */
static void batch_transpose(uint64_t *stack, uint64_t num_arguments, uint64_t num_results) {
  (void)num_arguments, (void)num_results;
  View x = view_of(stack[0]);
  if (x.dtype == 0 || !has_library(&x) || stack[1] != 0 || as_double(stack[2]) != 1 || x.rank < 2 ||
      x.rank > FLOWK_MAX_RANK) {
    call_python("batch_transpose", stack);
    return;
  }
  int32_t axes[FLOWK_MAX_RANK];
  for (int32_t d = 0; d < x.rank; ++d) axes[d] = d;
  axes[x.rank - 2] = (int32_t)x.rank - 1;
  axes[x.rank - 1] = (int32_t)x.rank - 2;
  run_permute("batch_transpose", &x, axes, stack);
}

static bool is_contiguous(const View *x) {
  int64_t strides[FLOWK_MAX_RANK];
  contiguous_strides(x->rank, x->shape, strides);
  for (int64_t d = 0; d < x->rank; ++d) {
    if (x->shape[d] > 1 && x->strides[d] != strides[d]) return false;
  }
  return true;
}

static bool is_computed_in(flowk_dtype dtype) { return dtype >= FLOWK_FLOAT16 && dtype <= FLOWK_FLOAT64; }

/* prelu(x, alpha, channel_axis) */
static void prelu(uint64_t *stack, uint64_t num_arguments, uint64_t num_results) {
  (void)num_arguments, (void)num_results;
  View views[2] = {view_of(stack[0]), view_of(stack[1])};
  const View *x = &views[0], *alpha = &views[1];
  int64_t num_alphas = 1;
  for (int64_t d = 0; d < alpha->rank; ++d) num_alphas *= alpha->shape[d];
  int64_t axis = (int64_t)stack[2];
  axis = num_alphas == 1 ? 0 : axis < 0 ? axis + x->rank : axis;
  const bool has_axis = num_alphas == 1 || (axis >= 0 && axis < x->rank && alpha->rank == 1);
  if (!has_axis || !is_computed_in(x->dtype) || alpha->dtype != x->dtype || !has_library(x) ||
      x->device_type != alpha->device_type || x->device_index != alpha->device_index || x->rank > FLOWK_MAX_RANK ||
      !is_contiguous(x) || alpha->rank > FLOWK_MAX_RANK || !is_contiguous(alpha) ||
      (num_alphas != 1 && num_alphas != x->shape[axis])) {
    call_python("prelu", stack);
    return;
  }
  int64_t outer = 1, inner = 1, strides[FLOWK_MAX_RANK];
  for (int64_t d = 0; d < x->rank; ++d) {
    if (num_alphas == 1 || d > axis) inner *= x->shape[d];
    if (num_alphas != 1 && d < axis) outer *= x->shape[d];
  }
  contiguous_strides(x->rank, x->shape, strides);
  Place place = enter(x);
  Tensor result = new_tensor(x, x->rank, x->shape, strides, x->dtype);
  flowk_status status = FLOWK_STATUS_SUCCESS;
  if (result != NULL) {
    const View out = view_of((uint64_t)(uintptr_t)result);
    status = place.flowk->flowk_prelu(x->data, alpha->data, out.data, outer, num_alphas, inner, x->dtype, alpha->dtype,
                                      place.stream);
  }
  leave(place, status, "prelu", views, 2, result, stack);
}

/* softmax(x, dtype) and log_softmax(x, dtype) */
static void run_softmax(const char *name, bool log, uint64_t *stack) {
  View x = view_of(stack[0]);
  if (!is_computed_in(x.dtype) || !has_library(&x) || stack[1] != 0 || x.rank < 1 || x.rank > FLOWK_MAX_RANK ||
      (x.strides[x.rank - 1] != 1 && x.shape[x.rank - 1] > 1)) {
    call_python(name, stack);
    return;
  }
  int64_t strides[FLOWK_MAX_RANK];
  contiguous_strides(x.rank, x.shape, strides);
  Place place = enter(&x);
  Tensor result = new_tensor(&x, x.rank, x.shape, strides, x.dtype);
  flowk_status status = FLOWK_STATUS_SUCCESS;
  if (result != NULL) {
    const View out = view_of((uint64_t)(uintptr_t)result);
    status = place.flowk->flowk_masked_softmax(x.data, x.strides, x.dtype, out.data, strides, x.dtype, (int32_t)x.rank,
                                               x.shape, 1.0, NULL, log, place.stream);
  }
  leave(place, status, name, &x, 1, result, stack);
}

static void softmax(uint64_t *stack, uint64_t num_arguments, uint64_t num_results) {
  (void)num_arguments, (void)num_results;
  run_softmax("softmax", false, stack);
}

static void log_softmax(uint64_t *stack, uint64_t num_arguments, uint64_t num_results) {
  (void)num_arguments, (void)num_results;
  run_softmax("log_softmax", true, stack);
}

Kernel find_kernel(const char *name) {
  static const struct {
    const char *name;
    Kernel kernel;
  } kernels[] = {{"permute", permute},
                 {"batch_transpose", batch_transpose},
                 {"prelu", prelu},
                 {"softmax", softmax},
                 {"log_softmax", log_softmax}};
  for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; ++i) {
    if (strcmp(kernels[i].name, name) == 0) return kernels[i].kernel;
  }
  return NULL;
}
