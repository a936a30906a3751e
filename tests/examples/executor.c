/* SPDX-License-Identifier: Apache-2.0 */
/* C on the CPU: host pointers, no GPU and no CUDA. Build: cc executor.c $(pkg-config --cflags --libs flowk_simt) */
#include <flowk/flowk.h>
#include <stdio.h>

int main(void) {
  static float image[2 * 4 * 5 * 3], planes[2 * 3 * 4 * 5];
  const int64_t shape[] = {2, 4, 5, 3};
  const int32_t axes[] = {0, 3, 1, 2}; /* NHWC to NCHW */
  flowk_status status;
  int i;
  if (flowk_version() != FLOWK_VERSION) {
    fprintf(stderr, "the header is version %d, the library %d\n", FLOWK_VERSION, (int)flowk_version());
    return 1;
  }
  for (i = 0; i < 2 * 4 * 5 * 3; ++i) image[i] = (float)i;
  status = flowk_permute(image, NULL, planes, NULL, 4, shape, axes, FLOWK_FLOAT32, NULL);
  if (status != FLOWK_STATUS_SUCCESS) {
    fprintf(stderr, "%s: %s\n", flowk_status_string(status), flowk_last_error());
    return 1;
  }
  printf("plane 1 begins with %g, %g\n", planes[20], planes[21]);
  return planes[20] == 1.0f && planes[21] == 4.0f ? 0 : 1;
}
