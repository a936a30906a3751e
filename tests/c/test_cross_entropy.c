/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy from C: the calls of flowk.h on host memory, where the library takes it; elsewhere that it says why it
 * does not. */
#include <flowk/flowk.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

enum { rows = 3, columns = 4 };
static const int64_t shape[] = {rows, columns};
static const float logits[rows * columns] = {0, 0, 0, 0, 0, 0, 0, 0, -INFINITY, 1, -INFINITY, -INFINITY};
static const int32_t targets[rows] = {2, -100, 1};
static float loss[rows], lse[rows], dloss[rows] = {1, 1, 1}, dlogits[rows * columns];

static flowk_status forward(const flowk_cross_entropy_options *options) {
  return flowk_cross_entropy(logits, NULL, FLOWK_FLOAT32, targets, FLOWK_INT32, loss, lse, NULL, NULL, 2, shape,
                             options, NULL, 0, NULL);
}

static flowk_status backward(void) {
  return flowk_cross_entropy_backward(logits, NULL, FLOWK_FLOAT32, targets, FLOWK_INT32, lse, NULL, dloss, NULL, NULL,
                                      dlogits, NULL, 2, shape, NULL, NULL);
}

static int near(float a, double b) { return fabs((double)a - b) < 1e-6; }

static void results_are_those_of_the_formulas(void) {
  size_t workspace_bytes = 1;
  CHECK(flowk_cross_entropy_workspace_bytes(2, shape, FLOWK_FLOAT32, &workspace_bytes) == FLOWK_STATUS_SUCCESS);
  CHECK(workspace_bytes == 0);
  CHECK(forward(NULL) == FLOWK_STATUS_SUCCESS);
  CHECK(near(loss[0], log(4.0)) && near(lse[0], log(4.0)));
  CHECK(loss[1] == 0 && lse[1] == 0);
  CHECK(near(loss[2], 0) && near(lse[2], 1));
  CHECK(backward() == FLOWK_STATUS_SUCCESS);
  for (int j = 0; j < columns; ++j) {
    CHECK(near(dlogits[j], j == 2 ? -0.75 : 0.25));
    CHECK(dlogits[columns + j] == 0 && near(dlogits[2 * columns + j], 0));
  }
  flowk_cross_entropy_options options = FLOWK_CROSS_ENTROPY_OPTIONS_INIT;
  options.ignore_index = 2;
  CHECK(forward(&options) == FLOWK_STATUS_SUCCESS);
  CHECK(loss[0] == 0 && isnan(loss[1])); /* -100 is no column */
}

static void no_device_is_said(void) {
  CHECK(forward(NULL) == FLOWK_STATUS_NO_DEVICE && strlen(flowk_last_error()) > 0);
  CHECK(backward() == FLOWK_STATUS_NO_DEVICE);
}

static void bad_calls_are_named_on_any_machine(void) {
  flowk_cross_entropy_options options = FLOWK_CROSS_ENTROPY_OPTIONS_INIT;
  options.label_smoothing = 2;
  CHECK(forward(&options) == FLOWK_STATUS_INVALID_ARGUMENT);
  CHECK(strstr(flowk_last_error(), "options->label_smoothing = 2, must be in 0 ... 1") != NULL);
}

int main(void) {
  char text[512];
  const flowk_status planned = flowk_cross_entropy_explain(logits, NULL, FLOWK_FLOAT32, targets, FLOWK_INT32, loss, lse,
                                                           NULL, NULL, 2, shape, NULL, text, sizeof text);
  bad_calls_are_named_on_any_machine();
  if (strstr(flowk_build_info(), "backend=simt") != NULL)
    results_are_those_of_the_formulas();
  else if (planned == FLOWK_STATUS_NO_DEVICE)
    no_device_is_said();
  printf("%s: %d checks failed\n", flowk_build_info(), num_failed_checks);
  return num_failed_checks == 0 ? 0 : 1;
}
