/* SPDX-License-Identifier: Apache-2.0 */
/* Masked softmax from C11: the initialiser of the mask, a call with it, and the sizes that the mask may have. */
#include <flowk/flowk.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

static const int64_t shape[2] = {2, 2};
static const float x[4] = {5.0f, 7.0f, 3.0f, 3.0f};
static float y[4];

static flowk_status softmax(const flowk_softmax_mask *mask) {
  for (int i = 0; i < 4; ++i) y[i] = -1.0f;
  return flowk_masked_softmax(x, NULL, FLOWK_FLOAT32, y, NULL, FLOWK_FLOAT32, 2, shape, 1.0, mask, 0, NULL);
}

static void the_initialiser_sets_the_size_and_zeros(void) {
  flowk_softmax_mask zeros;
  memset(&zeros, 0, sizeof zeros);
  zeros.struct_bytes = sizeof zeros;
  static const flowk_softmax_mask initial = FLOWK_SOFTMAX_MASK_INIT;
  CHECK(memcmp(&initial, &zeros, sizeof zeros) == 0);
}

static void a_causal_mask_masks(flowk_status good) {
  flowk_softmax_mask mask = FLOWK_SOFTMAX_MASK_INIT;
  mask.causal = 1;
  CHECK(softmax(&mask) == good);
  if (good == FLOWK_STATUS_SUCCESS) CHECK(y[0] > 0.9999f && y[1] == 0.0f && y[2] == 0.5f && y[3] == 0.5f);
}

static void a_size_that_was_never_released_is_refused(void) {
  flowk_softmax_mask mask = FLOWK_SOFTMAX_MASK_INIT;
  mask.struct_bytes -= 16;
  CHECK(softmax(&mask) == FLOWK_STATUS_INVALID_ARGUMENT);
  CHECK(strstr(flowk_last_error(), "mask->struct_bytes = 168, must be 184") != NULL);
  CHECK(y[0] == -1.0f && y[3] == -1.0f);
}

int main(void) {
  char text[512];
  const flowk_status planned = flowk_masked_softmax_explain(x, NULL, FLOWK_FLOAT32, y, NULL, FLOWK_FLOAT32, 2, shape,
                                                            1.0, NULL, 0, text, sizeof text);
  const int on_host = strstr(flowk_build_info(), "backend=simt") != NULL;
  the_initialiser_sets_the_size_and_zeros();
  /* libflowk on a GPU takes device memory, which this program does not have. */
  if (on_host || planned == FLOWK_STATUS_NO_DEVICE)
    a_causal_mask_masks(on_host ? FLOWK_STATUS_SUCCESS : FLOWK_STATUS_NO_DEVICE);
  a_size_that_was_never_released_is_refused();
  printf("%s: %d checks failed\n", flowk_build_info(), num_failed_checks);
  return num_failed_checks == 0 ? 0 : 1;
}
