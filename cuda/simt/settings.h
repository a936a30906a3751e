// SPDX-License-Identifier: Apache-2.0
// The executor's environment variables, read in every call.
#pragma once

namespace flowk::simt {

struct Settings {
  bool reverse = false;      // FLOWK_SIMT_THREAD_ORDER: forward (the default) or reverse
  int capability = 0;        // FLOWK_SIMT_CAPABILITY: 0 (the default) or 90, which has clusters and bulk copies
  int num_host_threads = 1;  // FLOWK_SIMT_THREADS: 1 ... 256; the default is one per core
};

// Returns nullptr, or the text of what is wrong: this host thread's, valid until its next read_settings().
const char* read_settings(Settings* settings);

}  // namespace flowk::simt
