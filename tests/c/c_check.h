/* SPDX-License-Identifier: Apache-2.0 */
/* CHECK() of the C tests. main() returns num_failed_checks != 0. */
#ifndef C_CHECK_H
#define C_CHECK_H

#include <flowk/flowk.h>
#include <stdio.h>

static int num_failed_checks = 0;
#define CHECK(condition)                                                                               \
  do {                                                                                                 \
    if (!(condition)) {                                                                                \
      printf("%s:%d: in %s: %s; flowk_last_error: \"%s\"\n", __FILE__, __LINE__, __func__, #condition, \
             flowk_last_error());                                                                      \
      ++num_failed_checks;                                                                             \
    }                                                                                                  \
  } while (0)

#endif
