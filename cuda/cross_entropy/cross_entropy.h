// SPDX-License-Identifier: Apache-2.0
// Cross-entropy, forward, merge of shards, and backward: requests, plans, run, explain.
//
// A row is cut into slices of at most 16 KB, always in the same way: the cut and the order of all sums depend on the
// number of columns and the type alone. So a row's result has the same bits wherever the row lies.
#pragma once

#include "core/device.h"
#include "core/iteration_space.h"
#include "core/status.h"
#include "cross_entropy/cross_entropy_params.h"
#include "flowk/detail/launch_shape.h"

namespace flowk::cross_entropy {

// A checked call. `rows` are the dimensions before the last one: operand 0 counts the rows, operands 1 and 2 are logits
// and dlogits. `options` are complete: vocab_size is not 0.
struct CrossEntropyRequest {
  const void* logits = nullptr;
  const void* targets = nullptr;
  flowk_dtype dtype = FLOWK_FLOAT32;
  flowk_dtype targets_dtype = FLOWK_INT64;
  void* workspace = nullptr;  // forward
  RowResults results;         // forward: pointers
  // backward
  const void* lse = nullptr;
  const void* entropy = nullptr;
  const void* dloss = nullptr;
  const void* dlse = nullptr;
  const void* dentropy = nullptr;
  void* dlogits = nullptr;
  IterationSpace rows = IterationSpace(3);
  int64_t num_rows = 0;
  int64_t columns = 0;
  flowk_cross_entropy_options options = FLOWK_CROSS_ENTROPY_OPTIONS_INIT;
};

// A checked call on the partial results (num_shards, num_rows, partial_values) of shards.
struct CrossEntropyMergeRequest {
  const void* partials = nullptr;
  int64_t num_shards = 0;
  const void* targets = nullptr;
  flowk_dtype dtype = FLOWK_FLOAT32;  // of the partial results: float32 or float64
  flowk_dtype targets_dtype = FLOWK_INT64;
  RowResults results;
  int64_t num_rows = 0;
  flowk_cross_entropy_options options = FLOWK_CROSS_ENTROPY_OPTIONS_INIT;
};

struct MergePartialsPlan {
  LaunchConfig launch;  // no blocks: nothing to merge
  MergePartialsParams params;
  friend bool operator==(const MergePartialsPlan&, const MergePartialsPlan&) = default;
};

struct CrossEntropyPlan {
  flowk_dtype dtype = FLOWK_FLOAT32;
  LaunchConfig launch;
  LossParams params;
  MergePartialsPlan merge;
  friend bool operator==(const CrossEntropyPlan&, const CrossEntropyPlan&) = default;
};

struct CrossEntropyBackwardPlan {
  flowk_dtype dtype = FLOWK_FLOAT32;
  LaunchConfig launch;
  LogitsGradientParams params;
  friend bool operator==(const CrossEntropyBackwardPlan&, const CrossEntropyBackwardPlan&) = default;
};

// Bytes of the partial results of all slices; 0 if a row has one slice. flowk.h has a bound.
int64_t cross_entropy_workspace_bytes(int64_t num_rows, int64_t columns, flowk_dtype dtype);

void plan_cross_entropy(const CrossEntropyRequest& request, const Device& device, CrossEntropyPlan* plan);
void plan_cross_entropy_merge(const CrossEntropyMergeRequest& request, const Device& device, MergePartialsPlan* plan);
void plan_cross_entropy_backward(const CrossEntropyRequest& request, const Device& device,
                                 CrossEntropyBackwardPlan* plan);

Status run_cross_entropy(const CrossEntropyPlan& plan, flowk_stream stream);
Status run_cross_entropy_merge(const MergePartialsPlan& plan, flowk_dtype dtype, flowk_stream stream);
Status run_cross_entropy_backward(const CrossEntropyBackwardPlan& plan, flowk_stream stream);

void explain_cross_entropy(const CrossEntropyPlan& plan, char* text, size_t text_bytes);
void explain_cross_entropy_merge(const MergePartialsPlan& plan, char* text, size_t text_bytes);
void explain_cross_entropy_backward(const CrossEntropyBackwardPlan& plan, char* text, size_t text_bytes);

}  // namespace flowk::cross_entropy
