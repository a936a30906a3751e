// SPDX-License-Identifier: Apache-2.0
// flowk_softmax_merge(): request, plan, run, explain. One mechanism, merge_rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"
#include "core/divide.h"
#include "core/status.h"
#include "flowk/detail/launch_shape.h"
#include "flowk/flowk.h"

namespace flowk::softmax {

constexpr int merge_threads = 256;

struct MergeRowsParams {
  const unsigned char* y1 = nullptr;
  const unsigned char* y2 = nullptr;
  unsigned char* y = nullptr;
  const void* lse1 = nullptr;
  const void* lse2 = nullptr;
  void* lse = nullptr;
  int64_t num_rows = 0;
  WideDivider columns;
  bool by_vectors = false;  // each thread has a vector of 16 bytes, of one row or two; false: an element
  friend bool operator==(const MergeRowsParams&, const MergeRowsParams&) = default;
};

// A checked call on contiguous (num_rows, columns), both >= 1.
struct MergeRowsRequest {
  MergeRowsParams params;  // pointers and sizes
  flowk_dtype dtype = FLOWK_FLOAT32;
};

struct MergeRowsPlan {
  flowk_dtype dtype = FLOWK_FLOAT32;
  LaunchConfig launch;
  MergeRowsParams params;
  friend bool operator==(const MergeRowsPlan&, const MergeRowsPlan&) = default;
};

void plan_softmax_merge(const MergeRowsRequest& request, const Device& device, MergeRowsPlan* plan);
Status run_softmax_merge(const MergeRowsPlan& plan, flowk_stream stream);
void explain_softmax_merge(const MergeRowsPlan& plan, char* text, size_t text_bytes);

}  // namespace flowk::softmax
