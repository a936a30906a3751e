// SPDX-License-Identifier: Apache-2.0
// What the parts of the plan of PReLU backward share.
#pragma once

#include "prelu/prelu_problem.h"

namespace flowk::prelu {

// A problem as the planners see it.
struct PreluBackwardProblem {
  const PreluBackwardRequest& request;
  const Device& device;
  const PreluBackwardChoice& choice;
  PreluShape shape;
  int64_t pack_elements;
  int64_t sum_bytes;  // of a partial sum
  PreluBackwardTensors tensors;
  int64_t num_packs;
};

// Partials of a channel that a block sums up in one access to memory where they are neighbours, 8 a thread.
constexpr int64_t near_rows_at_once = 8192;

// Sums of a sector of 32 bytes.
constexpr int64_t sector_sums = 8;
constexpr int64_t warp_lanes = 32;

// Partials are (rows, channels, inner), or (channels, rows) where row_stride = 1.
struct PreluPartials {
  int64_t num_rows;
  int64_t row_stride;
  int64_t inner = 1;
};

// Do all packs exist, aligned in all tensors?
bool is_whole(const PreluBackwardProblem& problem);

// Has the request types for which each mechanism has kernels? The others go by packs_of_planes or packs_of_columns.
bool has_kernels_of_its_own(const PreluBackwardProblem& problem);

// May kernels start before the stream's previous one ends? That hides their launch: 0.8 us of it (H200).
bool starts_early(const PreluBackwardProblem& problem);

// A plan with what all kernels share.
PreluBackwardPlan start_plan(const PreluBackwardProblem& problem);

// Lanes that sum up one of `num_sums` sums of `num_terms` terms each, in a block of `threads`.
int32_t lanes_for(int64_t num_sums, int64_t num_terms, int64_t threads);

// Shared memory by which the blocks of a cluster hand over so many sums: a barrier of 16 bytes, and their places.
constexpr int64_t cluster_area_bytes(int64_t num_sums, int64_t sum_bytes) { return 16 + num_sums * sum_bytes; }

// Plans the kernels that make dalpha of partials at the workspace's start.
void plan_sums(const PreluBackwardProblem& problem, const PreluPartials& partials, PreluBackwardPlan* plan);

// Plan a kernel over x and dy on top of start_plan(), and its sums; false where it does not fit.
bool plan_planes_of_channels(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);
bool plan_spans(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);
bool plan_warp_columns(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);
bool plan_planes(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);
// Are there many rows that are whole periods of channels * inner elements, and whole lines of 128 bytes?
bool has_rows_of_lines(const PreluBackwardProblem& problem);
void plan_columns(const PreluBackwardProblem& problem, PreluBackwardPlan* plan);  // fits always

}  // namespace flowk::prelu
