// SPDX-License-Identifier: Apache-2.0
// The executor has done the work when a launch returns.
#include <chrono>

#include "core/stopwatch.h"

namespace flowk::core {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Status Stopwatch::open(flowk_stream stream) {
  stream_ = stream;
  return {};
}

Stopwatch::~Stopwatch() = default;

Status Stopwatch::start() {
  begin_us_ = now_us();
  return {};
}

Status Stopwatch::stop(double* us) {
  *us = now_us() - begin_us_;
  return {};
}

}  // namespace flowk::core
