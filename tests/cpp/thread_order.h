// SPDX-License-Identifier: Apache-2.0
// A kernel must not depend on the order in which the threads of a block come to run.
#pragma once

#include <cstdlib>

// Draws the order of the executor's next launches, evenly and without a period (the Thue-Morse sequence). The Python
// tests run every case of the tables in both orders.
inline void draw_thread_order() {
  static unsigned num_drawn = 0;
  setenv("FLOWK_SIMT_THREAD_ORDER", __builtin_parity(num_drawn++) != 0 ? "reverse" : "forward", 1);
}
