/* SPDX-License-Identifier: Apache-2.0 */
/* The elementwise functions from C11: the lists of operations, one call of each arity, and calls that are refused. */
#include <flowk/flowk.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

static bool error_has(const char *part) { return strstr(flowk_last_error(), part) != NULL; }

static const int64_t shape[2] = {2, 3};
static const float x[6] = {-2.0f, -1.0f, 0.0f, 1.0f, 2.0f, 3.0f};
static const float y[3] = {10.0f, 20.0f, 30.0f};
static const int64_t row_strides[2] = {0, 1};
static float out[6];

static void lists_have_no_gaps_and_end(void) {
  for (int op = 1; op <= FLOWK_NUM_UNARY_OPS; ++op) {
    CHECK(flowk_unary_op_name(op) != NULL && flowk_unary_op_formula(op) != NULL);
    CHECK(flowk_unary_op_num_parameters(op) >= 0);
  }
  for (int op = 1; op <= FLOWK_NUM_BINARY_OPS; ++op)
    CHECK(flowk_binary_op_name(op) != NULL && flowk_binary_op_formula(op) != NULL);
  for (int op = 1; op <= FLOWK_NUM_TERNARY_OPS; ++op)
    CHECK(flowk_ternary_op_name(op) != NULL && flowk_ternary_op_formula(op) != NULL);
  CHECK(flowk_unary_op_name(0) == NULL && flowk_unary_op_name(FLOWK_NUM_UNARY_OPS + 1) == NULL);
  CHECK(flowk_binary_op_name(0) == NULL && flowk_binary_op_name(FLOWK_NUM_BINARY_OPS + 1) == NULL);
  CHECK(flowk_ternary_op_name(0) == NULL && flowk_ternary_op_name(FLOWK_NUM_TERNARY_OPS + 1) == NULL);
  CHECK(strcmp(flowk_unary_op_name(FLOWK_UNARY_RELU), "relu") == 0);
  CHECK(flowk_unary_op_num_parameters(FLOWK_UNARY_CLIP) == 2);
  CHECK(flowk_ternary_op_num_parameters(FLOWK_TERNARY_ADD_MULTIPLY) == 1);
}

static void results_follow_from_the_list(void) {
  CHECK(flowk_unary_op_result(FLOWK_UNARY_EXP, FLOWK_FLOAT16) == FLOWK_FLOAT16);
  CHECK(flowk_unary_op_result(FLOWK_UNARY_EXP, FLOWK_INT32) == 0);
  CHECK(flowk_unary_op_result(FLOWK_UNARY_ISNAN, FLOWK_FLOAT64) == FLOWK_BOOL);
  CHECK(flowk_binary_op_result(FLOWK_BINARY_LESS, FLOWK_UINT8) == FLOWK_BOOL);
  CHECK(flowk_binary_op_result(FLOWK_BINARY_ADD, FLOWK_BOOL) == 0);
  CHECK(flowk_ternary_op_result(FLOWK_TERNARY_WHERE, FLOWK_INT16) == FLOWK_INT16);
  CHECK(flowk_unary_op_result(FLOWK_UNARY_COPY, FLOWK_COMPLEX64) == 0);
}

static flowk_status add(const void *a, void *result, flowk_dtype result_dtype) {
  return flowk_binary(FLOWK_BINARY_ADD, a, NULL, FLOWK_FLOAT32, y, row_strides, FLOWK_FLOAT32, result, NULL,
                      result_dtype, 2, shape, NULL);
}

static void calls_compute(void) {
  CHECK(flowk_unary(FLOWK_UNARY_SCALE, x, NULL, FLOWK_FLOAT32, out, NULL, FLOWK_FLOAT32, 2, shape, 2.0, 1.0, NULL) ==
        FLOWK_STATUS_SUCCESS);
  for (int i = 0; i < 6; ++i) CHECK(out[i] == 2.0f * x[i] + 1.0f);
  CHECK(add(x, out, FLOWK_FLOAT32) == FLOWK_STATUS_SUCCESS);
  for (int i = 0; i < 6; ++i) CHECK(out[i] == x[i] + y[i % 3]);
  CHECK(add(out, out, FLOWK_FLOAT32) == FLOWK_STATUS_SUCCESS); /* in place */
  for (int i = 0; i < 6; ++i) CHECK(out[i] == x[i] + 2.0f * y[i % 3]);
  CHECK(flowk_ternary(FLOWK_TERNARY_ADD_MULTIPLY, x, NULL, FLOWK_FLOAT32, y, row_strides, FLOWK_FLOAT32, x, NULL,
                      FLOWK_FLOAT32, out, NULL, FLOWK_FLOAT32, 2, shape, 0.5, NULL) == FLOWK_STATUS_SUCCESS);
  for (int i = 0; i < 6; ++i) CHECK(out[i] == x[i] + 0.5f * y[i % 3] * x[i]);
}

static void bad_calls_are_named_and_write_nothing(void) {
  static int32_t integers[6];
  memset(out, 0x5A, sizeof out);
  static float before[6];
  memcpy(before, out, sizeof out);
  CHECK(flowk_unary(0, x, NULL, FLOWK_FLOAT32, out, NULL, FLOWK_FLOAT32, 2, shape, 0, 0, NULL) ==
            FLOWK_STATUS_INVALID_ARGUMENT &&
        error_has("op = 0"));
  CHECK(flowk_unary(FLOWK_UNARY_EXP, integers, NULL, FLOWK_INT32, out, NULL, FLOWK_FLOAT32, 2, shape, 0, 0, NULL) ==
            FLOWK_STATUS_UNSUPPORTED_DTYPE &&
        error_has("x_dtype = int32") && error_has("exp"));
  CHECK(add(x, out, FLOWK_INT32) == FLOWK_STATUS_UNSUPPORTED_DTYPE && error_has("out_dtype = int32"));
  CHECK(add(NULL, out, FLOWK_FLOAT32) == FLOWK_STATUS_NULL_POINTER && error_has("x = NULL"));
  CHECK(add((const char *)x + 1, out, FLOWK_FLOAT32) == FLOWK_STATUS_MISALIGNED_POINTER && error_has("x = "));
  CHECK(flowk_unary(FLOWK_UNARY_NEGATIVE, out, NULL, FLOWK_FLOAT32, out + 1, NULL, FLOWK_FLOAT32, 1, shape, 0, 0, NULL) ==
            FLOWK_STATUS_OVERLAP &&
        error_has("out"));
  CHECK(flowk_unary(FLOWK_UNARY_NEGATIVE, x, NULL, FLOWK_FLOAT32, out, row_strides, FLOWK_FLOAT32, 2, shape, 0, 0, NULL) ==
        FLOWK_STATUS_OVERLAP);
  CHECK(flowk_unary(FLOWK_UNARY_NEGATIVE, x, NULL, FLOWK_FLOAT32, out, NULL, FLOWK_FLOAT32, 33, shape, 0, 0, NULL) ==
            FLOWK_STATUS_INVALID_ARGUMENT &&
        error_has("rank = 33"));
  CHECK(memcmp(before, out, sizeof out) == 0);
}

static void zero_sizes_succeed_without_pointers(void) {
  static const int64_t empty[2] = {0, 3};
  CHECK(flowk_unary(FLOWK_UNARY_NEGATIVE, NULL, NULL, FLOWK_FLOAT32, NULL, NULL, FLOWK_FLOAT32, 2, empty, 0, 0, NULL) ==
        FLOWK_STATUS_SUCCESS);
}

static void explain_names_the_kernel(bool has_device) {
  char text[1024];
  const flowk_status status = flowk_unary_explain(FLOWK_UNARY_NEGATIVE, x, NULL, FLOWK_FLOAT32, out, NULL, FLOWK_FLOAT32, 2,
                                                  shape, 0, 0, text, sizeof text);
  CHECK(status == (has_device ? FLOWK_STATUS_SUCCESS : FLOWK_STATUS_NO_DEVICE));
  if (has_device) CHECK(strncmp(text, "contiguous: ", 12) == 0);
}

int main(void) {
  const bool on_host = strstr(flowk_build_info(), "backend=simt") != NULL;
  char text[8];
  const bool has_device = flowk_unary_explain(FLOWK_UNARY_NEGATIVE, x, NULL, FLOWK_FLOAT32, out, NULL, FLOWK_FLOAT32, 2,
                                              shape, 0, 0, text, sizeof text) != FLOWK_STATUS_NO_DEVICE;
  lists_have_no_gaps_and_end();
  results_follow_from_the_list();
  if (on_host) calls_compute();
  bad_calls_are_named_and_write_nothing();
  zero_sizes_succeed_without_pointers();
  explain_names_the_kernel(has_device);
  printf("%s: %d checks failed\n", flowk_build_info(), num_failed_checks);
  return num_failed_checks == 0 ? 0 : 1;
}
