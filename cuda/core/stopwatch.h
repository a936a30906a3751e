// SPDX-License-Identifier: Apache-2.0
// Stopwatch: the time of work on a stream. It waits for the stream, which no other part of the library does; only
// functions of the C ABI that say so use it.
#pragma once

#include "core/status.h"

namespace flowk::core {

class Stopwatch {
 public:
  // Creates what is needed; `stream` must not be capturing a graph.
  Status open(flowk_stream stream);
  ~Stopwatch();
  Status start();
  Status stop(double* us);  // the time since start(), once the stream has done all its work

  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  flowk_stream stream_ = nullptr;
  void* begin_ = nullptr;  // events of libflowk
  void* end_ = nullptr;
  double begin_us_ = 0;  // of libflowk_simt
};

}  // namespace flowk::core
