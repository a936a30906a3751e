/* SPDX-License-Identifier: Apache-2.0 */
/* PReLU from C: the calls of flowk.h on host memory, where the library takes it; elsewhere that it says why it does
 * not. */
#include <flowk/flowk.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

enum { outer = 2, channels = 3, inner = 4, size = outer * channels * inner };
static float x[size], dy[size], y[size], dx[size], alpha[channels], dalpha[channels];
static float workspace[64];

static void fill(void) {
  for (int i = 0; i < size; ++i) {
    x[i] = (float)(i % 5 - 2);
    dy[i] = (float)(i + 1);
    y[i] = dx[i] = -99.0f;
  }
  for (int c = 0; c < channels; ++c) {
    alpha[c] = 0.5f * (float)(c + 1);
    dalpha[c] = -99.0f;
  }
}

static flowk_status forward(void) {
  return flowk_prelu(x, alpha, y, outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, NULL);
}

static flowk_status backward(void *where, size_t bytes) {
  return flowk_prelu_backward(dy, x, alpha, dx, dalpha, outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, where,
                              bytes, NULL);
}

static void outputs_are_those_of_the_formulas(void) {
  size_t workspace_bytes = 0;
  fill();
  CHECK(forward() == FLOWK_STATUS_SUCCESS);
  CHECK(flowk_prelu_backward_workspace_bytes(outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, &workspace_bytes) ==
        FLOWK_STATUS_SUCCESS);
  CHECK(workspace_bytes <= sizeof workspace);
  CHECK(backward(workspace, sizeof workspace) == FLOWK_STATUS_SUCCESS);
  float sums[channels] = {0, 0, 0};
  for (int i = 0; i < size; ++i) {
    const int c = i / inner % channels;
    CHECK(y[i] == (x[i] > 0 ? x[i] : alpha[c] * x[i]));
    CHECK(dx[i] == (x[i] > 0 ? dy[i] : alpha[c] * dy[i]));
    if (!(x[i] > 0)) sums[c] += dy[i] * x[i];
  }
  for (int c = 0; c < channels; ++c) CHECK(dalpha[c] == sums[c]); /* of integers: exact in any order */
}

static void no_device_is_said_and_nothing_written(void) {
  fill();
  CHECK(forward() == FLOWK_STATUS_NO_DEVICE && strlen(flowk_last_error()) > 0);
  CHECK(backward(workspace, sizeof workspace) == FLOWK_STATUS_NO_DEVICE);
  for (int i = 0; i < size; ++i) CHECK(y[i] == -99.0f && dx[i] == -99.0f);
}

static void bad_calls_are_named_on_any_machine(void) {
  fill();
  CHECK(flowk_prelu(x, alpha, y, outer, -1, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, NULL) ==
        FLOWK_STATUS_INVALID_ARGUMENT);
  CHECK(strstr(flowk_last_error(), "channels = -1") != NULL);
  CHECK(flowk_prelu(x, alpha, y, outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT16, NULL) ==
        FLOWK_STATUS_UNSUPPORTED_DTYPE);
  CHECK(flowk_prelu(x, alpha, x + 1, outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, NULL) ==
        FLOWK_STATUS_OVERLAP);
  CHECK(flowk_prelu(NULL, NULL, NULL, 0, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, NULL) == FLOWK_STATUS_SUCCESS);
}

/* On a machine that has a device. */
static void explain_ends_a_text_of_one_byte(void) {
  char forward_text = '?', backward_text = '?';
  CHECK(flowk_prelu_explain(x, alpha, y, outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, &forward_text, 1) ==
        FLOWK_STATUS_SUCCESS);
  CHECK(flowk_prelu_backward_explain(dy, x, alpha, dx, dalpha, outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32,
                                     &backward_text, 1) == FLOWK_STATUS_SUCCESS);
  CHECK(forward_text == '\0' && backward_text == '\0');
}

int main(void) {
  char text[512];
  const flowk_status planned =
      flowk_prelu_explain(x, alpha, y, outer, channels, inner, FLOWK_FLOAT32, FLOWK_FLOAT32, text, sizeof text);
  bad_calls_are_named_on_any_machine();
  if (planned == FLOWK_STATUS_SUCCESS) explain_ends_a_text_of_one_byte();
  if (strstr(flowk_build_info(), "backend=simt") != NULL)
    outputs_are_those_of_the_formulas();
  else if (planned == FLOWK_STATUS_NO_DEVICE)
    no_device_is_said_and_nothing_written();
  printf("%s: %d checks failed\n", flowk_build_info(), num_failed_checks);
  return num_failed_checks == 0 ? 0 : 1;
}
